"""Matrix FLOP equal torch's own counter over random shapes and on whole models, wherever that has a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost import estimate
from tests.support.torch_models import matrix_flop, recorded, resnet18, transformer
from tests.unit.cost.calls import call

torch = pytest.importorskip("torch")
registry = pytest.importorskip("torch.utils.flop_counter").flop_registry
aten = torch.ops.aten

sizes = st.integers(1, 40)
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def reference(op: object, *args: object, out: tuple[int, ...] = (), **more: object) -> int:
    """FLOP by the counter's formula, on tensors that hold no data."""
    tensors = [torch.empty(a, device="meta") if isinstance(a, tuple) else a for a in args]
    return int(registry[op](*tensors, **more, out_val=torch.empty(out, device="meta")))


def ours(name: str, *args: object) -> int:
    found = estimate(name, call(*args))
    assert found is not None and found.flop is not None
    return found.flop_dense if found.flop_dense is not None else found.flop


@quick
@given(sizes, sizes, sizes, sizes)
def test_matrix_products_are_what_torch_counts(b: int, m: int, n: int, k: int) -> None:
    assert ours("aten::mm", (m, k), (k, n)) == reference(aten.mm, (m, k), (k, n))
    assert ours("aten::addmm", (n,), (m, k), (k, n), "1", "1") == reference(aten.addmm, (n,), (m, k), (k, n))
    assert ours("aten::bmm", (b, m, k), (b, k, n)) == reference(aten.bmm, (b, m, k), (b, k, n))
    assert ours("aten::baddbmm", (b, m, n), (b, m, k), (b, k, n), "1", "1") == reference(aten.baddbmm, (b, m, n), (b, m, k), (b, k, n))
    assert ours("aten::_scaled_mm", (m, k), (k, n), (1,), (1,)) == reference(aten._scaled_mm, (m, k), (k, n), (1,), (1,))


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, object]:
    dims = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(dims)]
    kernel, stride, dilation = each(1, 3), each(1, 3), each(1, 2)
    return {
        "batch": draw(st.integers(1, 3)), "cin": groups * draw(st.integers(1, 4)), "cout": groups * draw(st.integers(1, 4)), "groups": groups,
        "space": [draw(st.integers(d * (k - 1) + 1, 12)) for k, d in zip(kernel, dilation, strict=True)], "kernel": kernel, "stride": stride,
        "padding": each(0, 2), "dilation": dilation, "transposed": draw(st.booleans()), "bias": draw(st.booleans()),
    }  # fmt: skip


@quick
@given(convolutions(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_convolutions_forward_and_backward(c: dict, mask: tuple[bool, bool, bool]) -> None:  # type: ignore[type-arg]
    # GIVEN a convolution that torch itself shapes; THEN both passes cost what its counter says, without reading the result's size
    over = [0] * len(c["space"])
    x = (c["batch"], c["cin"], *c["space"])
    w = (c["cin"], c["cout"] // c["groups"], *c["kernel"]) if c["transposed"] else (c["cout"], c["cin"] // c["groups"], *c["kernel"])
    meta = [torch.empty(s, device="meta") for s in (x, w)]
    try:
        out = tuple(aten.convolution(*meta, None, c["stride"], c["padding"], c["dilation"], c["transposed"], over, c["groups"]).shape)
    except RuntimeError:
        return
    if 0 in out:  # more padding than result: torch counts what a backend would not run
        return
    values = (str(c["stride"]), str(c["padding"]), str(c["dilation"]), str(c["transposed"]), str(over), str(c["groups"]))
    bias = (c["cout"],) if c["bias"] else None
    args = (x, w, None, c["stride"], c["padding"], c["dilation"], c["transposed"], over, c["groups"])
    assert ours("aten::convolution", x, w, bias, *values) == reference(aten.convolution, *args, out=out)
    found = estimate("aten::convolution_backward", call(out, x, w, f"[{c['cout']}]", *values, str(list(mask))))
    assert found is not None
    back = [x, w]
    grad = torch.empty(out, device="meta")
    want = 0
    for at in (0, 1):
        if mask[at]:
            outs = tuple(torch.empty(back[at], device="meta") if i == at else None for i in range(3))
            more = [c["stride"], c["padding"], c["dilation"], c["transposed"], over, c["groups"], [i == at for i in range(3)]]
            # the counter takes a grouped weight gradient for a dense one: `groups` times what is computed
            want += registry[aten.convolution_backward](grad, *meta, None, *more, out_val=outs) // (c["groups"] if at == 1 else 1)
    assert found.flop == want


@quick
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 30), st.integers(1, 30), st.integers(1, 16), st.integers(1, 16), st.booleans())
def test_dense_attention_is_what_torch_counts(b: int, h: int, nq: int, nk: int, dqk: int, dv: int, causal: bool) -> None:
    q, k, v, g = (b, h, nq, dqk), (b, h, nk, dqk), (b, h, nk, dv), (b, h, nq, dv)
    lse, flag = (b, h, nq), str(causal)
    flash, efficient = aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention
    forward = reference(flash, q, k, v)
    assert ours("aten::_scaled_dot_product_flash_attention", q, k, v, "0.", flag, "False", "") == forward
    assert ours("aten::_scaled_dot_product_efficient_attention", q, k, v, None, "True", "0.", flag) == reference(efficient, q, k, v, None)
    back = reference(aten._scaled_dot_product_flash_attention_backward, g, q, k, v)
    args = (g, q, k, v, g, lse, None, None, str(nq), str(nk), "0.", flag)
    assert ours("aten::_scaled_dot_product_flash_attention_backward", *args) == back
    assert ours("aten::_scaled_dot_product_flash_attention_for_cpu_backward", g, q, k, v, g, lse, "0.", flag) == back


# -- the counter while a model runs, against the recording of the same model ---------------------------------------


def counted(step: Callable[[], object]) -> int:
    """FLOP that torch counts while `step` runs, with its own attention formula for the CPU's kernels, which it leaves at 0."""
    module = torch.utils.flop_counter

    def heads(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
        return (shape[0], like[1], *shape[2:])

    def forward(q: Any, k: Any, v: Any, *args: Any, out_shape: Any = None, **more: Any) -> int:
        return int(module.sdpa_flop_count(q, heads(k, q), heads(v, q)))

    def backward(grad: Any, q: Any, k: Any, v: Any, *args: Any, out_shape: Any = None, **more: Any) -> int:
        return int(module.sdpa_backward_flop_count(grad, q, heads(k, q), heads(v, q)))

    mapping = {
        aten._scaled_dot_product_flash_attention_for_cpu: forward, aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }  # fmt: skip
    with module.FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        step()
    return int(counter.get_total_flops())


def train(model: Any, x: Any) -> None:
    model(x).square().mean().backward()


@pytest.mark.parametrize(("fused", "kv_heads"), [(False, 4), (True, 4), (True, 2)])
def test_a_transformer_step_is_what_torch_counts(tmp_path: Path, fused: bool, kv_heads: int) -> None:
    # GIVEN a decoder with and without grouped queries
    model = transformer(layers=2, width=32, heads=4, kv_heads=kv_heads, hidden=96, vocab=64, gated=True, causal=True, fused=fused)
    tokens = torch.randint(0, 64, (2, 24))
    ops = recorded(lambda: train(model, tokens), tmp_path, dense=True)
    assert matrix_flop(ops) == counted(lambda: train(model, tokens)) > 0


def test_resnet18_is_what_torch_counts(tmp_path: Path) -> None:
    model, image = resnet18(), torch.randn(2, 3, 64, 64)
    assert matrix_flop(recorded(lambda: train(model, image), tmp_path)) == counted(lambda: train(model, image)) > 0


CONVOLUTIONS = {
    "1d": ("Conv1d", (6, 8, 3), {}, (2, 6, 20)),
    "1d dilated, strided": ("Conv1d", (6, 8, 3), {"dilation": 2, "stride": 2, "padding": 1}, (2, 6, 20)),
    "2d, words as padding": ("Conv2d", (4, 6, 3), {"padding": "same"}, (2, 4, 9, 7)),
    "2d, one image without a batch": ("Conv2d", (4, 6, 3), {"padding": 1}, (4, 9, 7)),
    "3d": ("Conv3d", (3, 4, 2), {"stride": 2}, (2, 3, 6, 6, 6)),
    "2d transposed": ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "output_padding": 1}, (2, 4, 5, 5)),
    "3d transposed": ("ConvTranspose3d", (3, 4, 2), {"stride": 2}, (2, 3, 4, 4, 4)),
    "1d transposed, dilated": ("ConvTranspose1d", (3, 4, 3), {"dilation": 2}, (2, 3, 8)),
    "2d grouped": ("Conv2d", (8, 12, 3), {"groups": 4}, (2, 8, 9, 7)),
    "2d depthwise": ("Conv2d", (8, 8, 3), {"groups": 8}, (2, 8, 9, 7)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_recorded_convolution_is_what_torch_counts(tmp_path: Path, name: str) -> None:
    # GIVEN a convolution run by whichever backend the CPU takes for it, under its own names and argument orders
    kind, sizes, more, shape = CONVOLUTIONS[name]
    layer, x = getattr(torch.nn, kind)(*sizes, **more), torch.randn(*shape, requires_grad=True)
    ops = recorded(lambda: train(layer, x), tmp_path)
    forward = counted(lambda: layer(x))
    assert matrix_flop(ops, direction="fwd") == forward > 0
    # THEN both gradients cost what the forward costs (the counter takes a grouped weight gradient for a dense one)
    assert matrix_flop(ops, direction="bwd") == 2 * forward
    if "groups" not in more:
        assert counted(lambda: train(layer, x)) == 3 * forward
