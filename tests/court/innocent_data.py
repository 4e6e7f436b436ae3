"""Look-alikes in data: copies that cost nothing or that must be, memory that is there for a reason."""

from __future__ import annotations

from tb_sol_plugin.model.capture import Capture
from tests.court.case import MS, US, innocent, saves
from tests.court.copying import KIB, MIB, copied, moved, turns
from tests.court.memory import ADAM, DP, GB, N, records, stage
from tests.court.waiting import kernel
from tests.support.copy_findings import steps
from tests.support.memory_steps import trained
from tests.support.trace_builder import TraceBuilder

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
        kernel(t, z, z + 500, z)
        t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (z + 5) * US, 20 * US)
        moved(t, "HtoD", (z + 500) * US, 3 * US, 100 * KIB, host=(z + 10) * US)
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


@innocent("copies_blocking_to_device", "copies_blocking_sets", "copies_blocking_other", "copies_managed_copies")
def calls_that_block_behind_a_busy_device() -> TraceBuilder:
    """A synchronous upload, a set of unified memory and a copy from it, each behind a kernel that fills the step."""
    t = steps(1)
    kernel(t, 0, 1000, 0)
    t.copy("HtoD", 100 * US, 50 * US, bytes=MIB, src="Pinned", call=(50 * US, 110 * US), api="cudaMemcpy", stream=20)
    number = t.call("cudaMemset", 200 * US, 100 * US, flow=True)
    t.memset(295 * US, 2 * US, bytes=1024, correlation=number, kind="Managed", stream=20)
    t.copy("HtoD", 400 * US, 40 * US, bytes=4096, src="Managed", call=(380 * US, 70 * US), stream=20)
    return t


@innocent("copies_through_host", "copies_exposed_DtoH", "copies_exposed_PtoP", "copies_tiny_DtoD", "copies_tiny_PtoP", "copies_coalescable_DtoD",
          "copies_coalescable_PtoP")  # fmt: skip
def copies_of_all_directions_are_hidden() -> TraceBuilder:
    """Forty copies each inside of the device and to another one, a large result and one to another device, all behind a kernel of both."""
    t = steps(1, devices=2)
    kernel(t, 0, 1000, 0)
    kernel(t, 0, 1000, 0, device=1)
    for i in range(40):
        moved(t, "DtoD", (5 * i + 20) * US, 2_100, 1000, host=(2 + i) * US, stream=20)
        moved(t, "PtoP", (5 * i + 300) * US, 2_100, 1000, host=(50 + i) * US, stream=21)
    moved(t, "DtoH", 600 * US, 200 * US, 2 * MIB, host=100 * US, stream=22)
    moved(t, "PtoP", 810 * US, 150 * US, 3 * MIB, host=101 * US, stream=22)
    moved(t, "HtoD", 850 * US, 100 * US, 2 * MIB, host=102 * US, stream=22, device=1)
    return t


@innocent("copies_ping_pong", exposed_copies=saves(80 * US))
def results_and_inputs_of_other_sizes() -> TraceBuilder:
    """4 KiB to the host, 5 KiB to the device, twice, 20 us each without other work: nothing comes back."""
    return turns((0, 0), 20, 50, KIB)


@innocent("copies_through_host", exposed_copies=saves(20 * US, 40 * US, optional=True))
def devices_that_exchange_nothing() -> TraceBuilder:
    """4 KiB from one device to the host, and 5 KiB to another device."""
    return turns((0, 1), 20, 50, KIB)


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


@innocent("memory_pinned_unused")
def batches_are_pinned_and_copied() -> TraceBuilder:
    """Two steps pin 128 MiB each and upload it, hidden behind a kernel."""
    t = steps(2)
    for n in range(2):
        z = 1000 * n
        kernel(t, z, z + 1000, max(z - 50, 0))
        t.op("aten::_pin_memory", (z + 10) * US, 50 * US, shapes=[[128 << 20]], types=["unsigned char"])
        moved(t, "HtoD", (z + 100) * US, 800 * US, 128 * MIB, host=(z + 70) * US, stream=20)
        t.memory((z + 20) * US, 1 << 30, address=n + 1, allocated=(n + 1) << 30, reserved=2 << 30)
        t.memory((z + 900) * US, -(1 << 30), address=n + 1, allocated=n << 30, reserved=2 << 30)
    return t
