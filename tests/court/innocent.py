"""Look-alikes: recordings that resemble what a rule looks for, and of which nothing of the kind is true."""

from __future__ import annotations

from tb_sol_plugin.model.capture import Capture
from tests.court.case import MS, US, innocent, saves
from tests.court.copying import KIB, MIB, copied, moved
from tests.court.memory import ADAM, DP, GB, N, records, stage
from tests.court.products import BF16, FULL, MMA
from tests.court.products import least as least_product
from tests.court.waiting import NCCL, kernel
from tests.court.work import CPU, MILLION, least
from tests.support.copy_findings import steps
from tests.support.findings import H100_TF32, call, filled, step
from tests.support.memory_steps import trained
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


# -- copies that cost nothing, or that must be -------------------------------------------------------------------------


@innocent("copies_blocking_to_host", "copies_small_to_host", "host_sync")
def a_copy_waits_behind_earlier_kernels() -> TraceBuilder:
    """A blocking copy to the host waits for 900 us behind kernels: the GPU works all the while, and goes on after it."""
    t = steps(1)
    kernel(t, 0, 900, 0, "a")
    t.op("aten::to", 50 * US, 860 * US)
    t.copy("DtoH", 900 * US, 2 * US, bytes=MIB, dst="Pageable", call=(60 * US, 842 * US + 100))
    t.launch("b", at=902 * US + 200, start=902 * US + 400, duration=98 * US - 400)
    return t


@innocent("copies_small_to_host", "copies_blocking_to_host", "host_wait")
def a_copy_waits_for_work_before_the_window() -> TraceBuilder:
    """A blocking copy that starts at 94 of 100 ms, behind a kernel [70, 94) ms without a launch record: nobody knows what ran before."""
    t = steps(1, 100 * MS)
    t.launch("a", at=0, start=0, duration=5 * MS)
    t.op("aten::to", 3 * MS, 92 * MS)
    t.kernel("graph_kernel", 70 * MS, 24 * MS)
    t.copy("DtoH", 94 * MS, 2 * US, bytes=KIB, dst="Pageable", call=(4 * MS, 90 * MS + 3 * US))
    t.launch("b", at=94 * MS + 4 * US, start=94 * MS + 5 * US, duration=6 * MS - 5 * US)
    return t


@innocent("copies_exposed_HtoD", "exposed_copies", "copies_redundant_upload")
def the_next_batch_is_uploaded_behind_the_step() -> TraceBuilder:
    """Four steps that upload a pinned batch of one size on another stream, behind a kernel that fills the step."""
    t = steps(4)
    for n in range(4):
        kernel(t, 1000 * n, 1000 * n + 1000, max(1000 * n - 50, 0))
        moved(t, "HtoD", (1000 * n + 300) * US, 300 * US, 8 * MIB, host=(1000 * n + 20) * US, stream=20)
    return t


@innocent("copies_pageable_loading", "copies_exposed_HtoD")
def parameters_are_uploaded_before_the_steps() -> TraceBuilder:
    """A model goes to the device from pageable memory before the first of three steps: no step pays for it."""
    t = TraceBuilder()
    for i in range(4):
        t.op("aten::to", 200 * i * US, 150 * US)
        t.copy("HtoD", (200 * i + 10) * US, 100 * US, bytes=(8 + i) * MIB, src="Pageable", call=((200 * i + 5) * US, 120 * US))
    for n in range(3):
        t.step(n + 1, (n + 1) * MS, MS)
        t.launch("k", at=(n + 1) * MS, start=(n + 1) * MS + US, duration=999 * US)
    return t


@innocent("copies_redundant_upload")
def batches_have_one_size() -> TraceBuilder:
    """Four steps whose loader uploads 100 KiB each, 3 us in which nothing computes: new data every time."""
    t = steps(4)
    for n in range(4):
        z = 1000 * n
        t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", z * US, 20 * US)
        moved(t, "HtoD", (z + 500) * US, 3 * US, 100 * KIB, host=(z + 10) * US)
        kernel(t, z, z + 500, max(z - 50, 0))
        kernel(t, z + 503, z + 1000, z + 300)
    return t


@innocent("copies_ping_pong", "copies_tiny_DtoH", "copies_coalescable_DtoH")
def values_are_read_and_set() -> TraceBuilder:
    """Four copies of 8 B in turns, to the host and back, of 1 us each between kernels: values, no tensors."""
    t = steps(1)
    kernel(t, 0, 500, 0)
    for i in range(4):
        moved(t, ("DtoH", "HtoD")[i % 2], (500 + 101 * i) * US, US, 8, host=(10 + i) * US)
        kernel(t, 501 + 101 * i, 601 + 101 * i, 50 + i)
    kernel(t, 904, 1000, 60)
    return t


@innocent("copies_duplicate_copies", "copies_gradient_copies", "copies_graph_inputs")
def different_tensors_are_cloned() -> TraceBuilder:
    """Two clones of different sizes, 2 us each, hidden by a kernel on another stream."""
    t = steps(1)
    kernel(t, 0, 1000, 0, stream=9)
    copied(t, 500, 40, "aten::clone", "aten::copy_")
    copied(t, 540, 40, "aten::clone", "aten::copy_", size=2 * MIB)
    return t


@innocent("copies_tiny_HtoD", "copies_coalescable_HtoD")
def tiny_uploads_behind_a_kernel() -> TraceBuilder:
    """Forty uploads of 1000 B on another stream, behind a kernel that fills the step."""
    t = steps(1)
    kernel(t, 0, 1000, 0)
    for i in range(40):
        moved(t, "HtoD", (20 * i + 50) * US, 2_100, 1000, host=(5 + i) * US, stream=20)
    return t


# -- memory that is there for a reason ---------------------------------------------------------------------------------


@innocent("memory_leak")
def the_optimizer_makes_its_state_once() -> TraceBuilder:
    """Eight steps; in the first one the optimizer makes a state of 600,000 B and keeps it."""
    return trained([0] * 8, state=600_000)


@innocent("memory_leak")
def a_cache_fills_and_stops() -> TraceBuilder:
    """A cache grows in the first two of ten steps and is full then."""
    return trained([30_000, 30_000, *[0] * 8])


@innocent("memory_optimizer_unsharded")
def the_optimizer_is_sharded() -> Capture:
    """An eighth of Adam's state on each of 8 data parallel ranks."""
    parts = [ADAM[0], *((c, d, m, n // 8, b // 8) for c, d, m, n, b in ADAM[1:])]
    return records(parts, meta=DP, world=8, peak=5 * GB)


@innocent("memory_vocabulary_misplaced", "memory_vocabulary_undivided")
def a_head_lies_where_it_belongs() -> Capture:
    """The last of four stages holds the head, a half of the vocabulary on each of two tensor parallel ranks."""
    return stage(3, "lm_head", {"groups.tp": "0 of 2", "plan.vocab": "64000", "plan.hidden": "4096"})


@innocent("memory_reserved_above_use", "memory_gradients_kept", "memory_activations_recompute")
def the_allocator_holds_what_is_used() -> Capture:
    """2.2 GB reserved, 2 GB in use, all of them parameters, in eight iterations."""
    return records([("params", "bf16", "net", N, 2 * N)], meta={}, peak=2 * GB, reserved=22 * GB // 10, iterations=8)


@innocent("memory_one_module")
def modules_share_the_peak() -> TraceBuilder:
    """Four modules hold a quarter of the peak each."""
    t = TraceBuilder()
    for i in range(4):
        t.module(f"Linear_{i}", 1_000 * i, 900, module_id=i + 1)
        t.op("aten::mm", 1_000 * i + 100, 500)
        t.memory(1_000 * i + 200, 250, address=i + 1, allocated=250 * (i + 1), reserved=1000)
    return t

