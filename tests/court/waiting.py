"""The device waits: for batches, for first use of code, for the allocator, for answers, for launches, for other devices."""

from __future__ import annotations

from tests.court.case import MS, US, guilty, innocent, saves
from tests.support.findings import step
from tests.support.trace_builder import TraceBuilder

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def kernel(t: TraceBuilder, start: int, stop: int, at: int, name: str = "k", **more: object) -> None:
    """A kernel [start, stop) us that is launched at `at` us."""
    t.launch(name, at=at * US, start=start * US, duration=(stop - start) * US, **more)  # type: ignore[arg-type]


def fetched(iterator: str) -> TraceBuilder:
    """A kernel [0, 400) us, a batch fetched in [100, 700), the next kernel launched at 701 and run [702, 1000)."""
    t = step()
    kernel(t, 0, 400, 0, "a")
    t.annotation(f"enumerate(DataLoader)#{iterator}.__next__", 100 * US, 600 * US)
    kernel(t, 702, 1000, 701, "b")
    return t


@guilty(input_wait=saves(300 * US, says="in the training process"))
def a_batch_is_loaded_in_the_training_process() -> TraceBuilder:
    """The GPU has no work from 400 to 700 us, while a batch is loaded."""
    return fetched("_SingleProcessDataLoaderIter")


@guilty(input_wait=saves(300 * US, says="too slowly in the workers"))
def workers_load_too_slowly() -> TraceBuilder:
    """The same, but the batch comes from worker processes."""
    return fetched("_MultiProcessingDataLoaderIter")


@guilty(input_wait=saves(600 * US))
def a_host_without_a_device_loads_in_its_step() -> TraceBuilder:
    """A recording of the host: 600 of 1000 us are loading."""
    t = step(device="")
    t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100 * US, 600 * US)
    t.op("aten::mm", 700 * US, 300 * US)
    return t


@guilty(warm_up=saves(300 * MS, says="schedule("))
def the_first_launch_loads_code() -> TraceBuilder:
    """The first launch of a kernel takes 300 of 1000 ms, in which the GPU has no work."""
    t = step(1_000 * MS)
    t.op("aten::relu", 0, 310 * MS)
    t.launch("a", at=0, start=300 * MS, duration=100 * MS, call_duration=300 * MS)
    t.launch("b", at=310 * MS, start=400 * MS, duration=600 * MS)
    return t


@guilty(warm_up=saves(120 * MS))
def an_allocation_creates_the_context() -> TraceBuilder:
    """The first cudaMalloc takes 120 ms: it creates the context, and says nothing of the allocator."""
    t = step(1_000 * MS)
    t.call("cudaMalloc", 0, 120 * MS)
    t.launch("a", at=120 * MS, start=120 * MS + 5 * US, duration=880 * MS - 5 * US)
    return t


def called(first: int, *, sizes: bool = True, later: int = 100) -> TraceBuilder:
    """Four calls of `extension::fused` 10 ms apart, the first of `first` us, the others of `later` us; each launches 2 ms of work at its end."""
    t = step(40 * MS)
    for i in range(4):
        z, length = 10_000 * i, later if i else first
        t.op("extension::fused", z * US, length * US, shapes=[[64], [64, 64], [64, 64]] if sizes else None, types=["float"] * 3 if sizes else None)
        kernel(t, z + length, z + length + 2000, z + length - 1)
    return t


@guilty(warm_up=saves(4_900 * US, says="`extension::fused` (the first call takes 5.00"), host_wait=saves(27_100 * US))
def the_first_call_of_an_operator_picks_a_kernel() -> TraceBuilder:
    """The first of four calls over the same sizes takes 5 ms on the host, later ones 100 us: 4.9 ms of it are first use."""
    return called(5_000)


@innocent("warm_up", host_wait=saves(32_000 * US))
def an_operator_is_slow_in_every_call() -> TraceBuilder:
    """The same, but every call takes 5 ms on the host."""
    return called(5_000, later=5_000)


@innocent("warm_up", host_wait=saves(32_000 * US))
def calls_without_sizes_may_differ() -> TraceBuilder:
    """The first of four calls takes 5 ms, later ones 100 us; over which sizes is not recorded."""
    return called(5_000, sizes=False)


@guilty(warm_up=saves(4_980 * US, says="first call of operators, most of it in `extension::fused` (the"), host_wait=saves(27_020 * US))
def a_first_call_without_sizes_takes_250_times_as_long() -> TraceBuilder:
    """The first of four calls takes 5 ms, the others 20 us; over which sizes is not recorded, and none explain 250 times."""
    return called(5_000, sizes=False, later=20)


@innocent("warm_up", device_allocation=saves(4_500 * US), host_wait=saves(27_500 * US))
def the_first_call_allocates() -> TraceBuilder:
    """The first of four calls takes 5 ms, 4.5 of them in `cudaMalloc`: what costs the time is the allocation."""
    t = called(5_000)
    t.call("cudaMalloc", 250 * US, 4_500 * US)
    return t


@guilty(warm_up=saves(6 * MS, says="while graphs are captured"), host_wait=saves(2 * MS))
def graphs_are_captured_before_they_run() -> TraceBuilder:
    """Between `cudaStreamBeginCapture` at 1 ms and the end of `cudaStreamEndCapture` at 7 ms nothing runs: launches go to the graph."""
    t = step(10 * MS)
    t.op("aten::mm", 2 * MS, MS)
    t.call("cudaStreamBeginCapture", MS, 2 * US)
    t.call("cudaStreamEndCapture", 6 * MS, MS)
    kernel(t, 8000, 10_000, 7990)
    return t


@guilty(device_allocation=saves(299 * US, says="expandable_segments"))
def the_allocator_asks_the_driver() -> TraceBuilder:
    """Between two kernels (50 and 350 us) the allocator takes memory from the driver for 299 us."""
    t = step()
    t.op("aten::empty", 45 * US, 310 * US)
    kernel(t, 0, 50, 0, "a")
    t.call("cudaMalloc", 50 * US, 299 * US)
    kernel(t, 350, 1000, 349, "b")
    return t


@guilty(host_sync=saves(70 * US, says=".item()"))
def item_stops_the_host() -> TraceBuilder:
    """The host waits in `.item()` until a kernel ends at 390 us and launches the next one at 450: the GPU is idle until 460."""
    t = step()
    t.op("aten::relu", 0, 5 * US)
    kernel(t, 1, 390, 0, "a")
    t.op("aten::_local_scalar_dense", 100 * US, 320 * US)
    t.call("cudaStreamSynchronize", 210 * US, 190 * US)
    kernel(t, 460, 1000, 450, "b")
    return t


@guilty(host_sync=saves(100 * US, says="torch.cuda.synchronize()"))
def the_program_synchronizes_the_device() -> TraceBuilder:
    """torch.cuda.synchronize() in the middle of the step; the next launch comes 100 us after it."""
    t = step()
    kernel(t, 1, 500, 0, "a")
    t.call("cudaDeviceSynchronize", 100 * US, 400 * US)
    kernel(t, 600, 1000, 599, "b")
    return t


@guilty(host_sync=saves(20 * US), host_wait=saves(50 * US))
def a_short_wait_costs_no_more_than_itself() -> TraceBuilder:
    """The host waits for 20 us until 400 us, and launches the next kernel 50 us later for another reason."""
    t = step()
    kernel(t, 0, 390, 0, "a")
    t.op("aten::_local_scalar_dense", 380 * US, 20 * US)
    t.call("cudaStreamSynchronize", 380 * US, 20 * US)
    kernel(t, 460, 1000, 450, "b")
    return t


@guilty(input_wait=saves(498 * US, says="2 batches load"))
def an_exhausted_loader_brings_no_batch() -> TraceBuilder:
    """Two batches are fetched for 249 us each without work for the GPU; a third call of 5 us finds the loader exhausted."""
    t = step()
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    for at in (0, 500):
        t.annotation(name, at * US, 249 * US)
        t.op("aten::stack", (at + 10) * US, 100 * US)
        kernel(t, at + 250, at + 500, at + 249)
    t.annotation(name, 990 * US, 5 * US)
    return t


def launches(count: int, *, region: str = "", name: str = "k") -> TraceBuilder:
    """Kernels of 5 us, one every 100 us, each launched 1 us before it runs; the step ends with the last one."""
    length = 100 * (count - 1) + 6
    t = step(length * US)
    if region:
        t.op(region, 0, length * US)
    for i in range(count):
        t.op("aten::add_", 100 * i * US, 20 * US)
        kernel(t, 100 * i + 1, 100 * i + 6, 100 * i, f"{name}{i}")
    return t


@guilty(launch_bound=saves((9 * 95 + 1) * US, says="reduce-overhead"))
def many_short_kernels() -> TraceBuilder:
    """Ten kernels of 5 us, each launched 95 us after the one before it ended."""
    return launches(10)


@guilty(launch_bound=saves((9 * 55 + 1) * US, says="reduce-overhead"))
def many_short_kernels_beside_the_profiler() -> TraceBuilder:
    """The same, but the profiler itself takes the first 40 us of the 95 us between any two."""
    t = launches(10)
    for i in range(9):
        t.frame("/opt/torch/profiler/profiler.py(865): step", (100 * i + 6) * US, 40 * US)
    return t


@guilty(launch_bound=saves((9 * 95 + 1) * US, says="cudagraphs", never="torch.compile("))
def many_short_kernels_of_compiled_code() -> TraceBuilder:
    """The same in a region that is compiled already."""
    return launches(10, region="Torch-Compiled Region: 0/0", name="triton_poi_fused_add_")


@guilty(launch_bound=saves((9 * 95 + 1) * US, says="in use already", never="torch.compile"))
def many_short_kernels_beside_a_graph() -> TraceBuilder:
    """The same in a program that launches a graph of its own first, which nothing here waits for."""
    t = launches(10)
    t.call("cudaGraphLaunch", 10 * US, 5 * US)
    return t


@guilty(host_wait=saves((6 * 95 + 1) * US))
def a_few_short_kernels() -> TraceBuilder:
    """Seven of them: fewer than a graph is worth, and the host is late all the same."""
    return launches(7)


@guilty(handover=saves(18 * US, never="reduce-overhead"))
def the_device_changes_kernels_often() -> TraceBuilder:
    """Ten kernels, each queued 50 us before the one before it ends, and 2 us between any two."""
    t = step(998 * US)
    t.op("aten::relu", 0, 900 * US)
    for i in range(10):
        kernel(t, 100 * i, 100 * i + 98, max(100 * i - 52, 0))
    return t


@guilty(handover=saves(38 * US, never="reduce-overhead"))
def kernels_of_a_graph_are_short() -> TraceBuilder:
    """Twenty kernels of one graph launch, 2 us between any two: no launch is missing."""
    t = step(998 * US)
    number = t.call("cudaGraphLaunch", 0, 5 * US, flow=True)
    for i in range(20):
        t.kernel(f"k{i}", 50 * i * US, 48 * US, correlation=number)
    return t


@guilty(python_wait=saves(7 * MS, says="data.py:12 preprocess"), host_wait=saves(2 * MS))
def python_runs_before_the_first_kernel() -> TraceBuilder:
    """`preprocess` runs in [1, 8) ms; the only kernel is launched at 8.99 ms and runs [9, 10)."""
    t = step(10 * MS)
    outer = t.frame("train.py(80): main", 0, 10 * MS)
    own = t.frame("data.py(12): preprocess", MS, 7 * MS, parent=outer)
    t.frame("torch/functional.py(3): stft", 2 * MS, 5 * MS, parent=own)
    kernel(t, 9_000, 10_000, 8_990)
    return t


@guilty(host_wait=saves(8_990 * US, says="# aten::linear, called at model.py:5 forward", never="shorten"))
def a_line_that_only_calls_an_operator_is_not_to_be_shortened() -> TraceBuilder:
    """`forward` runs in [1, 9) ms, all but 10 us of it in `aten::linear`, which launches the only kernel at its end."""
    t = step(10 * MS)
    outer = t.frame("train.py(80): main", 0, 10 * MS)
    t.frame("model.py(5): forward", MS, 8 * MS, parent=outer)
    t.op("aten::linear", MS + 10 * US, 8 * MS - 10 * US)
    kernel(t, 8_990, 10_000, 8_985)
    return t


@guilty(host_wait=saves(200 * US, possible=True, says="before the first", never="another"))
def a_recording_without_steps_begins_with_host_work() -> TraceBuilder:
    """The host runs `schedule` in [0, 190) us, then launches kernels that fill [200, 1000) us; what ran before is not recorded."""
    t = TraceBuilder()
    t.annotation("schedule", 0, 190 * US)
    t.op("aten::index", 193 * US, 6 * US)
    for i in range(4):
        kernel(t, 200 + 200 * i, 400 + 200 * i, 195 + i)
    return t


@guilty(host_wait=saves(3 * MS))
def the_program_waits_beside_a_frame_of_the_profiler() -> TraceBuilder:
    """Between two kernels the profiler's `step` takes [1, 5) ms and the host does something else in [5, 8): only that is the program's."""
    t = step(10 * MS)
    kernel(t, 0, 1000, 0, "a")
    t.frame("torch/profiler/profiler.py(865): step", MS, 4 * MS)
    kernel(t, 8000, 10_000, 8000, "b")
    return t


@guilty(operator_wait=saves(4 * MS, possible=True, says="`aten::max`"), host_wait=saves(5 * MS))
def an_operator_computes_on_the_cpu() -> TraceBuilder:
    """`aten::max` runs on the host in [1, 5) ms; the only kernel is launched at 8.99 ms and runs [9, 10)."""
    t = step(10 * MS)
    t.op("aten::max", MS, 4 * MS)
    kernel(t, 9_000, 10_000, 8_990)
    return t


@guilty(host_wait=saves(650 * US, says="exchange"))
def the_host_is_in_a_phase() -> TraceBuilder:
    """In the range `exchange` of 600 us the host launches one kernel of 50 us, at its end; then the GPU is busy for 300 us, and idle for 100."""
    t = step()
    t.annotation("## exchange ##", 0, 600 * US)
    kernel(t, 550, 600, 500)
    t.annotation("## math ##", 600 * US, 300 * US)
    kernel(t, 600, 900, 590)
    return t


def communicates(around: str, *, training: bool = True, over: str = "") -> TraceBuilder:
    """A kernel [3, 500) us and an all-reduce [500, 1000) us that nothing hides, launched inside of `around`."""
    t = step()
    t.op("aten::mm", US, 5 * US)
    kernel(t, 3, 500, 2)
    t.op(around, 10 * US, 50 * US)
    number = t.call("cudaLaunchKernel", 20 * US, US, flow=True)
    t.kernel(NCCL, 500 * US, 500 * US, correlation=number, stream=20, flow=True)
    if over:
        t.op(over, 70 * US, US)
    if training:
        t.op("autograd::engine::evaluate_function: MmBackward0", 29 * US, 5 * US, thread=9)
        t.forward_backward(US, 29 * US, backward_thread=9)
    return t


@guilty(exposed_communication=saves(500 * US, says="bucket_cap_mb=10)"))
def gradients_are_reduced_after_the_backward_pass() -> TraceBuilder:
    """An all-reduce of DistributedDataParallel runs for 500 us while nothing computes."""
    return communicates("nccl:all_reduce", over="DistributedDataParallel.forward")


@guilty(exposed_communication=saves(500 * US, says="dist.all_reduce(half", never="DistributedDataParallel"))
def tensor_parallel_inference_reduces() -> TraceBuilder:
    """The same without a backward pass: no gradients are reduced here, and the compiler fuses no all-reduce with its product."""
    return communicates("nccl:all_reduce", training=False)


@guilty(exposed_communication=saves(500 * US, says="_micro_pipeline_tp", never="DistributedDataParallel"))
def sequence_parallel_inference_gathers() -> TraceBuilder:
    """An all-gather without a backward pass, which the compiler runs inside of the product that follows."""
    return communicates("nccl:_all_gather_base", training=False)


@guilty(exposed_communication=saves(100 * US))
def half_of_a_collective_is_hidden() -> TraceBuilder:
    """An all-reduce [0, 200) us whose second half runs under a kernel [100, 1000)."""
    t = step()
    t.launch(NCCL, at=0, start=0, duration=200 * US, stream=20)
    kernel(t, 100, 1000, 5)
    return t


def trained(steps: int) -> TraceBuilder:
    """Steps of 10 ms whose last 4 ms compute, launched 10 us before, with a backward pass."""
    t = TraceBuilder()
    for n in range(steps):
        t.step(n + 1, n * 10 * MS, 10 * MS)
        t.op("aten::mm", n * 10 * MS + 6 * MS - 20 * US, 15 * US)
        t.launch("k", at=n * 10 * MS + 6 * MS - 10 * US, start=n * 10 * MS + 6 * MS, duration=4 * MS, call_duration=5 * US)
    t.op("autograd::engine::evaluate_function: MmBackward0", 9 * MS, 5 * US, thread=9)
    t.forward_backward(6 * MS - 20 * US, 9 * MS, backward_thread=9)
    return t


def sends(t: TraceBuilder, kind: str, at: int, duration: int) -> None:
    """A collective of 4 KiB that is launched at `at` and begins half a microsecond later."""
    number = t.call("cudaLaunchKernel", at, US // 2, flow=True)
    t.collective(kind, at + US // 2, duration, elements=1024, correlation=number)


@guilty(
    buffer_broadcasts=saves(2_200 * US, says="2 broadcasts"), launch_bound=saves(0, 10 * MS, optional=True),
    host_wait=saves(0, 4 * MS, optional=True),
)  # fmt: skip
def buffers_are_broadcast_in_every_step() -> TraceBuilder:
    """In each of two forward passes DDP broadcasts buffers for 200 us, and unpacks them for 2 ms on the host."""
    t = trained(2)
    for n in range(2):
        z = n * 10 * MS + MS
        sends(t, "broadcast", z, 200 * US)
        t.annotation("DistributedDataParallel.forward", z - US, 3 * MS)
        t.op("aten::unflatten_dense_tensors", z + 500 * US, 2 * MS)
    return t


@innocent(
    "buffer_broadcasts", exposed_communication=saves(200 * US / 3), host_wait=saves(0, 6 * MS, optional=True),
    launch_bound=saves(0, 10 * MS, optional=True),
)  # fmt: skip
def parameters_are_broadcast_once() -> TraceBuilder:
    """The first of three forward passes broadcasts for 200 us: that of the parameters."""
    t = trained(3)
    sends(t, "broadcast", MS, 200 * US)
    t.annotation("DistributedDataParallel.forward", MS - US, 3 * MS)
    return t


def reduces_buckets(elements: int, *, dtype: str = "Float") -> TraceBuilder:
    """Six all-reduces of DistributedDataParallel in a step, 300 us each, in the wait for its work."""
    t = trained(1)
    t.annotation("DistributedDataParallel.forward", MS - 10 * US, 5 * US)
    for i in range(6):
        at = MS + i * 500 * US
        number = t.call("cudaLaunchKernel", at, US // 2, flow=True)
        t.collective("allreduce", at + US // 2, 300 * US, elements=elements, dtype=dtype, correlation=number)
    return t


WAITED = {"launch_bound": saves(0, 6 * MS, optional=True), "host_wait": saves(0, 6 * MS, optional=True)}


@guilty(exposed_communication=saves(1_800 * US, says="bf16_compress_hook"), **WAITED)
def full_buckets_are_exposed() -> TraceBuilder:
    """Six all-reduces of 26 MB each: neither more nor fewer of them would help."""
    return reduces_buckets(6_553_600)


@guilty(exposed_communication=saves(1_800 * US, says="no_sync"), **WAITED)
def full_buckets_in_half_precision_are_exposed() -> TraceBuilder:
    """The same in bfloat16: there is nothing to compress."""
    return reduces_buckets(13_107_200, dtype="BFloat16")


@guilty(exposed_communication=saves(1_800 * US, says="bucket_cap_mb=100"), **WAITED)
def small_buckets_are_exposed() -> TraceBuilder:
    """The same of 1 MB each: fewer of them would do."""
    return reduces_buckets(250_000)


def reduces_often() -> TraceBuilder:
    """80 all-reduces of 4 KiB in a step, 20 us each and 50 us apart."""
    t = trained(1)
    for i in range(80):
        sends(t, "allreduce", MS + i * 50 * US, 20 * US)
    return t


OFTEN = {"launch_bound": saves(0, 3 * MS, optional=True), "host_wait": saves(0, 6 * MS, optional=True)}


@guilty(tiny_all_reduces=saves(79 * 20 * US, possible=True, says="80 all-reduces"), **OFTEN)
def gradients_are_reduced_one_by_one() -> TraceBuilder:
    """80 all-reduces of 4 KiB in a step, 20 us each."""
    return reduces_often()


@innocent("tiny_all_reduces", exposed_communication=saves(80 * 20 * US), **OFTEN)
def batch_norm_is_synchronized() -> TraceBuilder:
    """The same inside of the backward pass of synchronized batch norm: each result is needed before the next."""
    t = reduces_often()
    t.annotation("SyncBatchNormBackward", MS - US, 5 * MS)
    return t


def steps_of_an_optimizer(name: str, operator: str) -> TraceBuilder:
    """A step of 10 ms whose optimizer takes 5 ms on the host in two operators that launch one kernel each."""
    t = step(10 * MS)
    kernel(t, 0, 4_000, 0, "a")
    t.annotation(f"Optimizer.step#{name}.step", 4 * MS, 5 * MS)
    t.op(operator, 4_100 * US, 2 * MS)
    kernel(t, 6_090, 6_100, 6_085)
    t.op(operator, 6_500 * US, 2_490 * US)
    kernel(t, 9_000, 10_000, 8_985, "b")
    return t


@guilty(host_wait=saves(4_990 * US, says="torch.optim.SGD(model.parameters(), fused=True)"))
def the_host_is_in_an_optimizer_of_several_calls() -> TraceBuilder:
    """SGD updates its parameters with `_foreach` operators that take 5 ms on the host."""
    return steps_of_an_optimizer("SGD", "aten::_foreach_add_")


@innocent("unfused_optimizer", host_wait=saves(4_990 * US, never="fused=True"))
def the_host_is_in_an_optimizer_of_one_call() -> TraceBuilder:
    """The same with the fused operator: there is nothing left to fuse."""
    return steps_of_an_optimizer("SGD", "aten::_fused_sgd_")


@guilty(exposed_copies=saves(60 * US))
def a_short_copy_that_nothing_hides() -> TraceBuilder:
    """A pinned upload of 60 us between two kernels, launched early: too short for a rule of its own."""
    t = step()
    kernel(t, 0, 900, 0)
    t.copy("HtoD", 900 * US, 60 * US, bytes=1 << 20, src="Pinned", call=(5 * US, 2 * US))
    kernel(t, 960, 1000, 10)
    return t


def copied_in_steps(sizes: tuple[int, ...]) -> TraceBuilder:
    """Steps of 1 ms with exposed uploads of 60 us at their end, of some sizes, and 60 us more of a constant in the first step alone."""
    t = TraceBuilder()
    for n, size in enumerate(sizes):
        z = 1000 * n
        t.step(n + 1, z * US, MS)
        kernel(t, z, z + 880, z)
        if not n:
            t.op("aten::clone", (z + 4) * US, 4 * US)
            t.copy("HtoD", (z + 880) * US, 60 * US, bytes=4 << 20, src="Pinned", call=((z + 5) * US, 2 * US))
        t.op("aten::to", (z + 9) * US, 5 * US)
        t.copy("HtoD", (z + 940) * US, 60 * US, bytes=size, src="Pinned", call=((z + 10) * US, 2 * US))
    return t


@guilty(exposed_copies=saves(60 * US, says="batch.to", never="not in every"))
def only_copies_of_every_step_are_no_accident() -> TraceBuilder:
    """Four steps that each upload a batch for 60 us; the first uploads a constant for 60 us besides, which later steps do not pay."""
    return copied_in_steps((1_000_000, 1_100_000, 1_050_000, 980_000))


@innocent("exposed_copies", exposed_copies=saves(20 * US, possible=True, says="not in every step"))
def parameters_are_uploaded_in_the_first_step() -> TraceBuilder:
    """The first of three steps uploads parameters for 60 us between two kernels: no other step does, so no step can save it."""
    t = TraceBuilder()
    for n in range(3):
        t.step(n + 1, n * MS, MS)
        kernel(t, 1000 * n, 1000 * n + 900, 1000 * n)
        kernel(t, 1000 * n + 960, 1000 * n + 1000, 1000 * n + 10)
        if n:
            kernel(t, 1000 * n + 900, 1000 * n + 960, 1000 * n + 5)
    t.copy("HtoD", 900 * US, 60 * US, bytes=1 << 20, src="Pinned", call=(5 * US, 2 * US))
    return t


@guilty(warm_up=saves(100 * US, missed=(
    "the launch of what ends this gap began before the gap; the GPU breakdown, as HTA, gives such a gap to the device, and no finding blames "
    "the host for what that page does not. In 19 real recordings of GPUs launches of over 1 ms hold 59 us of such idle time in all"
)))
def the_first_of_three_steps_is_slower() -> TraceBuilder:
    """Three steps of 10 ms that the GPU fills, but for 0.3 ms of the first one, in a launch that loads code."""
    t = TraceBuilder()
    for n in range(3):
        t.step(n + 1, 10 * n * MS, 10 * MS)
    t.launch("a", at=0, start=0, duration=2 * MS)
    t.launch("b", at=300 * US, start=2_300 * US, duration=7_700 * US, call_duration=2 * MS)
    for n in (1, 2):
        t.launch("a", at=(10 * n - 1) * MS, start=10 * n * MS, duration=2 * MS)
        t.launch("b", at=10 * n * MS - 500 * US, start=10 * n * MS + 2 * MS, duration=8 * MS)
    return t
