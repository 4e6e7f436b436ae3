"""Bytes of the vector models against tensors that exist: torch runs each operation on the CPU, its profiler records it.

The truth is counted, not derived: the memory places that the inputs occupy (each once, by walking their strides) plus the bytes of
the tensors that come out. Where a model follows another rule (rows of a table, a mask, statistics), the case names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tb_sol_plugin.cost import Inputs, estimate

torch = pytest.importorskip("torch", reason="runs operations with PyTorch")
F = torch.nn.functional


class Case(NamedTuple):
    """run: the operation over `inputs`. skip: inputs that are not read. more: bytes beside inputs and results."""

    name: str
    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    skip: tuple[int, ...] = ()
    more: int = 0


def places(x: Any) -> int:
    """Bytes of the distinct elements of a tensor, by walking every index."""
    offsets = {0}
    for size, stride in zip(x.shape, x.stride(), strict=True):
        offsets = {o + i * stride for o in offsets for i in range(size)}
    return len(offsets if x.numel() else ()) * x.element_size()


def results(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in results(v)] if isinstance(value, tuple | list) else []


def f(*shape: int, dtype: Any = None) -> Any:
    return torch.rand(*shape, dtype=dtype or torch.float32)


def whole(high: int, *shape: int) -> Any:
    return torch.randint(0, high, shape)


def cases() -> list[Case]:
    x, y, row = f(4, 6, 8), f(4, 6, 8), f(8)
    image, half = f(2, 3, 8, 10), f(4, 8, dtype=torch.bfloat16)
    expanded, mask = f(4, 1).expand(4, 8), f(4, 8) > 0.5
    aten = torch.ops.aten
    table = [
        Case("aten::add", torch.add, (x, y)),
        Case("aten::add", torch.add, (x, row)),
        Case("aten::mul", torch.mul, (f(4, 1, 8), f(6, 1))),
        Case("aten::mul", torch.mul, (expanded, f(4, 8))),
        Case("aten::sub", torch.sub, (half, half)),
        Case("aten::div", torch.div, (whole(9, 4, 8), whole(9, 4, 8) + 1)),
        Case("aten::eq", torch.eq, (x, y)),
        Case("aten::logical_and", torch.logical_and, (mask, mask)),
        Case("aten::pow", lambda a: a.pow(2), (x,)),
        Case("aten::exp", torch.exp, (x,)),
        Case("aten::exp", torch.exp, (whole(3, 4, 8),)),
        Case("aten::sigmoid", torch.sigmoid, (half,)),
        Case("aten::gelu", F.gelu, (x,)),
        Case("aten::silu", F.silu, (x.transpose(0, 2),)),
        Case("aten::clamp", lambda a: a.clamp(0.1, 0.9), (x,)),
        Case("aten::clamp", torch.clamp, (x, f(8) * 0, f(8) + 1)),
        Case("aten::lerp", torch.lerp, (x, y, f(4, 6, 8))),
        Case("aten::addcmul", torch.addcmul, (x, y, row)),
        Case("aten::where", torch.where, (mask, f(4, 8), f(8))),
        Case("aten::masked_fill", lambda a, m: a.masked_fill(m, 0.0), (f(4, 8), mask)),
        Case("aten::bitwise_not", torch.bitwise_not, (mask,)),
        Case("aten::ne", torch.ne, (x, y)),
        Case("aten::threshold_backward", lambda g, a: aten.threshold_backward(g, a, 0), (x, y)),
        Case("aten::gelu_backward", lambda g, a: aten.gelu_backward(g, a), (x, y)),
        Case("aten::glu", lambda a: F.glu(a, -1), (x,)),
        Case("aten::glu_backward", lambda g, a: aten.glu_backward(g, a, -1), (f(4, 6, 4), x)),
        Case("aten::native_dropout", lambda a: aten.native_dropout(a, 0.5, True), (x,)),
        Case("aten::mse_loss", F.mse_loss, (x, y)),
        Case("aten::mse_loss", lambda a, b: F.mse_loss(a, b, reduction="none"), (x, y)),
        Case("aten::smooth_l1_loss", F.smooth_l1_loss, (x, y)),
        Case("aten::binary_cross_entropy", F.binary_cross_entropy, (x, y)),
        Case("aten::mse_loss_backward", lambda g, a, b: aten.mse_loss_backward(g, a, b, 1), (torch.ones(()), x, y)),
        Case("aten::sum", torch.sum, (x,)),
        Case("aten::sum", lambda a: a.sum(1), (x,)),
        Case("aten::sum", lambda a: a.sum((0, -1), keepdim=True), (x,)),
        Case("aten::sum", torch.sum, (whole(9, 4, 8).int(),)),
        Case("aten::sum", lambda a: a.sum(0, dtype=torch.float64), (x,)),
        Case("aten::mean", lambda a: a.mean(-1, keepdim=True), (x,)),
        Case("aten::mean", torch.mean, (expanded,)),
        Case("aten::prod", lambda a: a.prod(1), (x,)),
        Case("aten::prod", torch.prod, (x,)),
        Case("aten::amax", lambda a: a.amax((0, 1)), (x,)),
        Case("aten::max", torch.max, (x,)),
        Case("aten::max", lambda a: a.max(1), (x,)),
        Case("aten::maximum", torch.maximum, (x, y)),
        Case("aten::argmax", lambda a: a.argmax(1), (x,)),
        Case("aten::argmax", torch.argmax, (x,)),
        Case("aten::any", lambda a: a.any(1), (mask,)),
        Case("aten::all", torch.all, (mask,)),
        Case("aten::var", lambda a: a.var(1), (x,)),
        Case("aten::std", torch.std, (x,)),
        Case("aten::var_mean", lambda a: torch.var_mean(a, 1), (x,)),
        Case("aten::logsumexp", lambda a: a.logsumexp(1), (x,)),
        Case("aten::linalg_vector_norm", lambda a: torch.linalg.vector_norm(a, 2, 1), (x,)),
        Case("aten::count_nonzero", torch.count_nonzero, (x,)),
        Case("aten::cumsum", lambda a: a.cumsum(0), (x,)),
        Case("aten::cumsum", lambda a: a.cumsum(0), (whole(9, 4, 8).int(),)),
        Case("aten::cummax", lambda a: a.cummax(0), (x,)),
        Case("aten::_softmax", lambda a: a.softmax(-1), (x,)),
        Case("aten::_log_softmax", lambda a: a.log_softmax(-1), (half,)),
        Case("aten::_softmax_backward_data", lambda g, o: aten._softmax_backward_data(g, o, -1, torch.float32), (x, y)),
        Case("aten::native_layer_norm", lambda a, w, b: aten.native_layer_norm(a, [8], w, b, 1e-5), (x, row, f(8))),
        Case("aten::native_group_norm", lambda a, w, b: aten.native_group_norm(a, w, b, 2, 4, 5, 2, 1e-5), (f(2, 4, 5), f(4), f(4))),
        Case("aten::native_batch_norm", lambda a, w, b, m, v: aten.native_batch_norm(a, w, b, m, v, True, 0.1, 1e-5),
             (image, f(3), f(3), f(3), f(3)), more=2 * 12),
        Case("aten::native_layer_norm_backward",
             lambda g, a, m, r, w, b: aten.native_layer_norm_backward(g, a, [8], m, r, w, b, [True, True, True]),
             (x, y, f(4, 6, 1), f(4, 6, 1), row, f(8)), skip=(5,)),
        Case("aten::copy_", lambda a, b: a.copy_(b), (f(4, 8), expanded), skip=(0,)),
        Case("aten::copy_", lambda a, b: a.copy_(b), (half, f(4, 8)), skip=(0,)),
        Case("aten::clone", torch.clone, (expanded,)),
        Case("aten::fill_", lambda a: a.fill_(1.0), (f(4, 8),), skip=(0,)),
        Case("aten::flip", lambda a: a.flip(0), (x,)),
        Case("aten::roll", lambda a: a.roll(1, 0), (x,)),
        Case("aten::tril", torch.tril, (f(6, 6),)),
        Case("aten::repeat", lambda a: a.repeat(2, 3), (f(4, 8),)),
        Case("aten::constant_pad_nd", lambda a: F.pad(a, (1, 2)), (x,)),
        Case("aten::reflection_pad2d", lambda a: F.pad(a, (1, 2, 3, 0), mode="reflect"), (image,)),
        Case("aten::im2col", lambda a: F.unfold(a, (3, 2), padding=(1, 0), stride=(2, 1)), (image,)),
        Case("aten::col2im", lambda a: F.fold(a, (8, 10), (2, 2), stride=2), (f(2, 12, 20),)),
        Case("aten::embedding", lambda w, i: F.embedding(i, w), (f(50, 8), whole(50, 6)), skip=(0,), more=6 * 8 * 4),
        Case("aten::index_select", lambda a, i: a.index_select(1, i), (x, whole(6, 3)), skip=(0,), more=4 * 3 * 8 * 4),
        Case("aten::gather", lambda a, i: a.gather(1, i), (f(4, 8), whole(8, 4, 3)), skip=(0,), more=4 * 3 * 4),
        Case("aten::scatter_add_", lambda a, i, s: a.scatter_add_(1, i, s), (f(4, 8), whole(8, 4, 3), f(4, 3)), skip=(0,),
             more=2 * 48 - 128),
        Case("aten::topk", lambda a: a.topk(3), (x,)),
        Case("aten::sort", lambda a: a.sort(1), (x,)),
        Case("aten::max_pool2d_with_indices", lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True), (image,)),
        Case("aten::max_pool2d_with_indices", lambda a: F.max_pool2d(a, 3, 2, ceil_mode=True, return_indices=True), (image,)),
        Case("aten::avg_pool2d", lambda a: F.avg_pool2d(a, (2, 3)), (image,)),
        Case("aten::avg_pool3d", lambda a: F.avg_pool3d(a, 2, ceil_mode=True), (f(1, 2, 5, 6, 7),)),
        Case("aten::_adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a, (3, 4)), (image,)),
        Case("aten::upsample_nearest2d", lambda a: F.interpolate(a, size=(16, 20)), (image,)),
        Case("aten::upsample_bilinear2d", lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), (image,)),
        Case("aten::grid_sampler_2d", lambda a, g: F.grid_sample(a, g, align_corners=False), (image, f(2, 16, 20, 2))),
        Case("aten::arange", lambda: torch.arange(3, 40, 4), ()),
        Case("aten::arange", lambda: torch.arange(0.0, 1.0, 0.25), ()),
        Case("aten::zeros", lambda: torch.zeros(3, 5, dtype=torch.float64), ()),
        Case("aten::full", lambda: torch.full((3, 5), 2.0, dtype=torch.float16), ()),
        Case("aten::zeros_like", torch.zeros_like, (half,), skip=(0,)),
        Case("aten::uniform_", lambda a: a.uniform_(), (f(4, 8),), skip=(0,)),
        Case("aten::bucketize", torch.bucketize, (f(4, 8), torch.arange(5.0))),
        Case("aten::one_hot", lambda i: F.one_hot(i, 7), (whole(7, 5),), more=5 * 8),
        Case("aten::_weight_norm_interface", lambda v, g: aten._weight_norm_interface(v, g, 0), (f(6, 8), f(6, 1))),
        Case("aten::add_", lambda a, b: a.add_(b), (f(4, 8), f(8))),
        Case("aten::relu_", lambda a: a.relu_(), (f(4, 8),)),
    ]  # fmt: skip
    return table


CASES = cases()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Inputs, int]]:
    """Per case the recorded arguments of its operator, and the bytes that were read and written."""
    path = Path(tmp_path_factory.mktemp("recorded")) / "trace.json"
    truth = []
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for at, case in enumerate(CASES):
            read = sum(places(t) for i, t in enumerate(case.inputs) if i not in case.skip)
            with torch.profiler.record_function(f"case {at}"):
                out = case.run(*case.inputs)
            truth.append(read + sum(t.numel() * t.element_size() for t in results(out)) + case.more)
    profiler.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("ph") == "X"]
    ranges = {e["name"]: e for e in events if e["name"].startswith("case ")}
    found = []
    for at, case in enumerate(CASES):
        around = ranges[f"case {at}"]
        inside = [
            e for e in events
            if e["name"] == case.name and around["ts"] <= e["ts"] <= around["ts"] + around["dur"] and "Input Dims" in e["args"]
        ]  # fmt: skip
        assert inside, f"{case.name} was not recorded"
        args = min(inside, key=lambda e: e["ts"])["args"]
        lists = (json.dumps(args.get(key, [])) for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"))
        found.append((Inputs(*lists), truth[at]))
    return found


@pytest.mark.parametrize("at", range(len(CASES)), ids=[f"{i}-{c.name}" for i, c in enumerate(CASES)])
def test_bytes_are_those_of_the_tensors(recorded: list[tuple[Inputs, int]], at: int) -> None:
    # GIVEN an operation as torch's profiler records it THEN the model moves what the tensors hold
    inputs, truth = recorded[at]
    found = estimate(CASES[at].name, inputs)
    assert found is not None and found.bytes == truth, (CASES[at].name, inputs.shapes, inputs.values)
