"""Tensors whose sizes say little: recorded without work or counted as lost, and never an error."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.support.ledger import Counting  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def count(function):
    counting = Counting()
    plain = function()
    counted = counting.run(function)
    return counting, plain, counted


def test_sparse_products_have_unknown_work():
    # GIVEN products of a sparse matrix, of which the sizes do not say how many elements it has
    x = torch.randn(8, 8)

    def products():
        eye = torch.eye(8)
        return eye.to_sparse() @ x, eye.to_sparse_csr() @ x, x @ x

    counting, plain, counted = count(products)
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))
    # THEN only the dense one is counted, and a reader has no sizes to count the others by
    assert counting.flop() == 2 * 8 * 8 * 8
    odd = [r for r in counting.records if r.reason.startswith("sparse tensor")]
    assert odd and {(r.flops, r.bytes) for r in odd} == {(None, None)}
    for signature in counting.ledger.signatures:
        if signature.odd and "mm" in signature.op:
            assert '"float"' not in signature.types.split(",")[0]
    assert not counting.ledger.lost


def test_a_sparse_call_is_not_taken_for_a_dense_one():
    # GIVEN a dense tensor with the strides that a sparse one claims to have (0, 0)
    dense, x = torch.ones(1, 1).expand(8, 8), torch.randn(8, 8)
    sparse = torch.eye(8).to_sparse()
    assert dense.stride() == sparse.stride()
    for order in ([dense, sparse], [sparse, dense]):
        counting = Counting()
        counting.run(lambda order=order: [torch.mm(one, x) for one in order])
        assert sorted((r.flops is None, r.count) for r in counting.select(name="aten::mm")) == [(False, 1), (True, 1)]


def test_sparse_gradients_of_embeddings():
    embed = nn.Embedding(10, 4, sparse=True)
    counting = Counting(embed)
    counting.run(lambda: embed(torch.tensor([1, 2])).sum().backward())
    assert embed.weight.grad.is_sparse
    assert {r.module_context for r in counting.select(direction="bwd") if "embedding" in r.name} <= {"Embedding"}


def test_nested_tensors():
    parts = [torch.randn(2, 8), torch.randn(3, 8)]
    linear = nn.Linear(8, 4)

    def strided():
        n = torch.nested.nested_tensor(parts, requires_grad=True)
        out = linear(n).to_padded_tensor(0.0)
        out.sum().backward()
        return out.detach()

    counting, plain, counted = count(strided)
    assert torch.equal(plain, counted)
    assert counting.select(name="aten::linear")[0].reason.startswith("nested tensor")

    # AND one that is a class of its own is counted by the plain tensors inside: 5 rows, forward and both products of backward
    def jagged():
        n = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
        out = torch.nested.to_padded_tensor(linear(n) * 2, 0.0)
        out.sum().backward()
        return out.detach()

    counting, plain, counted = count(jagged)
    assert torch.equal(plain, counted)
    assert counting.flop() == 3 * 2 * 5 * 8 * 4
    assert not counting.ledger.lost


def test_tensors_without_data_are_lost_with_a_reason():
    from torch._subclasses.fake_tensor import FakeTensorMode

    def meta():
        layer = nn.Linear(8, 8, device="meta")
        layer(torch.empty(2, 8, device="meta")).sum().backward()

    counting, _, _ = count(meta)
    assert counting.records == [] and set(counting.ledger.lost) == {"tensors without data (meta)"}

    def fake():
        with FakeTensorMode() as mode:
            nn.Linear(8, 8)(torch.randn(2, 8)).sum().backward()
        return tuple((mode.from_tensor(torch.ones(2, 8)) @ mode.from_tensor(torch.ones(8, 3))).shape)

    counting, plain, counted = count(fake)
    assert plain == counted == (2, 3)
    assert counting.flop() == 0 and counting.ledger.lost["tensors without data (fake)"] > 5


def test_a_meta_call_is_not_taken_for_a_real_one():
    real, meta = torch.randn(4, 4), torch.empty(4, 4, device="meta")
    counting = Counting()
    counting.run(lambda: (real @ real, meta @ meta, real @ real))
    assert counting.calls("mm") == 2 and sum(counting.ledger.lost.values()) == 1


def test_symbolic_shapes_of_a_tracer():
    from torch.fx.experimental.proxy_tensor import make_fx

    counting, plain, counted = count(lambda: str(make_fx(lambda a: a @ a.t() + 1, tracing_mode="symbolic")(torch.ones(4, 8)).graph))
    assert plain == counted
    assert counting.flop() == 0


def test_complex_tensors():
    def products():
        a = torch.ones(4, 4, dtype=torch.complex64, requires_grad=True)
        (a @ a.mH).abs().sum().backward()
        return torch.fft.fft(a.detach().conj()), a.grad

    counting, plain, counted = count(products)
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))
    assert counting.calls("mm") == 3
    assert [r.name for r in counting.records if r.flops is None] in ([], ["aten::_fft_c2c"])


def test_quantized_tensors():
    x = torch.randn(4, 8)

    def quantized():
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
        return torch.cat([q, q]).dequantize()

    counting, plain, counted = count(quantized)
    assert torch.equal(plain, counted)
    assert counting.calls("quantize_per_tensor") == 1
    assert not counting.ledger.lost


def test_tensor_classes_of_other_people():
    class Plain(torch.Tensor):
        pass

    class Wrapper(torch.Tensor):
        """Holds a tensor, and hands every operator on to it."""

        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            result = func(*(a.inner if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))
            return cls(result) if isinstance(result, torch.Tensor) else result

    class Silent(torch.Tensor):
        """Calls operators with dispatch switched off."""

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            with torch._C._DisableTorchDispatch():
                return func(*args, **(kwargs or {}))

    x = torch.randn(4, 4)
    for kind, calls in ((Plain, 1), (Wrapper, 1), (Silent, 0)):
        make = kind if kind is Wrapper else lambda t, kind=kind: t.as_subclass(kind)
        counting, plain, counted = count(lambda make=make: make(x) @ make(x))
        assert type(plain) is type(counted)
        assert counting.calls("mm") == calls, kind


def test_a_distributed_tensor_counts_its_local_part(tmp_path):
    # GIVEN a tensor that one process holds a half of, of 4×8 rows in all
    from torch import distributed as dist

    if not dist.is_available():
        pytest.skip("no torch.distributed")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        a = distribute_tensor(torch.ones(4, 8), mesh, [Replicate()])
        b = distribute_tensor(torch.ones(8, 3), mesh, [Replicate()])
        counting, plain, counted = count(lambda: (a @ b).to_local())
        assert torch.equal(plain, counted)
        # THEN the product is counted once
        assert counting.calls("mm") == 1 and counting.flop() == 2 * 4 * 8 * 3

        def collectives():
            x = torch.ones(10)
            dist.all_reduce(x)
            out = torch.empty(10)
            dist.all_gather_into_tensor(out, x)
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            return x

        counting, plain, counted = count(collectives)
        assert torch.equal(plain, counted)
        found = [r for r in counting.records if r.op_type.value == "communication"]
        # THEN collectives are there with their sizes, and do no work in the device's memory
        assert sum(r.count for r in found) == 3
        assert {(r.flops, r.flops_vector, r.bytes) for r in found} == {(0, 0, 0)}
        assert all((10,) in r.input_shapes for r in found)
    finally:
        dist.destroy_process_group()


def test_lists_with_gaps_and_optional_arguments():
    x = torch.randn(4, 6, 3)
    i = torch.tensor([0, 2])
    counting, plain, counted = count(lambda: (x[:, i], x[i], x[i, :, i], F.layer_norm(x, (3,)), torch.index_put(x, (i,), torch.ones(1))))
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))
    known = {tuple(r.input_shapes): r for r in counting.select(name="aten::index")}
    # THEN a list without gaps is written with its sizes: 2 rows of 18 numbers read and written, and 2 indices
    assert known[(4, 6, 3), (2,)].bytes == 2 * 4 * 2 * 18 + 2 * 8
    assert not counting.ledger.lost


def test_results_that_are_no_tensors():
    x = torch.randn(4, 4)
    counting, plain, counted = count(lambda: (x.sum().item(), x.tolist(), bool(x.any()), torch.equal(x, x), x.nonzero().shape))
    assert plain == counted
    assert not counting.ledger.lost


def test_uninitialized_parameters():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counting, _, _ = count(lambda: nn.LazyLinear(4)(torch.ones(2, 3)).shape)
    assert counting.flop() == 2 * 2 * 3 * 4


def test_empty_and_scalar_tensors():
    counting, plain, counted = count(
        lambda: (torch.ones(0, 4) @ torch.ones(4, 3), torch.tensor(2.0) * torch.tensor(3.0), torch.ones(0).sum())
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, counted, strict=True))
    assert counting.flop() == 0
    assert counting.select(name="aten::mul")[0].bytes == 12


def test_deterministic_algorithms():
    x = torch.ones(4, 4)
    torch.use_deterministic_algorithms(True)
    try:
        _, plain, counted = count(lambda: (torch.empty(3), x.index_add(0, torch.tensor([0]), x[:1])))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(plain[1], counted[1]) and torch.isnan(counted[0]).all()


def test_saving_and_loading_a_model_in_a_sampled_step_is_counted(tmp_path):
    layer = nn.Linear(3, 3)

    def save():
        torch.save(layer.state_dict(), tmp_path / "x.pt")
        return torch.load(tmp_path / "x.pt")["weight"]

    _, plain, counted = count(save)
    assert torch.equal(plain, counted)
