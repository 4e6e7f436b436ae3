"""Counts of the ledger against closed forms and torch's own FlopCounterMode."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tb_sol_plugin.capture.work import ledger  # noqa: E402
from tb_sol_plugin.format import BACKWARD, COMPILED, RECOMPUTE  # noqa: E402
from tests.support import toy  # noqa: E402
from tests.support.ledger import Counting, torch_flop  # noqa: E402


def train(model, *inputs):
    """One forward and backward pass of a model, whose parameters have no gradients before and after."""

    def step():
        model.zero_grad(set_to_none=True)
        out = model(*inputs)
        (out[0] if isinstance(out, tuple) else out).float().pow(2).sum().backward()

    return step


# --- The reference transformer ---


def test_the_toy_transformer_counts_the_closed_form():
    # GIVEN F = L(2MD·3D + 2MDD + 4MD·4D + 4BHS²(D/H)) + 2MDV with 4 blocks, D=128, H=4, S=64, B=2, V=1000: 250 871 808
    model, tokens = toy.fused_qkv(), toy.some_tokens()
    counting = Counting(model)
    # WHEN one step is counted
    counting.run(train(model, tokens))
    # THEN forward is F, and backward, two products for each of forward, is 2 F: embedding gradients need no product
    assert counting.flop(direction="fwd") == 250_871_808
    assert counting.flop(direction="bwd") == 501_743_616
    assert counting.flop() == 752_615_424
    assert not counting.ledger.lost
    # AND no matrix work of the backward pass is without a module
    assert counting.flop(direction="bwd", module_context="") == 0


def test_every_linear_of_the_toy_does_twice_its_forward_in_backward():
    model, tokens = toy.fused_qkv(), toy.some_tokens()
    counting = Counting(model)
    counting.run(train(model, tokens))
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    assert len(linears) == 17
    for name in linears:
        forward = counting.flop(module_context=name, direction="fwd")
        weight = dict(model.named_parameters())[f"{name}.weight"]
        assert forward == 2 * 128 * weight.numel()  # 2 MNK with M = B·S = 128 rows
        assert counting.flop(module_context=name, direction="bwd") == 2 * forward


def test_counts_per_module_are_those_of_torch():
    # GIVEN torch's counter, which keeps counts per module, each with all that is inside it
    from torch.utils.flop_counter import FlopCounterMode

    model, tokens = toy.fused_qkv(), toy.some_tokens()
    with FlopCounterMode(display=False) as theirs:
        train(model, tokens)()
    counting = Counting(model)
    counting.run(train(model, tokens))
    # WHEN ours are summed up over everything below a module
    for path, by_op in theirs.get_flop_counts().items():
        name = path.partition(".")[2]
        below = [r for r in counting.records if not name or r.module_context == name or r.module_context.startswith(f"{name}.")]
        if path != "Global" and name:
            # THEN they agree, forward and backward together
            assert sum(r.flops or 0 for r in below) == sum(by_op.values()), path


def test_the_second_iteration_counts_what_the_first_counted():
    model, tokens = toy.fused_qkv(), toy.some_tokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    counting = Counting(model)

    def step():
        train(model, tokens)()
        optimizer.step()

    step()  # creates the state of the optimizer, which later iterations do not
    seen = []
    for _ in range(3):
        counting.run(step)
        seen.append(({key: row[0] for key, row in counting.ledger.rows.items()}, len(counting.ledger.signatures)))
    assert seen[0] == seen[1] == seen[2]


# --- Other models, beside torch's counter ---


class Attention(nn.Module):
    """Grouped-query attention by torch.scaled_dot_product_attention: `heads` of queries over `kv` heads of keys and values."""

    def __init__(self, width=32, heads=4, kv=2):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, width // heads
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, kv * self.size), nn.Linear(width, kv * self.size)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (p(x).view(b, s, -1, self.size).transpose(1, 2) for p in (self.q, self.k, self.v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=False, enable_gqa=self.heads != self.kv)
        return self.out(o.transpose(1, 2).reshape(b, s, -1))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)), (8, 16)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2),
            nn.ConvTranspose2d(16, 4, 2, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5),
        ),
        (2, 3, 16, 16),
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(4, 8, 5, dilation=2), nn.GroupNorm(2, 8), nn.SiLU()), (2, 4, 32)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 4, 3)), (1, 2, 6, 6, 6)),
    "bilinear": (lambda: nn.Sequential(nn.Linear(8, 8), nn.Unflatten(1, (2, 4)), nn.LayerNorm(4)), (6, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), (2, 7, 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_totals_are_those_of_torch_where_it_has_formulas(name):
    # GIVEN a model of linear and convolution layers
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make(), torch.randn(*shape)
    counting = Counting(model)
    counting.run(train(model, x))
    # WHEN attention is left out, which torch does not count on a CPU
    theirs = torch_flop(train(model, x))
    # THEN the totals agree, and every call has a cost
    assert counting.flop() - counting.flop(name=SDPA) - counting.flop(name=f"{SDPA}_backward") == theirs > 0
    assert [r.name for r in counting.records if r.flops is None or r.bytes is None] == []


SDPA = "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.mark.parametrize("kv", [4, 2, 1])
def test_attention_on_a_cpu_counts_its_formula(kv):
    # GIVEN 4 heads of 8 over 10 tokens, batch 3: 2 products of 2·3·4·10·10·8 FLOP forward, 5 such backward
    model, x = Attention(32, 4, kv), torch.randn(3, 10, 32)
    counting = Counting(model)
    counting.run(train(model, x))
    one = 2 * 3 * 4 * 10 * 10 * 8
    assert counting.flop(name=SDPA) == 2 * one
    assert counting.flop(name=f"{SDPA}_backward") == 5 * one
    # AND it belongs to the module that called it, of which the linear layers are other ones
    assert {r.module_context for r in counting.records if r.name.startswith(SDPA)} == {"Attention"}
    assert counting.flop() - 7 * one == torch_flop(train(model, x))


def test_grouped_convolutions_do_twice_their_forward_in_backward():
    # GIVEN 4 groups of 2 channels in, 4 out, 3×3, on a result of 2×16×3×3: 2·288·2·9 FLOP. torch's counter, which leaves groups out of
    # the gradient of the weight, gives five times that for backward
    model = nn.Conv2d(8, 16, 3, stride=2, groups=4)
    counting = Counting(model)
    counting.run(train(model, torch.randn(2, 8, 8, 8, requires_grad=True)))
    assert counting.flop(direction="fwd") == 2 * 288 * 2 * 9
    assert counting.flop(direction="bwd") == 2 * 2 * 288 * 2 * 9


def test_a_first_layer_whose_input_needs_no_gradient_does_once_its_forward_in_backward():
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8))
    counting = Counting(model)
    counting.run(train(model, torch.randn(4, 16)))
    assert counting.flop(module_context="0", direction="fwd") == counting.flop(module_context="0", direction="bwd") == 2 * 4 * 16 * 32
    assert counting.flop(module_context="1", direction="bwd") == 2 * counting.flop(module_context="1", direction="fwd")


def test_an_embedding_with_tied_weights_is_credited_where_it_is_used():
    # GIVEN a head that shares the weight of the embedding, and a module that is called twice
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix, self.head = nn.Embedding(50, 8), nn.Linear(8, 8), nn.Linear(8, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.mix(self.mix(self.embed(tokens))))

    model, tokens = Tied(), torch.randint(0, 50, (2, 6))
    counting = Counting(model)
    counting.run(train(model, tokens))
    mix, head = 2 * 12 * 8 * 8, 2 * 12 * 8 * 50
    # THEN the shared module counts per call, the shared weight per use
    assert counting.flop(module_context="mix", direction="fwd") == 2 * mix
    assert counting.flop(module_context="mix", direction="bwd") == 4 * mix
    assert counting.flop(module_context="head") == 3 * head
    assert counting.flop(module_context="embed") == 0
    assert counting.ops(module_context="embed", direction="bwd")["embedding_dense_backward"] == 1
    assert counting.flop() == torch_flop(train(model, tokens))


layers = st.lists(
    st.one_of(
        st.tuples(st.just("linear"), st.integers(1, 9)),
        st.tuples(st.sampled_from(["relu", "norm", "twice", "square", "checkpoint", "residual", "detached"]), st.just(0)),
    ),
    min_size=1, max_size=7,
)  # fmt: skip


class Net(nn.Module):
    """A random chain of layers on rows of numbers."""

    def __init__(self, plan, width):
        super().__init__()
        self.parts = nn.ModuleList()
        self.kinds = []
        for kind, out in plan:
            part = nn.Linear(width, out) if kind == "linear" else nn.LayerNorm(width) if kind == "norm" else nn.Linear(width, width)
            width = out if kind == "linear" else width
            self.parts.append(part)
            self.kinds.append(kind)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        for kind, part in zip(self.kinds, self.parts, strict=True):
            if kind in ("linear", "norm"):
                x = part(x)
            elif kind == "relu":
                x = x.relu()
            elif kind == "twice":
                x = part(part(x))
            elif kind == "square":
                x = x @ (x.t() @ x)
            elif kind == "checkpoint":
                x = checkpoint(part, x, use_reentrant=False)
            elif kind == "residual":
                x = x + part(x)
            else:
                with torch.no_grad():
                    y = part(x)
                x = x + y
        return x


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layers, st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_random_nets_count_what_torch_counts(plan, rows, width, needs_gradient):
    model, x = Net(plan, width), torch.randn(rows, width, requires_grad=needs_gradient)
    if not any(p.requires_grad for p in model.parameters()) and not needs_gradient:
        return
    step = train(model, x) if model(x).requires_grad else lambda: model(x)
    counting = Counting(model)
    counting.run(step)
    assert counting.flop() == torch_flop(step)
    assert counting.flop(direction="bwd", module_context="") == 0
    assert not counting.ledger.lost


# --- What is a call ---


def test_views_are_not_calls_and_a_reshape_is_one_only_where_it_copies():
    x = torch.randn(4, 6)
    counting = Counting()

    def views():
        x.view(24).unsqueeze(0).transpose(0, 1).squeeze(1).detach().expand(2, 24).select(0, 0).chunk(2)
        x.reshape(6, 4)
        torch.empty(3)

    counting.run(views)
    assert counting.ops() == {}
    counting.run(lambda: x.t().reshape(24))
    assert counting.ops() == {"clone": 1}
    with torch.inference_mode():  # where the mode sees aten::reshape itself
        counting.run(lambda: (x.reshape(6, 4), x.t().reshape(24), x.t().contiguous(), x.contiguous()))
    assert counting.ops() == {"clone": 2}


def test_without_gradients_the_leaves_are_the_same():
    # GIVEN operators made of others, which reach a dispatch mode whole in inference mode
    model, x = Attention(), torch.randn(2, 5, 32)
    seen = []
    for scope in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        counting = Counting(model)
        with scope():
            counting.run(lambda: (model(x), torch.einsum("bsd,btd->bst", x, x), F.cross_entropy(x[0], torch.arange(5))))
        seen.append((counting.flop(), {k: v for k, v in counting.ops().items() if k != "clone"}))
    # THEN what is counted is the same
    assert seen[0] == seen[1] == seen[2]
    assert "linear" not in seen[2][1] and seen[2][1]["addmm"] == 4


def test_results_without_gradients_are_the_same_bits():
    # GIVEN products whose operands can be folded in more than one way, and everything else that is taken apart
    torch.manual_seed(0)
    x, w = torch.randn(3, 1, 17, 33), torch.randn(5, 33, 19)
    calls = (
        lambda: x @ w, lambda: x @ w[0], lambda: w.mT @ x[0, 0, 0], lambda: x[0, 0] @ x[0, 0, 0], lambda: torch.einsum("aibc,dce->adbe", x, w),
        lambda: F.conv2d(x, x[:, :, :3, :3].contiguous()), lambda: F.scaled_dot_product_attention(x, x, x), lambda: F.softmax(x, -1),
        lambda: F.layer_norm(x, (33,)), lambda: F.interpolate(x, scale_factor=2.0), lambda: torch.cov(x[0, 0]), lambda: F.cosine_similarity(x, x),
        lambda: nn.LSTM(33, 8)(x[0])[0], lambda: F.gelu(x).std(), lambda: torch.linalg.norm(x[0, 0]), lambda: F.dropout(x, 0.5),
    )  # fmt: skip
    for call in calls:
        with torch.inference_mode():
            torch.manual_seed(1)
            plain = call()
            torch.manual_seed(1)
            counted = Counting().run(call)
        assert torch.equal(plain, counted)


def test_fused_encoder_layers_count_what_they_do_inside():
    # GIVEN the fused path of an encoder layer, one operator that torch counts as nothing
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 7, 16)
    counting = Counting(layer)
    with torch.no_grad():
        assert torch_flop(lambda: layer(x)) == 0
        counting.run(lambda: layer(x))
    # THEN with M = 14 rows: projections 2·14·16·48 + 2·14·16·16, two layers 2·2·14·16·32, attention 2·2·(2·2·7·7·8)
    assert counting.flop() == 2 * 14 * 16 * 48 + 2 * 14 * 16 * 16 + 4 * 14 * 16 * 32 + 4 * 2 * 2 * 7 * 7 * 8


def test_operators_of_other_packages_count_by_what_they_call():
    @torch.library.custom_op("soltest::pair", mutates_args=())
    def pair(a: torch.Tensor) -> torch.Tensor:
        return a @ a.t() + 1

    @torch.library.custom_op("soltest::opaque", mutates_args=())
    def opaque(a: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(a.numpy() * 2)

    @torch.library.custom_op("soltest::filling", mutates_args=())
    def filling(a: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(torch.zeros(3).numpy() + 2)

    x = torch.randn(4, 6)
    counting = Counting()
    result = counting.run(lambda: (pair(x), pair(x), opaque(x), filling(x)))
    # THEN the one that calls operators is counted by them, and those that do no work by them as themselves, with unknown work
    assert counting.flop() == 2 * 2 * 4 * 4 * 6
    assert counting.calls("zeros") + counting.calls("zero_") == 1
    unknown = sorted((r.name, r.count, r.flops, bool(r.reason)) for r in counting.records if "soltest" in r.name)
    assert unknown == [("soltest::filling", 1, None, True), ("soltest::opaque", 1, None, True)]

    assert torch.equal(result[0], x @ x.t() + 1) and torch.equal(result[2], x * 2)


def test_optimizers_count_outside_of_every_module():
    model = nn.Linear(8, 8)
    for options in ({}, {"foreach": True}, {"fused": True}):
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        counting = Counting(model)
        train(model, torch.randn(2, 8))()
        optimizer.step()
        counting.run(optimizer.step)
        assert counting.records and {r.module_context for r in counting.records} == {""}
        assert {r.direction for r in counting.records} == {"fwd"}
        # AND it reads p, g, m, v and writes p, m, v: 7 arrays of 72 numbers at least, all of it known
        assert sum(r.bytes for r in counting.records) >= 7 * 72 * 4
    assert {r.name for r in counting.records} >= {"aten::_fused_adamw_"}
    assert {r.op_type.value for r in counting.records if r.name == "aten::_fused_adamw_"} == {"optimizer"}


def test_functions_and_phases_are_labels_of_rows():
    model, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
    counting = Counting(model)
    counting.patcher.install()
    try:
        with counting.on():
            with counting.phases.phase("a"):
                y = F.softmax(model(x), -1)
            with counting.phases.phase("b"):
                y.sum().backward()
    finally:
        counting.patcher.uninstall()
    linear = counting.select(func_name="F.linear")
    # THEN the function of the forward call is also the one of its backward, in the phase that ran it
    assert {(r.name, r.direction, r.phase, r.forward_phase) for r in linear if r.flops} == {
        ("aten::addmm", "fwd", "a", ""), ("aten::mm", "bwd", "b", "a"),
    }  # fmt: skip
    assert counting.ops(func_name="F.softmax") == {"_softmax": 1, "_softmax_backward_data": 1}
    assert counting.select(name="aten::_softmax")[0].layer_type == ""
    assert {(r.layer_name, r.layer_type) for r in linear} == {("Linear", "Linear")}


# --- Manners ---


def test_results_are_the_same_bits():
    # GIVEN dropout, in-place work, autocast and an optimizer
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(16, 32), nn.Linear(32, 4), nn.LayerNorm(32)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                h = F.dropout(self.norm(self.a(x)).relu_(), 0.3, self.training)
                return self.b(h.mul_(2))

    def steps(counting):
        torch.manual_seed(3)
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(4):

            def step():
                optimizer.zero_grad()
                loss = model(torch.randn(8, 16)).float().pow(2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach().clone())

            if counting:
                Counting(model).run(step)
            else:
                step()
        return losses, [p.detach() for p in model.parameters()], torch.rand(3)

    plain, counted = steps(False), steps(True)
    for a, b in zip([*plain[0], *plain[1], plain[2]], [*counted[0], *counted[1], counted[2]], strict=True):
        assert torch.equal(a, b)


def test_no_tensor_is_kept():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    counting = Counting(model)
    alive = []

    def step():
        x = torch.randn(4, 8)
        h = model[0](x)
        alive.extend(weakref.ref(t) for t in (x, h))
        out = model(h).sum()
        out.backward()
        alive.append(weakref.ref(out))

    counting.run(step)
    gc.collect()
    assert [ref() for ref in alive] == [None, None, None]
    assert counting.records


def test_an_error_of_the_training_code_leaves_nothing_behind():
    model = nn.Linear(4, 4)
    counting = Counting(model)
    engine = torch.autograd._engine_run_backward

    def broken():
        model(torch.randn(2, 4))
        torch.mm(torch.randn(2, 3), torch.randn(2, 3))

    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        counting.run(broken)
    assert counting.calls("addmm") == 1 and counting.calls("mm") == 0
    assert torch.autograd._engine_run_backward is engine
    assert torch.utils._python_dispatch._len_torch_dispatch_stack() == 0

    class Boom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("boom")

    with counting.on() as mode:
        with pytest.raises(ValueError, match="boom"):
            Boom.apply(model(torch.randn(2, 4))).sum().backward()
        assert mode.attribution.running == []
        model(torch.randn(2, 4)).sum().backward()
    assert counting.flop(direction="bwd") == 2 * 2 * 4 * 4
    assert torch.autograd._engine_run_backward is engine


def test_an_error_of_the_recorder_is_counted_and_not_raised(monkeypatch):
    from tb_sol_plugin.capture.work import ledger

    def broken(*_, **__):
        raise ZeroDivisionError

    x = torch.randn(3, 3)
    counting = Counting()
    monkeypatch.setattr(ledger, "key_function", broken)
    result = counting.run(lambda: x @ x)
    assert torch.equal(result, x @ x)
    assert counting.ledger.lost == {"a call could not be read: ZeroDivisionError": 1}


def test_other_modes_may_be_on_as_well():
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Names(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(func.name())
            return func(*args, **(kwargs or {}))

    model, tokens = toy.fused_qkv(), toy.some_tokens()
    counting = Counting(model)
    with FlopCounterMode(display=False) as outer, Names() as names:
        counting.run(train(model, tokens))
    assert outer.get_total_flops() == counting.flop() == 752_615_424
    assert "aten::addmm" in names.names

    def inside():
        with FlopCounterMode(display=False) as inner:
            train(model, tokens)()
        assert inner.get_total_flops() == 752_615_424

    counting.run(inside)
    assert counting.flop() == 752_615_424
    # AND in inference mode, where both take operators apart
    with torch.inference_mode(), FlopCounterMode(display=False) as outer:
        counting.run(lambda: model(tokens))
    assert outer.get_total_flops() == counting.flop() == 250_871_808


def test_own_time_is_added_to_the_clock_and_calls_are_timed(monkeypatch):
    # GIVEN a clock that goes on by 1 µs whenever it is read WHEN a step is counted a second time, when all its operators are known
    model, tokens = toy.fused_qkv(), toy.some_tokens()
    counting = Counting(model)
    counting.run(train(model, tokens))
    ticks = itertools.count(counting.clock.monotonic_ns + 10**9, 1000)
    monkeypatch.setattr(ledger, "perf_counter_ns", lambda: next(ticks))
    before = counting.clock.own_ns
    counting.run(train(model, tokens))
    # THEN what the recorder does before and after each call is its own, the call has the time in between
    own, calls = counting.clock.own_ns - before, counting.calls()
    timed = sum(r.measured_time_us for r in counting.records)
    assert timed >= calls and calls * 1000 <= own
    monkeypatch.undo()
    untimed = Counting(model, timed=False)
    untimed.run(train(model, tokens))
    assert {r.measured_time_us for r in untimed.records} <= {None}


def test_work_of_the_host_beside_a_device_is_left_out():
    # GIVEN a mode for a device: timed is off, and every tensor here is on the CPU
    counting = Counting(timed=False)
    counting.run(lambda: [torch.randn(3) + 1 for _ in range(3)])
    assert counting.records == []
    assert counting.ledger.lost == {"work of the host, beside that of the device": 6}


def test_clear_forgets_rows_and_keeps_signatures():
    counting = Counting()
    x = torch.randn(3, 3)
    with counting.on():
        x @ x
        counting.ledger.clear()
        x @ x
        x @ x
    assert counting.calls("mm") == 2
    signatures = list(counting.ledger.signatures)
    counting.run(lambda: x @ x)
    assert counting.ledger.signatures == signatures


def test_a_mode_that_was_given_another_ledger_adds_nothing_to_the_first():
    from tb_sol_plugin.capture.work.ledger import Ledger

    counting = Counting()
    x = torch.randn(3, 3)
    with counting.on() as mode:
        x @ x
        mode.ledger = other = Ledger(counting.labels)
        x @ x
    assert counting.calls("mm") == 1
    assert [row[0] for row in other.rows.values()] == [1]


def test_compiled_modules_are_marked():
    # GIVEN a model whose second layer is said to be compiled
    from tb_sol_plugin.capture.work.ledger import LedgerMode

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    counting = Counting(model)
    counting.run(lambda: model(torch.randn(2, 4)))
    label = next(at for at, label in enumerate(counting.labels.known) if label.name == "1")
    stacks = counting.hooks.stack, counting.phases, counting.patcher.stack
    counting.ledger.clear()
    counting.hooks.attach(model)
    with LedgerMode(counting.ledger, *stacks, counting.clock, compiled={label}):
        train(model, torch.randn(2, 4))()
    counting.hooks.remove()
    assert {r.module_context for r in counting.records if r.compiled} == {"1"}
    assert {r.direction for r in counting.records if r.compiled} == {"fwd", "bwd"}
    assert all(key[5] & ~(BACKWARD | RECOMPUTE | COMPILED) == 0 for key in counting.ledger.rows)


def test_two_threads_count_into_one_ledger():
    # GIVEN two threads, each with the mode of its own, and a model of its own
    models = [nn.Linear(6, 6), nn.Linear(6, 9)]
    counting = Counting(*models)
    for model in models:
        counting.hooks.attach(model)
    barrier = threading.Barrier(2)

    def work(model, rows):
        x = torch.randn(rows, 6)
        with counting.mode():
            barrier.wait()
            for _ in range(20):
                train(model, x)()

    threads = [threading.Thread(target=work, args=(m, n)) for m, n in zip(models, (3, 5), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counting.hooks.remove()
    # THEN both are counted in full, each for its module: 20 passes of 2MNK forward and backward (no gradient of the input)
    assert counting.flop(direction="fwd") == counting.flop(direction="bwd") == 20 * (2 * 3 * 6 * 6 + 2 * 5 * 6 * 9)
    assert not counting.ledger.lost


def test_scripted_modules_are_counted():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    counting = Counting()
    x = torch.randn(3, 4)
    for _ in range(4):  # the runtime profiles two calls and optimizes then
        counting.run(train(scripted, x))
        assert counting.flop() == 2 * (2 * 3 * 4 * 4)


def test_functorch_is_counted_at_its_lowest_level():
    linear, x = nn.Linear(4, 5), torch.randn(3, 4)
    counting = Counting(linear)
    counting.run(lambda: torch.func.grad(lambda a: linear(a).sum())(x))
    assert counting.flop(direction="fwd") == 2 * 3 * 4 * 5
    assert counting.flop(direction="bwd") == 2 * 3 * 4 * 5
    got = counting.run(lambda: torch.func.vmap(torch.func.grad(lambda a: linear(a).sum()))(x))
    assert torch.allclose(got, linear.weight.sum(0).expand(3, 4))
    assert counting.flop() == 2 * (2 * 3 * 4 * 5)


def test_higher_order_attention_is_counted_by_its_formula():
    from torch.nn.attention.flex_attention import flex_attention

    from tb_sol_plugin.capture.work.compiling import CompiledEagerly

    q = torch.randn(1, 2, 128, 16)
    plain = flex_attention(q, q, q)
    counting = Counting()
    with CompiledEagerly():
        result = counting.run(lambda: flex_attention(q, q, q))
    assert torch.equal(plain, result)
    assert counting.flop() == 4 * 2 * 128 * 128 * 16
