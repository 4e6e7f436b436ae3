"""Matrix FLOP equal torch's own counter over random shapes, wherever that has a formula."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost import estimate
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
def test_products(b: int, m: int, n: int, k: int) -> None:
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
def test_attention_dense_equivalent(b: int, h: int, nq: int, nk: int, dqk: int, dv: int, causal: bool) -> None:
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
