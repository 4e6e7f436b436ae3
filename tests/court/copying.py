"""Copies: what blocks the host, what nothing hides, what is made twice, what is mostly latency."""

from __future__ import annotations

from tests.court.case import MS, US, guilty, saves
from tests.court.waiting import kernel
from tests.support.copy_findings import KIB, MIB, steps
from tests.support.trace_builder import TraceBuilder

ENDS = {"HtoD": ("Pinned", "Device"), "DtoH": ("Device", "Pinned")}
RATE = 10.0
"""Bytes per ns of a copy, after a latency of 2 us."""


def moved(t: TraceBuilder, direction: str, start: int, length: int, size: int, *, host: int = -1, **more: object) -> int:
    """A copy [start, start + length) ns from or to pinned memory, by a call of 300 ns at `host` (4 us before it); returns its end."""
    src, dst = ENDS.get(direction, ("Device", "Device"))
    t.copy(direction, start, length, bytes=size, src=src, dst=dst, call=(max(start - 4_000, 0) if host < 0 else host, 300), **more)  # type: ignore[arg-type]
    return start + length


# -- copies that block the host ----------------------------------------------------------------------------------------


def read(direction: str = "DtoH", *, size: int, operator: str, inner: str = "aten::copy_", dst: str = "Pageable") -> TraceBuilder:
    """A kernel until 410 us, a copy [410, 412) us whose call holds the host in [60, 420), the next kernel launched at 480 and run [500, 1000)."""
    t = steps(1)
    kernel(t, 0, 410, 0, "a")
    t.op(operator, 55 * US, 370 * US)
    t.op(inner, 56 * US, 368 * US)
    t.copy(direction, 410 * US, 2 * US, bytes=size, dst=dst, call=(60 * US, 360 * US))
    kernel(t, 500, 1000, 480, "b")
    return t


@guilty(copies_scalar_reads=saves(88 * US, says=".item()"))
def a_loss_is_read_in_every_step() -> TraceBuilder:
    """`.item()` reads 4 bytes: the GPU has no work in [412, 500) us."""
    return read(size=4, operator="aten::item", inner="aten::_local_scalar_dense")


@guilty(copies_scalar_reads=saves(88 * US, says="torch.where"))
def nonzero_asks_for_its_size() -> TraceBuilder:
    """`nonzero` reads how many there are; the way out is another one."""
    return read(size=4, operator="aten::nonzero")


@guilty(copies_small_to_host=saves(88 * US))
def a_small_result_drains_the_stream() -> TraceBuilder:
    """4 KiB to pageable memory."""
    return read(size=4 * KIB, operator="aten::to")


@guilty(copies_blocking_to_host=saves(88 * US))
def a_large_result_holds_the_host() -> TraceBuilder:
    """64 KiB to pageable memory."""
    return read(size=64 * KIB, operator="aten::to")


@guilty(copies_blocking_to_device=saves(30 * US, says="pinned already"), exposed_copies=saves(60 * US, optional=True))
def a_pinned_upload_is_synchronous() -> TraceBuilder:
    """A kernel until 90 us; a copy [90, 150) us by a synchronous call [20, 160); the next kernel launched at 170 and run from 180 on."""
    t = steps(1)
    kernel(t, 0, 90, 0, "a")
    t.copy("HtoD", 90 * US, 60 * US, bytes=MIB, src="Pinned", call=(20 * US, 140 * US), api="cudaMemcpy")
    kernel(t, 180, 1000, 170, "b")
    return t


@guilty(copies_blocking_sets=saves(98 * US, 98_200))
def unified_memory_is_set_by_the_host() -> TraceBuilder:
    """A synchronous set of unified memory, [195, 197) us, holds the host in [100, 200) while nothing runs; the next kernel comes at 200."""
    t = steps(1)
    kernel(t, 0, 100, 0, "a")
    number = t.call("cudaMemset", 100 * US, 100 * US, flow=True)
    t.memset(195 * US, 2 * US, bytes=1024, correlation=number, kind="Managed")
    t.launch("b", at=200 * US + 100, start=200 * US + 200, duration=800 * US - 200)
    return t


@guilty(copies_blocking_other=saves(11_200), exposed_copies=saves(50 * US, optional=True))
def memory_is_copied_within_the_host() -> TraceBuilder:
    """A copy within the host [310, 360) us by a call [300, 361) us; the GPU works until 300 and from 361 us on."""
    t = steps(1)
    kernel(t, 0, 300, 0, "a")
    t.copy("HtoH", 310 * US, 50 * US, bytes=4096, src="Pinned", dst="Pinned", call=(300 * US, 61 * US))
    t.launch("b", at=361 * US + 100, start=361 * US + 200, duration=639 * US - 200)
    return t


# -- the kind of memory, and what nothing hides ------------------------------------------------------------------------


@guilty(copies_pageable_loading=saves(400 * US, says="pin_memory=True"))
def batches_come_from_pageable_memory() -> TraceBuilder:
    """Three steps of 1 ms: a kernel [0, 600) us, then a batch of 8 MB from pageable memory until 1000 us, by a call before it."""
    t = steps(3)
    for n in range(3):
        z = n * 1000
        t.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", (z + 10) * US, 10 * US)
        kernel(t, z, z + 600, max(z - 50, 0))
        t.copy("HtoD", (z + 600) * US, 400 * US, bytes=8_000_000 + n, src="Pageable", call=((z + 580) * US, 20 * US))
    return t


@guilty(copies_pageable_loading=saves(4 * 100 * US / 6, 4 * (100 + 120) * US / 6, possible=True, says="once", never="pin_memory"))
def the_model_is_uploaded_in_the_first_step() -> TraceBuilder:
    """Six steps of 3 ms; in the first one four copies of 100 us from pageable memory, by calls of 120 us, move a model: later steps do not pay for it."""
    t = steps(6, 3 * MS)
    for i in range(4):
        t.op("aten::to", 200 * i * US, 150 * US)
        t.copy("HtoD", (200 * i + 10) * US, 100 * US, bytes=(8 + i) * MIB, src="Pageable", call=((200 * i + 5) * US, 120 * US))
    for n in range(6):
        kernel(t, 3000 * n + 901, 3000 * n + 3000, 3000 * n + 900)
        if n:
            kernel(t, 3000 * n, 3000 * n + 901, 3000 * n)
    return t


@guilty(copies_managed_copies=saves(40 * US))
def pages_of_unified_memory_move() -> TraceBuilder:
    """A copy [80, 120) us from unified memory between two kernels that were launched early."""
    t = steps(1)
    kernel(t, 0, 80, 0, "a")
    t.copy("HtoD", 80 * US, 40 * US, bytes=4096, src="Managed", call=(10 * US, 5 * US))
    kernel(t, 120, 1000, 20, "b")
    return t


def uncovered(direction: str) -> TraceBuilder:
    """A pinned copy of 200 us between two kernels; all is launched early."""
    t = steps(1)
    kernel(t, 0, 500, 0, "a")
    moved(t, direction, 500 * US, 200 * US, 2 * MIB, host=5 * US)
    kernel(t, 700, 1000, 10, "b")
    return t


@guilty(copies_exposed_HtoD=saves(200 * US, says="copy_stream"))
def a_large_upload_is_not_hidden() -> TraceBuilder:
    """2 MiB to the device."""
    return uncovered("HtoD")


@guilty(copies_exposed_DtoH=saves(200 * US))
def a_large_result_is_not_hidden() -> TraceBuilder:
    """2 MiB to the host."""
    return uncovered("DtoH")


@guilty(copies_exposed_PtoP=saves(200 * US))
def a_copy_between_devices_is_not_hidden() -> TraceBuilder:
    """2 MiB to another device."""
    return uncovered("PtoP")


# -- copies that are made twice ----------------------------------------------------------------------------------------


@guilty(copies_redundant_upload=saves(60 * US, possible=True, says="register_buffer"))
def a_mask_is_uploaded_in_every_step() -> TraceBuilder:
    """Four steps; a module uploads 100 KiB in each, [500, 560) us, while nothing computes."""
    t = steps(4)
    for n in range(4):
        z = n * 1000
        kernel(t, z, z + 500, max(z - 50, 0))
        t.module("Mask_0", (z + 100) * US, 100 * US, module_id=1)
        t.op("aten::to", (z + 110) * US, 50 * US)
        moved(t, "HtoD", (z + 500) * US, 60 * US, 100 * KIB, host=(z + 120) * US)
        kernel(t, z + 560, z + 1000, z + 300)
    return t


def turns(devices: tuple[int, int], length: int, between: int, more: int = 0) -> TraceBuilder:
    """Copies of 4 KiB to the host and back, `length` us each and kernels of `between` us between, all launched early.

    more: bytes by which those that come back are larger.
    """
    t = steps(1, devices=2)
    kernel(t, 0, 500, 0)
    at = 500
    for i in range(4 if devices == (0, 0) else 2):
        at = moved(t, ("DtoH", "HtoD")[i % 2], at * US, length * US, 4 * KIB + more * (i % 2), host=(10 + i) * US, device=devices[i % 2]) // US
        for d in dict.fromkeys(devices):
            t.launch("k", at=(50 + i) * US, start=at * US, duration=between * US, device=d)
        at += between
    for d in dict.fromkeys(devices):
        t.launch("k", at=60 * US, start=at * US, duration=(1000 - at) * US, device=d)
    return t


@guilty(copies_ping_pong=saves(80 * US, possible=True))
def a_tensor_goes_to_the_host_and_back() -> TraceBuilder:
    """Two round trips of one size in a step, four copies of 20 us."""
    return turns((0, 0), 20, 50)


@guilty(copies_through_host=saves(20 * US, 40 * US, possible=True))
def a_tensor_goes_to_another_device_by_the_host() -> TraceBuilder:
    """A copy of 20 us to the host from one device, and one of the same size to the other."""
    return turns((0, 1), 20, 50)


# -- copies inside of a device -----------------------------------------------------------------------------------------


def copied(t: TraceBuilder, at: int, length: int, *operators: str, size: int = MIB) -> None:
    """A copy inside of the device [at, at + length) us, launched at a tenth of that by a chain of operators."""
    for depth, name in enumerate(operators):
        t.op(name, at * US // 10 + 10 * depth, 1_000 - 20 * depth)
    t.copy("DtoD", at * US, length * US, bytes=size, call=(at * US // 10 + 10 * len(operators), 100))


@guilty(copies_duplicate_copies=saves(60 * US, possible=True))
def the_same_tensor_is_cloned_twice() -> TraceBuilder:
    """Two clones of one size, back to back, 30 us each."""
    t = steps(1)
    kernel(t, 0, 500, 0)
    copied(t, 500, 30, "aten::clone", "aten::copy_")
    copied(t, 530, 30, "aten::clone", "aten::copy_")
    kernel(t, 560, 1000, 60)
    return t


@guilty(copies_gradient_copies=saves(60 * US, possible=True, says="gradient_as_bucket_view"))
def gradients_are_copied_into_buckets() -> TraceBuilder:
    """Two copies of 30 us inside of AccumulateGrad under DistributedDataParallel."""
    t = steps(1)
    t.annotation("DistributedDataParallel.forward", 0, US)
    kernel(t, 0, 500, 0)
    node = "torch::autograd::AccumulateGrad"
    copied(t, 500, 30, f"autograd::engine::evaluate_function: {node}", node, "aten::copy_")
    kernel(t, 530, 800, 51)
    copied(t, 800, 30, f"autograd::engine::evaluate_function: {node}", node, "aten::copy_")
    kernel(t, 830, 1000, 82)
    return t


@guilty(copies_gradient_copies=saves(60 * US, says="gradient_as_bucket_view"))
def gradients_are_copied_out_of_buckets() -> TraceBuilder:
    """After its all-reduce DistributedDataParallel copies two gradients for 30 us each back from their bucket."""
    t = steps(1)
    kernel(t, 0, 500, 0)
    copied(t, 500, 30, "torch.distributed.ddp.reducer::copy_bucket_to_grad", "aten::copy_")
    kernel(t, 530, 800, 51)
    copied(t, 800, 30, "torch.distributed.ddp.reducer::copy_bucket_to_grad", "aten::copy_")
    kernel(t, 830, 1000, 82)
    return t


@guilty(copies_graph_inputs=saves(40 * US, possible=True))
def inputs_are_copied_to_where_a_graph_reads_them() -> TraceBuilder:
    """A compiled function copies for 40 us and then launches its graph."""
    t = steps(1)
    kernel(t, 0, 400, 0)
    copied(t, 400, 40, "CompiledFunction", "aten::copy_")
    number = t.call("cudaGraphLaunch", 50 * US, 300, flow=True)
    t.kernel("k", 440 * US, 560 * US, correlation=number)
    return t


# -- copies that are mostly latency ------------------------------------------------------------------------------------


def small(direction: str, count: int, size: int, gap: int) -> TraceBuilder:
    """`count` copies of 2 us + size / 10 ns with kernels of `gap` us between them (0: in a row); then three larger ones behind a kernel."""
    t = steps(1, 8 * MS)
    kernel(t, 0, 200, 0)
    at, length = 200 * US, 2 * US + round(size / RATE)
    for i in range(count):
        at = moved(t, direction, at, length, size, host=(2 + i) * US)
        if gap:
            t.launch("k", at=(2 + i) * US + 500, start=at, duration=gap * US)
            at += gap * US
    t.launch("k", at=190 * US, start=at, duration=8 * MS - at)
    for i, large in enumerate((256 * KIB, 8 * MIB, 32 * MIB)):
        moved(t, direction, 1500 * US + 1_000 * i * US, 2 * US + round(large / RATE), large, host=195 * US + 500 * i, stream=20)
    return t


def latencies(count: int, size: int) -> float:
    """ns: all latencies but one, and the bytes of all in one copy."""
    return count * 2_000 - (2_000 + count * size / RATE)


@guilty(copies_tiny_HtoD=saves(0.97 * latencies(96, 1000), 1.03 * latencies(96, 1000), possible=True))
def many_tiny_uploads() -> TraceBuilder:
    """96 uploads of 1000 B in a step, with other work between them."""
    return small("HtoD", 96, 1000, 10)


@guilty(copies_tiny_DtoH=saves(0.97 * latencies(96, 1000), 1.03 * latencies(96, 1000), possible=True))
def many_tiny_results() -> TraceBuilder:
    """96 copies of 1000 B to the host."""
    return small("DtoH", 96, 1000, 10)


@guilty(copies_tiny_DtoD=saves(0.97 * latencies(96, 1000), 1.03 * latencies(96, 1000), possible=True))
def many_tiny_copies_inside_of_the_device() -> TraceBuilder:
    """96 copies of 1000 B inside of the device."""
    return small("DtoD", 96, 1000, 10)


@guilty(copies_tiny_PtoP=saves(0.97 * latencies(96, 1000), 1.03 * latencies(96, 1000), possible=True))
def many_tiny_copies_between_devices() -> TraceBuilder:
    """96 copies of 1000 B to another device."""
    return small("PtoP", 96, 1000, 10)


LATENCIES = 59 * 2_000
REST = 60 * (2_000 + 100_000 / RATE) - LATENCIES


@guilty(copies_coalescable_HtoD=saves(0.97 * LATENCIES, 1.03 * LATENCIES, possible=True), exposed_copies=saves(0.97 * REST, 1.03 * REST, optional=True))
def uploads_in_a_row() -> TraceBuilder:
    """60 uploads of 100 kB in a row: 59 latencies of 2 us."""
    return small("HtoD", 60, 100_000, 0)


@guilty(copies_coalescable_DtoH=saves(0.97 * LATENCIES, 1.03 * LATENCIES, possible=True), exposed_copies=saves(0.97 * REST, 1.03 * REST, optional=True))
def results_in_a_row() -> TraceBuilder:
    """60 copies of 100 kB to the host in a row."""
    return small("DtoH", 60, 100_000, 0)


@guilty(copies_coalescable_DtoD=saves(0.97 * LATENCIES, 1.03 * LATENCIES, possible=True), exposed_copies=saves(0.97 * REST, 1.03 * REST, optional=True))
def copies_in_a_row_inside_of_the_device() -> TraceBuilder:
    """60 copies of 100 kB inside of the device in a row."""
    return small("DtoD", 60, 100_000, 0)


@guilty(copies_coalescable_PtoP=saves(0.97 * LATENCIES, 1.03 * LATENCIES, possible=True), exposed_copies=saves(0.97 * REST, 1.03 * REST, optional=True))
def copies_in_a_row_between_devices() -> TraceBuilder:
    """60 copies of 100 kB to another device in a row."""
    return small("PtoP", 60, 100_000, 0)
