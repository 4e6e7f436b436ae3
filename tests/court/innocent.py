"""Look-alikes in time: the host waits or works, the device is fed; work is as good as it gets."""

from __future__ import annotations

from tests.court.case import MS, US, innocent, saves
from tests.court.products import BF16, FULL, MMA
from tests.court.products import least as least_product
from tests.court.waiting import NCCL, kernel, sends, trained
from tests.court.work import CPU, MILLION, least
from tests.support.copy_findings import steps
from tests.support.findings import H100_TF32, call, filled, step
from tests.support.trace_builder import TraceBuilder

LARGE = 1 << 26
"""Elements of arrays that take 80 us to read: rounding to whole us is below half a percent of several."""


# -- nothing waits for the host ----------------------------------------------------------------------------------------


@innocent("host_wait", "launch_bound", "host_sync", "handover")
def the_last_launch_was_before_the_window() -> TraceBuilder:
    """The recording begins after all launches: kernels without a launch record, with gaps of 100 us between them."""
    t = step()
    t.op("aten::mm", US, 5 * US)
    for i in range(5):
        t.kernel("k", 200 * i * US, 100 * US)
    return t


@innocent("host_wait", "launch_bound", "copies_blocking_to_host")
def another_process_has_the_device() -> TraceBuilder:
    """A kernel that was launched at 0.3 ms runs at 70 of 100 ms: in between another process computes, whose work is in its own file."""
    t = step(100 * MS)
    t.launch("a", at=0, start=0, duration=5 * MS)
    t.launch("b", at=300 * US, start=70 * MS, duration=30 * MS)
    t.call("cudaStreamSynchronize", 400 * US, 99 * MS)
    return t


@innocent("host_wait", "exposed_communication")
def a_cut_recording_begins_in_a_step() -> TraceBuilder:
    """Three steps of 1 ms; in the first one the GPU ends what was launched before the recording, 400 us without a launch record."""
    t = TraceBuilder()
    for n in range(3):
        t.step(n + 1, n * MS, MS)
        t.op("aten::mm", n * MS + 10 * US, 50 * US)
    t.kernel("before", 0, 400 * US)
    for n in range(3):
        start = n * MS + (400 * US if n == 0 else 0)
        t.launch("k", at=max(n * MS - 20 * US, 15 * US), start=start, duration=(n + 1) * MS - start)
    return t


@innocent("host_wait", host_wait=saves(100 * US, possible=True, says="before the first or after the last event"))
def the_device_is_empty_when_the_profiler_starts() -> TraceBuilder:
    """Three steps of 1 ms. The host runs ahead and keeps the GPU busy but for the first 300 us, for which the profiler had waited for it."""
    t = TraceBuilder()
    for n in range(3):
        t.step(n + 1, n * MS, MS)
        t.launch("k", at=n * MS + 295 * US, start=300 * US + n * MS, duration=MS if n < 2 else 700 * US)
    return t


@innocent("host_wait", "input_wait")
def the_program_pauses_between_steps() -> TraceBuilder:
    """Two steps of 1 ms that the GPU fills, 4 ms apart: what lies between steps is no part of one."""
    t = TraceBuilder()
    for n, at in enumerate((0, 5 * MS)):
        t.step(n + 1, at, MS)
        t.launch("k", at=at, start=at + US, duration=999 * US)
    t.annotation("evaluate", MS, 4 * MS)
    return t


@innocent("input_wait", "host_wait")
def a_loader_waits_while_the_device_works() -> TraceBuilder:
    """A batch is fetched for 800 us behind a kernel of 1 ms."""
    t = step()
    kernel(t, 0, 1000, 0)
    t.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 100 * US, 800 * US)
    return t


@innocent("host_sync", "host_wait")
def the_host_synchronizes_at_the_end_of_its_step() -> TraceBuilder:
    """Two steps of 1 ms that end with cudaDeviceSynchronize; the next kernel is launched 2 us later."""
    t = TraceBuilder()
    for n in range(2):
        t.step(n + 1, n * MS, MS)
        t.launch("k", at=n * MS, start=n * MS + 2 * US, duration=998 * US)
        t.call("cudaDeviceSynchronize", n * MS + 10 * US, 990 * US)
    return t


@innocent("host_sync", "copies_scalar_reads")
def a_value_is_read_while_another_thread_feeds_the_device() -> TraceBuilder:
    """`.item()` holds one thread in [60, 420) us; a kernel that another one launched runs from 412 us on."""
    t = steps(1)
    kernel(t, 0, 410, 0, "a")
    t.op("aten::item", 55 * US, 370 * US)
    t.op("aten::_local_scalar_dense", 56 * US, 368 * US)
    t.copy("DtoH", 410 * US, 2 * US, bytes=4, dst="Pageable", call=(60 * US, 360 * US))
    kernel(t, 412, 1000, 100, "b", thread=9)
    return t


@innocent("launch_bound", "handover", "host_wait")
def a_graph_is_replayed() -> TraceBuilder:
    """Fifty kernels of one graph launch, back to back; the host waits meanwhile."""
    t = step()
    number = t.call("cudaGraphLaunch", 0, 5 * US, flow=True)
    for i in range(50):
        t.kernel(f"k{i % 5}", 20 * i * US, 20 * US, correlation=number)
    t.call("cudaStreamSynchronize", 10 * US, 990 * US)
    return t


@innocent("launch_bound", "handover")
def short_kernels_are_queued_ahead() -> TraceBuilder:
    """A hundred kernels of 10 us back to back, launched 2 us apart: the host is ahead."""
    t = step()
    for i in range(100):
        t.launch("k", at=2 * i * US, start=10 * i * US if i else 0, duration=10 * US)
    return t


@innocent("warm_up", host_wait=saves(200 * US))
def a_later_launch_is_slow() -> TraceBuilder:
    """A kernel is launched late for the second time, by a call of 100 ns: nothing is loaded, the host did something else for 200 us."""
    t = step()
    kernel(t, 0, 300, 0, "a")
    t.launch("a", at=499 * US + 900, start=500 * US, duration=500 * US)
    return t


@innocent("device_allocation")
def memory_is_taken_behind_a_busy_device() -> TraceBuilder:
    """cudaMalloc for 300 us behind a kernel of 1 ms."""
    t = step()
    kernel(t, 0, 1000, 0)
    t.call("cudaMalloc", 100 * US, 300 * US)
    return t


@innocent("host_wait", "launch_bound", "host_sync")
def the_profiler_flushes_its_buffers() -> TraceBuilder:
    """The profiler's own work holds the host for 300 us between two kernels: the program has nothing to mend."""
    t = step()
    kernel(t, 0, 500, 0, "a")
    t.add({"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0, "ts": t.ts(499 * US), "dur": 301, "args": {}})
    t.launch("b", at=800 * US, start=801 * US, duration=199 * US)
    return t


@innocent("host_wait", "python_wait")
def a_frame_of_the_profiler_runs_between_two_kernels() -> TraceBuilder:
    """`step` of the profiler holds the host from 1 to 8 ms between two kernels: that is no cost of the program."""
    t = step(10 * MS)
    kernel(t, 0, 1000, 0, "a")
    t.frame("torch/profiler/profiler.py(865): step", MS, 7 * MS)
    kernel(t, 8000, 10_000, 8000, "b")
    return t


@innocent("launch_bound", "host_wait")
def frames_of_the_profiler_fill_the_gaps_of_short_kernels() -> TraceBuilder:
    """Twelve kernels of 5 us every 100 us, each launched when it starts; between any two the profiler opens and closes ranges for 95 us."""
    t = step(1105 * US)
    for i in range(12):
        kernel(t, 100 * i, 100 * i + 5, 100 * i, f"k{i}")
        if i < 11:
            t.frame("torch/autograd/profiler.py(783): __enter__", (100 * i + 5) * US, 95 * US)
    return t


@innocent("exposed_communication")
def small_all_reduces_are_overlapped() -> TraceBuilder:
    """Twenty all-reduces of 20 us under a kernel of 1 ms."""
    t = step()
    kernel(t, 0, 1000, 0)
    for i in range(20):
        t.launch(NCCL, at=(2 + i) * US, start=(40 * i + 50) * US, duration=20 * US, stream=20)
    return t


@innocent("host_wait", "fusable_chains", "elementwise_above_limit", "input_wait")
def a_host_without_measured_limits() -> TraceBuilder:
    """A recording of the host whose limits nobody knows: two elementwise operators in a row."""
    t = step(100 * US, device="")
    t.op("aten::relu", US, 40 * US, shapes=[[MILLION]], types=["float"])
    t.op("aten::mul", 50 * US, 40 * US, shapes=[[MILLION], [MILLION]], types=["float", "float"])
    return t


@innocent("host_wait", "launch_bound")
def kernels_alone_are_no_program() -> TraceBuilder:
    """Twenty kernels with long gaps, and neither operators nor steps."""
    t = TraceBuilder()
    for i in range(20):
        t.kernel("k", 100 * i * US, 5 * US)
    return t


@innocent("python_wait", "operator_wait", "host_wait")
def the_next_batch_is_prepared_behind_the_device() -> TraceBuilder:
    """`preprocess` and `aten::max` run on the launching thread for 8 ms behind a kernel of 10 ms."""
    t = step(10 * MS)
    kernel(t, 0, 10_000, 0)
    outer = t.frame("train.py(80): main", 10 * US, 9 * MS)
    t.frame("data.py(12): preprocess", MS, 7 * MS, parent=outer)
    t.op("aten::max", 2 * MS, 4 * MS)
    return t


@innocent("python_wait", "operator_wait", host_wait=saves(9 * MS, never="watch.py"))
def another_thread_computes_while_the_host_is_late() -> TraceBuilder:
    """The only kernel is launched at 8.99 ms; a thread that launches nothing runs Python and `aten::max` until then."""
    t = step(10 * MS)
    t.frame("watch.py(5): poll", 0, 8 * MS, thread=77)
    t.op("aten::max", MS, 5 * MS, thread=77)
    kernel(t, 9_000, 10_000, 8_990)
    return t


@innocent("python_wait", host_wait=saves(9 * MS))
def python_waits_for_another_process() -> TraceBuilder:
    """The launching thread waits in `wait` for 7 ms: what it waits for is not recorded, and no Python to be made faster."""
    t = step(10 * MS)
    outer = t.frame("train.py(80): main", 0, 10 * MS)
    t.frame("/usr/lib/python3.11/threading.py(288): wait", MS, 7 * MS, parent=outer)
    kernel(t, 9_000, 10_000, 8_990)
    return t


@innocent("operator_wait", host_wait=saves(9 * MS))
def an_operator_launches_late() -> TraceBuilder:
    """`aten::max` runs for 8.995 ms before it launches its kernel: it computes on the device."""
    t = step(10 * MS)
    t.op("aten::max", 0, 9 * MS)
    kernel(t, 9_000, 10_000, 8_990)
    return t


@innocent("buffer_broadcasts", exposed_communication=saves(200 * US, never="broadcast_buffers"), host_wait=saves(5_800 * US, 5_810 * US))
def a_program_broadcasts_its_own_data() -> TraceBuilder:
    """Two steps broadcast for 200 us outside of DistributedDataParallel, and are late with their kernel for another reason."""
    t = trained(2)
    for n in range(2):
        sends(t, "broadcast", n * 10 * MS + MS, 200 * US)
    return t


def reductions(elements: int, *, training: bool) -> TraceBuilder:
    """A kernel of 100 us and 100 all-reduces of floats, 4 us each, one after another; a kernel fills the rest of the step of 1 ms."""
    t = step()
    t.op("aten::mm", 0, 2 * US)
    kernel(t, 0, 100, 0)
    for i in range(100):
        number = t.call("cudaLaunchKernel", 4 * US + 500 * i, 300, flow=True)
        t.collective("allreduce", (100 + 4 * i) * US, 4 * US, elements=elements, correlation=number)
    kernel(t, 500, 1000, 60)
    if training:
        t.op("autograd::engine::evaluate_function: MmBackward0", 70 * US, 5 * US, thread=9)
        t.forward_backward(0, 70 * US, backward_thread=9)
    return t


@innocent("tiny_all_reduces", exposed_communication=saves(400 * US))
def tensor_parallel_layers_reduce_little_data() -> TraceBuilder:
    """A hundred all-reduces of 4 KiB without a backward pass: each result is needed before the next one."""
    return reductions(1 << 10, training=False)


@innocent("tiny_all_reduces", exposed_communication=saves(400 * US))
def buckets_are_no_tiny_all_reduces() -> TraceBuilder:
    """A hundred all-reduces of 64 MiB in a training step: no latency."""
    return reductions(1 << 24, training=True)


# -- work that is as good as it gets -----------------------------------------------------------------------------------


def near(ns: float) -> int:
    """A duration 0.2 % above a limit, in whole ns."""
    return round(1.002 * ns)


def in_turn(calls: list[tuple[str, float, list[list[int]]]], **more: object) -> TraceBuilder:
    """Calls (name, limit in ns, sizes) that take 0.2 % more than their limits, one after another behind a first kernel."""
    t = filled(US + sum(near(ns) for _, ns, _ in calls))
    at = US
    for name, ns, shapes in calls:
        call(t, name, at, near(ns), shapes, **more)  # type: ignore[arg-type]
        at += near(ns)
    return t


@innocent("gemm_above_limit", "behind_the_best", "slower_kernel", "unfilled_tiles", "small_products", "plain_units", "misaligned_products")
def products_at_their_limit() -> TraceBuilder:
    """Four products in BF16 on Tensor Cores within 0.2 % of their limit."""
    ns = least_product(1408, 12 * 1536, 4096)
    return in_turn([("aten::mm", ns, [[1408, 4096], [4096, 12 * 1536]])] * 4, types=BF16, kernel=MMA, kernel_grid=(132, 12, 1))


@innocent("fp32_matrix")
def fp32_operands_in_tf32() -> TraceBuilder:
    """FP32 operands on a TF32 kernel at its limit: the cheaper type is in use already."""
    ns = least_product(1408, 12 * 1536, 4096, H100_TF32, 4)
    name = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(x)"
    return in_turn([("aten::mm", ns, [[1408, 4096], [4096, 12 * 1536]])] * 4, kernel=name, kernel_grid=(132, 12, 1))


@innocent("fp32_kernels")
def kernels_without_sizes_that_need_no_cheaper_type() -> TraceBuilder:
    """Without shapes: a product on Tensor Cores, one with a vector (memory bounds it), and a softmax over floats."""
    t = filled(301 * US)
    for i, name in enumerate((MMA, "void gemv2T_kernel_val<int, int, float, float>(x)", "void cunn_SoftMaxForward<4, float, float, float>(x)")):
        t.op("aten::mm", US + i * 100 * US, 20 * US)
        t.launch(name, at=US + i * 100 * US, start=US + i * 100 * US, duration=100 * US)
    return t


@innocent("fp32_kernels")
def fp32_kernels_on_a_device_of_unknown_limits() -> TraceBuilder:
    """The same sgemm without shapes on a device that no table knows: whether it has a faster type is unknown."""
    t = filled(101 * US, device="NVIDIA Prototype 1")
    t.op("aten::mm", US, 20 * US)
    t.launch("ampere_sgemm_128x64_nn", at=2 * US, start=US, duration=100 * US)
    return t


@innocent("plain_units", "small_products")
def a_product_with_a_vector() -> TraceBuilder:
    """A product with a vector on plain units: memory bounds it, and it reaches that."""
    return in_turn([("aten::mm", least_product(1, 16384, 16384), [[1, 16384], [16384, 16384]])], types=BF16, kernel="gemv2T_kernel_val")


@innocent("misaligned_products")
def odd_rows_that_are_fast_enough() -> TraceBuilder:
    """4095 elements between rows, and the product is within 0.2 % of its limit all the same."""
    return in_turn([("aten::mm", least_product(4096, 4095, 4096), [[4096, 4096], [4096, 4095]])], types=BF16, kernel="some_new_gemm")


@innocent("unfused_attention")
def a_classifier_is_no_attention() -> TraceBuilder:
    """Product, softmax, product of which the second does not take what the softmax makes; each at its limit."""
    big, wide = 1 << 16, 4096
    calls = [
        ("aten::mm", least_product(big, wide, 256, H100_TF32, 4), [[big, 256], [256, wide]]),
        ("aten::_softmax", least(2, big * wide), [[big, wide], [], []]),
        ("aten::mm", least_product(big, 256, 256, H100_TF32, 4), [[big, 256], [256, 256]]),
    ]
    return in_turn(calls, kernel="void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(x)", kernel_grid=FULL)


@innocent("fusable_chains", "elementwise_above_limit")
def a_loop_over_alike_tensors() -> TraceBuilder:
    """Three products with a number over three tensors of one size, each at its limit: nothing is handed on."""
    return in_turn([("aten::mul", least(2, LARGE), [[LARGE], []])] * 3)


@innocent("fusable_chains", "elementwise_above_limit", "other_above_limit")
def compiled_kernels_follow_each_other() -> TraceBuilder:
    """Kernels that torch.compile has written, one after another over one size: they are what is left after fusing."""
    t = filled(201 * US)
    for i in range(2):
        t.op(f"triton_poi_fused_add_{i}", 10 + 100 * i, 50)
        t.launch(f"triton_poi_fused_add_{i}", at=20 + 100 * i, start=(1 + 100 * i) * US, duration=100 * US, call_duration=20)
    return t


@innocent("fusable_chains")
def alike_kernels_on_two_streams() -> TraceBuilder:
    """relu and mul over one size on two streams, at their limits: neither reads what the other writes."""
    t = filled(US + near(least(2, LARGE)) + near(least(3, LARGE)))
    call(t, "aten::relu", US, near(least(2, LARGE)), [[LARGE]], kernel_stream=7)
    call(t, "aten::mul", US + near(least(2, LARGE)), near(least(3, LARGE)), [[LARGE], [LARGE]], kernel_stream=8)
    return t


@innocent("unfused_optimizer")
def a_fused_optimizer() -> TraceBuilder:
    """AdamW in one fused call, whose parameters are not recorded."""
    t = filled(101 * US)
    t.annotation("Optimizer.step#AdamW.step", 0, 2 * US)
    t.op("aten::_fused_adamw_", 100, 900)
    t.launch("multi_tensor_apply_kernel<FusedAdam>", at=200, start=US, duration=100 * US)
    return t


@innocent("unfused_optimizer", "fusable_chains")
def a_loss_uses_the_operators_of_an_optimizer() -> TraceBuilder:
    """sqrt and addcdiv over other sizes outside of every optimizer, at their limits."""
    return in_turn([("aten::sqrt", least(2, LARGE), [[LARGE]]), ("aten::addcdiv", least(4, 2 * LARGE), [[2 * LARGE]] * 3)])


@innocent("recompute")
def a_backward_pass_of_its_own() -> TraceBuilder:
    """A node of the backward pass runs a product that its forward pass ran too, as its gradient: its record has no number of its own."""
    shapes, ns = [[1408, 4096], [4096, 12 * 1536]], least_product(1408, 12 * 1536, 4096)
    t = in_turn([("aten::mm", ns, shapes)] * 2, types=BF16, kernel=MMA, kernel_grid=(132, 12, 1))
    second = next(e for e in t.events[::-1] if e["name"] == "aten::mm")
    at = int(float(str(second["ts"])) * 1000) - t.origin_ns
    t.op("autograd::engine::evaluate_function: MineBackward", at - 1, 60, sequence=1, forward_thread=1)
    return t


@innocent("layout_kernels")
def another_helper_of_cudnn() -> TraceBuilder:
    """A helper kernel before a convolution that scales, and changes no layout."""
    t = filled(140 * US)
    t.op("aten::cudnn_convolution", 0, 4_000)
    t.launch("void cudnn::ops::scalePackedTensor_kernel<float, float>(x)", at=100, start=US, duration=30 * US)
    t.launch("cutlass_80_tensorop_s1688fprop_optimized_tf32_128x128_16x4", at=1_000, start=31 * US, duration=109 * US)
    return t


@innocent("permuting_copies", "other_above_limit")
def a_copy_in_the_same_order() -> TraceBuilder:
    """A copy of 2**26 floats in the order that they have, at its limit."""
    return in_turn([("aten::copy_", least(2, LARGE), [[LARGE], [LARGE]])], strides=[[1], [1]])


@innocent("weight_casts")
def an_activation_is_cast() -> TraceBuilder:
    """A cast from FP32 to BF16 at its limit over a tensor that no product takes as its weight, and a product at its limit."""
    rows, ns = 1408, least_product(1408, 12 * 1536, 4096)
    cast = least(rows * 4096 * 6, 1, 1)
    t = filled(US + near(cast) + near(ns))
    t.op("aten::copy_", 0, 10, shapes=[[rows, 4096], [rows, 4096]], types=[BF16, "float"])
    t.launch("cast", at=1, start=US, duration=near(cast), call_duration=5)
    call(t, "aten::mm", US + near(cast), near(ns), [[rows, 4096], [4096, 12 * 1536]], types=BF16, kernel=MMA, kernel_grid=(132, 12, 1))
    return t


@innocent("channels_first", "fp32_matrix", "conv_above_limit", spec=CPU)
def images_in_nhwc_on_a_cpu() -> TraceBuilder:
    """A pooling over channels-last images on a CPU, at its limit of 104.9 us; without a convolution nothing is told of layouts."""
    t = step(105 * US, device="")
    t.op("aten::max_pool2d_with_indices", 0, 105 * US, shapes=[[8, 64, 32, 32]], types=["float"], strides=[[65536, 1, 2048, 64]])
    return t


@innocent("input_wait", "host_wait", handover=saves(18 * US))
def a_loader_waits_while_the_device_works_off_its_queue() -> TraceBuilder:
    """A batch is fetched all along, while ten queued kernels run with 2 us between any two: the device's own change."""
    t = step(998 * US)
    t.op("aten::relu", 0, 900 * US)
    for i in range(10):
        kernel(t, 100 * i, 100 * i + 98, max(100 * i - 52, 0))
    t.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 50 * US, 900 * US)
    return t


@innocent("misaligned_products", "plain_units", gemm_above_limit=saves(200 * US - least_product(4096, 4095, 4096)))
def odd_rows_that_are_as_good_as_others() -> TraceBuilder:
    """4095 elements between rows and 69 % of the limit: as good as most products with even sizes."""
    t = filled(201 * US)
    call(t, "aten::mm", US, 200 * US, [[4096, 4096], [4096, 4095]], types=BF16, kernel="some_new_gemm")
    return t


@innocent("attention_above_limit", "unfused_attention", "norm_above_limit")
def a_softmax_at_its_limit() -> TraceBuilder:
    """A softmax over 16384 x 4096 floats within 0.2 % of its limit, and nothing around it."""
    return in_turn([("aten::_softmax", least(2, LARGE), [[1 << 14, 1 << 12], [], []])])
