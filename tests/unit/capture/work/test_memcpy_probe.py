"""What a copy is, which way it goes and whether the host waits: on tensors that only say where they are, and on real ones of the host."""

from __future__ import annotations

import itertools
import threading

import pandas as pd
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

from tb_sol_plugin.capture.report.console import sentence  # noqa: E402
from tb_sol_plugin.capture.work import copies  # noqa: E402
from tb_sol_plugin.capture.work.copies import MOVERS, CopyCounts, Crossing, crossing, in_one_piece  # noqa: E402
from tb_sol_plugin.capture.work.memcpy_probe import MemcpyProbe  # noqa: E402

WAITS, RUNS_ON, UNSURE = 1, 0, -1
ELEMENTS = 6


def fake(device: str, *, dtype=torch.float32, shape=(2, 3)):
    """A tensor of a device that need not be there: it knows its place, sizes and types."""
    with FakeTensorMode():
        return torch.empty(shape, dtype=dtype, device=device)


def no(_):
    return False


def yes(_):
    return True


# --- One copy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "dst", "non_blocking", "pinned", "expected"),
    [
        # from the host, asked to wait: torch waits for the copy, whatever the memory
        ("cpu", "cuda:1", False, no, Crossing("HtoD", "Pageable", "Device", -1, 1, False, WAITS, 24)),
        ("cpu", "cuda:0", False, yes, Crossing("HtoD", "Pinned", "Device", -1, 0, False, WAITS, 24)),
        # not asked to wait: pageable memory makes it wait all the same
        ("cpu", "cuda:0", True, no, Crossing("HtoD", "Pageable", "Device", -1, 0, True, WAITS, 24)),
        ("cpu", "cuda:0", True, yes, Crossing("HtoD", "Pinned", "Device", -1, 0, True, RUNS_ON, 24)),
        ("cuda:0", "cpu", False, yes, Crossing("DtoH", "Device", "Pinned", 0, -1, False, WAITS, 24)),
        ("cuda:0", "cpu", True, no, Crossing("DtoH", "Device", "Pageable", 0, -1, True, WAITS, 24)),
        ("cuda:0", "cpu", True, yes, Crossing("DtoH", "Device", "Pinned", 0, -1, True, RUNS_ON, 24)),
        # within and between devices the host goes on; within the host it copies itself
        ("cuda:0", "cuda:0", False, no, Crossing("DtoD", "Device", "Device", 0, 0, False, RUNS_ON, 24)),
        ("cuda:0", "cuda:3", False, no, Crossing("PtoP", "Device", "Device", 0, 3, False, RUNS_ON, 24)),
        ("cpu", "cpu", False, no, Crossing("HtoH", "Pageable", "Pageable", -1, -1, False, RUNS_ON, 24)),
        # how other devices treat pageable memory is not known; that they wait when told to is
        ("cpu", "mps", True, no, Crossing("HtoD", "Pageable", "Device", -1, 0, True, UNSURE, 24)),
        ("cpu", "mps", False, no, Crossing("HtoD", "Pageable", "Device", -1, 0, False, WAITS, 24)),
    ],
)
def test_direction_kinds_and_waiting(src, dst, non_blocking, pinned, expected):
    # GIVEN 6 elements of 4 bytes at one place, and room for them at another
    # WHEN one is copied over the other, THEN 24 bytes cross, and the host waits as CUDA's rules have it
    assert crossing(fake(src), fake(dst), non_blocking, pinned) == expected


@pytest.mark.parametrize(
    ("src", "dst", "non_blocking", "each"),
    [
        # torch converts on the host, so what crosses is what the device gets, or what it had
        (("cpu", torch.float32), ("cuda", torch.float16), False, 2),
        (("cuda", torch.float16), ("cpu", torch.float32), False, 2),
        (("cuda", torch.float64), ("cpu", torch.float32), False, 8),
        # unless non_blocking, which is when the device converts
        (("cpu", torch.float32), ("cuda", torch.float16), True, 4),
        (("cuda", torch.float16), ("cpu", torch.float32), True, 4),
        (("cuda", torch.float64), ("cpu", torch.float32), True, 4),
    ],
)
def test_a_conversion_on_the_way_moves_the_bytes_that_cross(src, dst, non_blocking, each):
    found = crossing(fake(src[0], dtype=src[1]), fake(dst[0], dtype=dst[1]), non_blocking, no)
    assert found.bytes == ELEMENTS * each


def test_a_conversion_between_devices_has_no_known_size():
    assert crossing(fake("cuda:0"), fake("cuda:1", dtype=torch.float16), False, no).bytes == -1
    assert crossing(fake("cpu"), fake("mps", dtype=torch.float16), False, no).bytes == -1


def test_pinned_memory_that_cannot_be_copied_in_one_piece_goes_through_a_pageable_buffer():
    # GIVEN pinned memory whose elements do not lie in the order of the device's
    host, device = fake("cpu", shape=(3, 2)).t(), fake("cuda")
    assert not host.is_contiguous() and device.is_contiguous()
    # WHEN it is copied without waiting, THEN torch first makes a copy in pageable memory, for which the host waits
    assert crossing(host, device, True, yes) == Crossing("HtoD", "Pageable", "Device", -1, 0, True, WAITS, 24)
    # AND a conversion that the host does is such a copy too; one that the device does is not
    half = fake("cuda", dtype=torch.float16)
    assert crossing(fake("cpu"), half, False, yes).src_kind == "Pageable"
    assert crossing(fake("cpu"), half, True, yes).src_kind == "Pinned"
    # AND to the host likewise: what it converts it gets in a buffer
    assert crossing(half, fake("cpu"), False, yes).dst_kind == "Pageable"
    assert crossing(half, fake("cpu"), True, yes).dst_kind == "Pinned"
    assert crossing(device, host, True, yes).dst_kind == "Pageable"


def test_one_value_that_fills_a_larger_tensor_is_repeated_before_it_crosses():
    assert crossing(fake("cpu", shape=(1, 3)), fake("cuda"), False, no).bytes == 24


def test_layouts_decide_between_the_copy_engine_and_a_kernel():
    whole, turned = fake("cuda"), fake("cuda", shape=(3, 2)).t()
    assert crossing(whole, fake("cuda"), False, no).direction == "DtoD"
    assert crossing(turned, whole, False, no).direction == "copy kernel"
    # AND two that are turned alike have no gaps, and lie in one order
    assert crossing(turned, fake("cuda", shape=(3, 2)).t(), False, no).direction == "DtoD"
    # AND two that have the same gaps do not lie in one piece
    with FakeTensorMode():
        gaps = [torch.empty_strided((2, 3), (4, 1), device="cuda") for _ in range(2)]
    assert crossing(*gaps, False, no).direction == "copy kernel"


def test_in_one_piece_is_what_a_look_at_every_element_says():
    # GIVEN all ways to lay 2x1x3 out, THEN the answer is that of comparing the places of all elements, and that none is left out
    shapes = [torch.empty(2, 1, 3).permute(*order) for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0))]
    shapes += [torch.empty(2, 2, 3)[:, :1], torch.empty(4, 1, 3)[::2], torch.empty(2, 1, 1).expand(2, 1, 3)]
    same = 0
    for a in shapes:
        for b in shapes:
            if a.shape == b.shape:
                every = list(itertools.product(*map(range, a.shape)))
                places = [[sum(i * s for i, s in zip(at, t.stride(), strict=True)) for at in every] for t in (a, b)]
                expected = places[0] == places[1] and sorted(places[0]) == list(range(a.numel()))
                assert in_one_piece(a, b) == expected
                same += expected
    assert 0 < same < len(shapes) ** 2


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (("cpu", torch.float32, (0, 3)), ("cuda", torch.float32, (0, 3))),  # nothing to move
        (("cuda", torch.float32, (2, 3)), ("cuda", torch.float16, (2, 3))),  # a conversion in one memory computes
        (("cpu", torch.float32, (2, 3)), ("cpu", torch.int64, (2, 3))),
        (("meta", torch.float32, (2, 3)), ("cpu", torch.float32, (2, 3))),  # no memory at all
        (("cuda", torch.float32, (2, 3)), ("meta", torch.float32, (2, 3))),
    ],
)
def test_what_moves_nothing_is_no_copy(src, dst):
    assert crossing(*(fake(d, dtype=t, shape=s) for d, t, s in (src, dst)), False, no) is None


def test_a_tensor_copied_over_itself_moves_nothing():
    one = fake("cuda")
    assert crossing(one, one, False, no) is None


def test_a_sparse_tensor_has_no_size_that_its_shape_tells():
    sparse = torch.eye(3).to_sparse()
    found = crossing(sparse, sparse.clone(), False, no)
    assert (found.direction, found.bytes) == ("HtoH", -1)


# --- Operators --------------------------------------------------------------------------------------------------------


def moves(op: str, args, kwargs=None, result=None, pinned=no):
    return [(c.direction, c.src_kind, c.dst_kind, c.blocks, c.bytes) for c in MOVERS[f"aten::{op}"](args, kwargs, result, pinned)]


READ = ("DtoH", "Device", "", WAITS, -1)


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "result", "expected"),
    [
        ("_local_scalar_dense", ["cuda"], {}, 1.0, [("DtoH", "Device", "", WAITS, 4)]),
        ("_local_scalar_dense", ["cpu"], {}, 1.0, []),
        ("nonzero", ["cuda"], {}, None, [READ]),
        ("nonzero", ["cpu"], {}, None, []),
        ("equal", ["cuda", "cuda"], {}, True, [READ]),
        ("repeat_interleave", ["cuda"], {}, None, [READ]),
        ("repeat_interleave", ["cuda"], {"output_size": 9}, None, []),
        ("clone", ["cuda"], {}, "cuda", [("DtoD", "Device", "Device", RUNS_ON, 24)]),
        ("_to_copy", ["cpu"], {"device": "cuda", "non_blocking": True}, "cuda", [("HtoD", "Pageable", "Device", WAITS, 24)]),
        ("_to_copy", ["cuda"], {"dtype": torch.float32}, "cuda", [("DtoD", "Device", "Device", RUNS_ON, 24)]),
        ("copy_", ["cuda", "cpu"], {"non_blocking": False}, "cuda", [("HtoD", "Pageable", "Device", WAITS, 24)]),
        ("copy_", ["cuda", "cpu", True], {}, "cuda", [("HtoD", "Pageable", "Device", WAITS, 24)]),
        ("_copy_from", ["cpu", "cuda"], {}, "cuda", [("HtoD", "Pageable", "Device", WAITS, 24)]),
        ("_pin_memory", ["cpu"], {}, "cpu", [("HtoH", "Pageable", "Pinned", RUNS_ON, 24)]),
    ],
)
def test_copies_of_a_call(op, args, kwargs, result, expected):
    tensors = [fake(a) if isinstance(a, str) else a for a in args]
    assert moves(op, tensors, kwargs, fake(result) if isinstance(result, str) else result) == expected


def test_a_list_of_copies_is_as_many_copies():
    # GIVEN two tensors of the host and one of the device, copied over three of the device by one call
    over = [fake("cuda"), fake("cuda"), fake("cuda")]
    found = moves("_foreach_copy_", [over, [fake("cpu"), fake("cuda"), fake("cpu")], True])
    # THEN two cross, and the one within the device is done by a kernel
    assert found == [
        ("HtoD", "Pageable", "Device", WAITS, 24), ("copy kernel", "Device", "Device", RUNS_ON, 24), ("HtoD", "Pageable", "Device", WAITS, 24),
    ]  # fmt: skip


def test_indices_of_the_host_go_to_the_device_and_masks_are_counted_by_the_host():
    table, rows = fake("cuda"), fake("cpu", dtype=torch.int64, shape=(5,))
    mask, device_rows = fake("cuda", dtype=torch.bool), fake("cuda", dtype=torch.int64, shape=(5,))
    assert moves("index", [table, [rows]]) == [("HtoD", "Pageable", "Device", WAITS, 40)]
    assert moves("index", [table, [mask]]) == [READ]
    assert moves("index", [table, [None, device_rows]]) == []
    assert moves("index", [fake("cpu"), [rows]]) == []
    # AND writing one value under a mask fills it in, without asking how many there are; writing several does not
    assert moves("index_put_", [table, [mask], fake("cpu", shape=())]) == []
    assert moves("index_put_", [table, [mask], fake("cuda", shape=(4,))]) == [READ]


# --- A probe ------------------------------------------------------------------------------------------------------------


def counted(probe):
    return {(row.operator.removeprefix("aten::"), row.direction): (row.count, row.bytes) for row in probe.table()}


def test_only_what_moves_bytes_is_counted():
    # GIVEN 1000 floats of the host
    x = torch.ones(1000)
    with MemcpyProbe() as probe:
        y = x.clone()
        y.copy_(x)
        y[:100].copy_(x[:100])
        # views, `to` without anything to do, conversions, sets, reading a number of the host, copying nothing
        x.view(10, 100).t()[:, 1:]
        x.to("cpu").contiguous()
        x.half()
        y.zero_()
        y.fill_(2)
        y.sum().item()
        x[:0].clone()
    # THEN three copies of 4000, 4000 and 400 bytes stay
    assert counted(probe) == {("clone", "HtoH"): (1, 4000), ("copy_", "HtoH"): (2, 4400)}
    row = probe.table()[0]
    assert (row.src_kind, row.dst_kind, row.src_device, row.dst_device, row.blocking) == ("Pageable", "Pageable", -1, -1, 0)
    assert row.call_ns > 0 and not probe.notes
    assert pd.DataFrame(probe.table())["bytes"].sum() == 8400


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class Layer(nn.Module):
    def forward(self, x):
        return Keeps.apply(x.clone())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(), Layer()

    def forward(self, x):
        return self.second(self.first(x))


def test_copies_carry_the_module_and_the_phase_they_are_made_in_backward_too():
    net, x = Net(), torch.ones(8, requires_grad=True)
    probe = MemcpyProbe(net)
    with probe:
        with probe.phase("step"), probe.phase("forward"):
            out = net(x)
        with probe.phase("backward"):
            out.sum().backward()
    # THEN each layer clones 32 bytes in forward, and 32 in the backward pass, which belongs to the layer whose forward it undoes
    found = {(row.module, row.phase): (row.count, row.bytes) for row in probe.table() if row.module}
    assert found == {
        ("first", "step/forward"): (1, 32), ("second", "step/forward"): (1, 32),
        ("first", "backward"): (1, 32), ("second", "backward"): (1, 32),
    }  # fmt: skip


def test_blocks_add_up_and_clear_forgets():
    x, probe = torch.ones(4), MemcpyProbe()
    for _ in range(3):
        with probe:
            x.clone()
    assert counted(probe) == {("clone", "HtoH"): (3, 48)}
    x.clone()  # outside of a block
    assert counted(probe) == {("clone", "HtoH"): (3, 48)}
    probe.clear()
    assert probe.table() == []


def test_the_summary_lists_directions_in_a_fixed_order(monkeypatch):
    # GIVEN copies as a device would make them
    probe = MemcpyProbe()
    mb = 1 << 20
    rows = [
        ("aten::_to_copy", "HtoD", "Pageable", "Device", -1, 0, False, -1, -1, -1, 2, 8 * mb, 0, 2, 10),
        ("aten::_to_copy", "DtoH", "Device", "Pageable", 0, -1, False, -1, -1, -1, 1, 4 * mb, 0, 1, 10),
        ("aten::_local_scalar_dense", "DtoH", "Device", "", 0, -1, False, -1, -1, -1, 3, 0, 3, 3, 10),
        ("aten::clone", "DtoD", "Device", "Device", 0, 0, False, -1, -1, -1, 1, 4 * mb, 0, 0, 10),
        ("aten::clone", "copy kernel", "Device", "Device", 0, 0, False, -1, -1, -1, 1, mb, 0, 0, 10),
    ]
    probe._add(rows)
    # THEN those within the device are one, whatever does them
    assert probe.summary().splitlines() == [
        "Memory copy operations detected: 8",
        "- HostToDevice: 2 operations, total 8.0 MB",
        "- DeviceToHost: 4 operations, total 4.0 MB, 3 carry no size",
        "- DeviceToDevice: 2 operations, total 5.0 MB",
    ]
    assert "- HostToDevice: 2 operations, total 8.4 MB" in probe.summary("mb")  # 2^23 / 10^6 = 8.39
    probe.clear()
    probe._add([("aten::_local_scalar_dense", "DtoH", "Device", "", 0, -1, False, -1, -1, -1, 1, 8, 0, 1, 10)])
    assert probe.summary("mb").endswith("- DeviceToHost: 1 operations, total 0.0000080 MB")
    assert MemcpyProbe().summary() == "Memory copy operations detected: 0"


def test_results_are_the_same_and_nothing_stays_behind():
    def train(probe):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            with probe or threading.Lock():
                model(torch.randn(4, 8).clone()).square().mean().backward()
                optimizer.step()
        return model

    functions = {f: getattr(torch, f) for f in ("matmul", "softmax", "embedding")} | {"linear": nn.functional.linear}
    plain, probe = train(None), MemcpyProbe()
    watched = train(probe)
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True))
    assert probe.table() and not probe.notes
    assert all(getattr(torch if f != "linear" else nn.functional, f) is was for f, was in functions.items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in watched.modules())


def test_a_probe_inside_another_counts_nothing_and_says_so():
    outer, inner, x = MemcpyProbe(), MemcpyProbe(), torch.ones(4)
    with outer, inner:
        x.clone()
    assert counted(outer) == {("clone", "HtoH"): (1, 16)} and inner.table() == []
    assert any("another dispatch mode" in text for text in inner.notes)


def test_an_exception_passes_through_and_what_was_counted_stays():
    probe = MemcpyProbe()
    with pytest.raises(ZeroDivisionError), probe:
        torch.ones(4).clone()
        raise ZeroDivisionError
    assert counted(probe) == {("clone", "HtoH"): (1, 16)}


def test_a_copy_that_cannot_be_read_is_counted_as_lost(monkeypatch):
    def broken(tensor):
        raise RuntimeError("no")

    monkeypatch.setattr(copies, "is_pinned", broken)
    with MemcpyProbe() as probe:
        assert torch.ones(4).clone().sum() == 4
    assert probe.table() == [] and probe.notes == {"a copy could not be read: RuntimeError": 1}


def test_tensors_without_data_move_nothing():
    with FakeTensorMode(), MemcpyProbe() as probe:
        torch.empty(4, device="cuda").cpu()
    assert probe.table() == []


def test_other_threads_are_not_seen():
    def work():
        torch.ones(4).clone()

    with MemcpyProbe() as probe:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert probe.table() == []


def test_too_many_sorts_of_copies_are_lost_and_counted(monkeypatch):
    monkeypatch.setattr(copies, "MOST_KEYS", 2)
    counts = CopyCounts(no)
    for module in range(5):
        counts.add("aten::clone", MOVERS["aten::clone"], [torch.ones(2)], None, torch.ones(2), 7, (module, -1, -1))
    assert len(counts.rows) == 2 and counts.lost == {"too many distinct copies": 3}


def test_the_time_of_one_call_is_shared_out_among_its_copies():
    counts = CopyCounts(no)
    over, src = [torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(3)]
    counts.add("aten::_foreach_copy_", MOVERS["aten::_foreach_copy_"], [over, src], {}, None, 11, (-1, -1, -1))
    (row,) = counts.records(timed=True)
    assert (row[10], row[11], row[14]) == (2, 20, 11)
    assert counts.records(timed=False)[0][14] is None


def test_a_compiled_model_is_counted_eagerly_and_not_timed():
    class Two(nn.Module):
        def forward(self, x):
            return x.clone() + 1

    model = torch.compile(Two(), backend="eager")
    model(torch.ones(4))
    with MemcpyProbe(model) as probe:
        model(torch.ones(4))
    assert counted(probe) == {("clone", "HtoH"): (1, 16)} and probe.table()[0].call_ns is None


def test_a_report_says_what_crosses():
    # GIVEN 12 copies to the device, 3 of them from pageable memory, and 2 numbers read off it
    mb = 10**6
    rows = [
        ("aten::_to_copy", "HtoD", "Pageable", "Device", -1, 0, False, -1, -1, -1, 3, 12 * mb, 0, 3, 1),
        ("aten::_to_copy", "HtoD", "Pinned", "Device", -1, 0, True, -1, -1, -1, 9, 36 * mb, 0, 0, 1),
        ("aten::_local_scalar_dense", "DtoH", "Device", "", 0, -1, False, -1, -1, -1, 2, 8, 0, 2, 1),
        ("aten::clone", "DtoD", "Device", "Device", 0, 0, False, -1, -1, -1, 5, 8, 0, 0, 1),
    ]
    said = "Copies: 12 to the device (48.0 MB, 3 from pageable memory), 2 to the host (2 numbers read); the host waits for 5."
    assert sentence(rows) == said
    # AND copies within one memory are not worth a word
    assert sentence(rows[-1:]) == "" == sentence([])
    assert sentence(rows[1:2]) == "Copies: 9 to the device (36.0 MB); the host waits for none."


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_copies_without_gradients_are_the_same(mode):
    # GIVEN a mode in which whole operators arrive that are made of others
    with mode(), MemcpyProbe() as probe:
        x = torch.ones(4, 8)
        x.clone()
        x.t().contiguous()
        torch.empty(4, 8).copy_(x)
        x.reshape(8, 4)
        x.t().reshape(-1)
        x.to(torch.float32, copy=True)
    # THEN 128 bytes each: two clones that were asked for, one that `reshape` needs, a copy, and one that `to` was told to make
    assert counted(probe) == {("clone", "HtoH"): (3, 384), ("copy_", "HtoH"): (1, 128), ("_to_copy", "HtoH"): (1, 128)}
