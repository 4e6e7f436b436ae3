"""Forward, backward and recomputed work of steps recorded on the CPU with activation checkpointing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.ownership import recomputed
from tb_sol_plugin.metrics.work.work import Work, work
from tb_sol_plugin.model.capture import Capture

torch = pytest.importorskip("torch")

ROWS, WIDE, NARROW, BLOCKS = 32, 128, 64, 3
FORWARD = BLOCKS * 2 * 2 * ROWS * WIDE * NARROW
"""FLOP of two linear layers per block."""


def _capture(path: Path, step: object, *, stack: bool = False, shapes: bool = True) -> Capture:
    profile = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=shapes, with_stack=stack, with_modules=stack
    )
    with profile as profiler:
        step()  # type: ignore[operator]
    profiler.export_chrome_trace(str(path))
    return read(str(path))


def _recorded(path: Path, step: object, *, stack: bool = False) -> Work:
    return work(_capture(path, step, stack=stack))


def _sums(done: Work) -> tuple[int, int, int]:
    """(forward, recomputed, backward) matrix FLOP."""
    ops = done.ops[done.ops["flop"] > 0]
    backward, again = ops["direction"] == "bwd", ops["recompute"]
    assert not (backward & again).any()
    return tuple(int(ops.loc[mask, "flop"].sum()) for mask in (~backward & ~again, again, backward))  # type: ignore[return-value]


def _step(mode: str) -> None:
    from torch.utils.checkpoint import checkpoint

    nn = torch.nn
    blocks = [nn.Sequential(nn.Linear(NARROW, WIDE), nn.ReLU(), nn.Linear(WIDE, NARROW)) for _ in range(BLOCKS)]
    x = torch.randn(ROWS, NARROW, requires_grad=True)
    for block in blocks:
        x = x + (block(x) if mode == "none" else checkpoint(block, x, use_reentrant=mode == "reentrant"))
    x.sum().backward()


@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize(("mode", "again"), [("none", 0), ("reentrant", FORWARD), ("non_reentrant", FORWARD)])
def test_checkpointed_blocks_run_forward_once_more(tmp_path: Path, mode: str, again: int, stack: bool) -> None:
    # GIVEN three blocks of two linear layers, with every input's gradient: backward is twice forward
    # WHEN they are recorded with either kind of checkpointing
    done = _recorded(tmp_path / "step.pt.trace.json", lambda: _step(mode), stack=stack)
    # THEN forward and backward are as without, and the forward work inside the backward pass stands apart
    assert _sums(done) == (FORWARD, again, 2 * FORWARD)


def test_a_differentiated_backward_pass_is_not_a_recomputed_one(tmp_path: Path) -> None:
    # GIVEN a gradient penalty: the operators of the first backward pass draw sequence numbers, over the sizes of the forward pass
    def step() -> None:
        x, w = (torch.randn(32, 32, requires_grad=True) for _ in range(2))
        (g,) = torch.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)
        (g**2).sum().backward()

    done = _recorded(tmp_path / "step.pt.trace.json", step)
    # THEN one product is forward, the others are backward
    assert _sums(done)[1] == 0
    assert not done.ops["recompute"].any()
    assert _sums(done)[0] == 2 * 32**3


@contextlib.contextmanager
def _copied_state():
    """Copies a random state before the forward pass runs again, as checkpointing does on a GPU."""
    torch.get_rng_state().clone()
    yield


def _checkpoint(block: object, x: object, mode: str) -> object:
    from torch.utils.checkpoint import checkpoint

    if mode == "none":
        return block(x)  # type: ignore[operator]
    more = {"context_fn": lambda: (contextlib.nullcontext(), _copied_state())} if mode == "copies_state" else {}
    return checkpoint(block, x, use_reentrant=mode == "reentrant", **more)  # type: ignore[arg-type]


def _conv_net(mode: str) -> None:
    """A stem, two blocks of two convolutions of 4 channels over 6 x 6 positions, and a head."""
    nn = torch.nn

    def block() -> object:
        inner = [nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1)]
        return nn.Sequential(*inner, nn.BatchNorm2d(4), nn.ReLU())

    x = nn.Conv2d(3, 4, 3, padding=1)(torch.randn(2, 3, 6, 6, requires_grad=True))
    for part in (block(), block()):
        x = x + _checkpoint(part, x, mode)  # type: ignore[operator]
    nn.Linear(4, 5)(x.mean((2, 3))).pow(2).sum().backward()


CONV_BLOCKS = 2 * 2 * (2 * 2 * 6 * 6 * 4 * 4 * 9)
"""FLOP of the convolutions in blocks: blocks x convolutions x (2 x batch x rows x columns x channels in x out x window)."""
CONV_FORWARD = CONV_BLOCKS + 2 * 2 * 6 * 6 * 3 * 4 * 9 + 2 * 2 * 4 * 5


def _transformer(mode: str) -> None:
    """Two encoder layers of width 16 with 2 heads and an inner width of 32, over 3 x 6 tokens."""
    nn = torch.nn
    x = torch.randn(3, 6, 16, requires_grad=True)
    for _ in range(2):
        x = _checkpoint(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), x, mode)  # type: ignore[assignment]
    x.sum().backward()


TRANSFORMER_FORWARD = 2 * (2 * 3 * 6 * 16 * (3 * 16 + 16 + 2 * 32) + 2 * 2 * 3 * 6 * 6 * 16)
"""FLOP: layers x (projections and the two layers inside, on every token, and both products of the attention)."""


@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize("mode", ["none", "reentrant", "non_reentrant", "copies_state"])
@pytest.mark.parametrize(
    ("net", "forward", "again"),
    [(_conv_net, CONV_FORWARD, CONV_BLOCKS), (_transformer, TRANSFORMER_FORWARD, TRANSFORMER_FORWARD)],
    ids=["convolutions", "transformer"],
)
def test_what_runs_again_is_what_the_checkpoint_holds(
    tmp_path: Path, net: object, forward: int, again: int, mode: str, stack: bool
) -> None:
    # GIVEN a net whose blocks are checkpointed, on the way back also with a copy that the forward pass does not make
    done = _recorded(tmp_path / "step.pt.trace.json", lambda: net(mode), stack=stack)  # type: ignore[operator]
    # THEN the blocks' products run once more, and the backward pass holds two products for each of the forward pass, as without
    assert _sums(done) == (forward, 0 if mode == "none" else again, 2 * forward)
    # AND the copy is not taken for forward work
    copies = done.ops[(done.ops["name"] == "aten::clone") & done.ops["recompute"]]
    assert not len(copies[copies["shapes_json"].astype(str).str.startswith("[[5")])


@pytest.mark.parametrize("mode", ["none", "reentrant", "non_reentrant", "copies_state"])
def test_what_runs_again_is_found_without_sizes(tmp_path: Path, mode: str) -> None:
    # GIVEN the convolutions, recorded without sizes
    c = _capture(tmp_path / "step.pt.trace.json", lambda: _conv_net(mode), shapes=False)
    # THEN the four convolutions of the blocks run again, by name; those of the gradients do not
    names = c.host["name"].astype(str)[recomputed(c)]
    assert (names == "aten::convolution").sum() == (0 if mode == "none" else 4)
    assert not names.str.contains("convolution_backward").any()


def _functions() -> dict[str, object]:
    """Steps whose backward pass calls operators of the forward pass with the same sizes, of which nothing runs again."""
    weight = torch.randn(4, 4, 3, 3, requires_grad=True)
    square = torch.randn(16, 16, requires_grad=True)
    functional, function = torch.nn.functional, torch.autograd.Function

    class GradientByConvolution(function):  # the gradient of a convolution's input is a convolution of the same sizes
        @staticmethod
        def forward(ctx, x, w):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x, w)
            return functional.conv2d(x, w, padding=1)

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            x, w = ctx.saved_tensors
            gradient = functional.conv2d(g, w.transpose(0, 1).flip(2, 3), padding=1)
            return gradient, torch.nn.grad.conv2d_weight(x, w.shape, g, padding=1)

    class Implicit(function):  # differentiates another expression than that of the forward pass
        @staticmethod
        def forward(ctx, x, w):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x, w)
            return (x @ w).tanh().exp()

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            x, w = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                z = y @ w.t()
            return torch.autograd.grad(z, y, g)[0], x.t() @ g

    def image() -> object:
        return torch.randn(2, 4, 6, 6, requires_grad=True)

    def by_convolution() -> None:
        GradientByConvolution.apply(functional.conv2d(image(), weight, padding=1).relu(), weight).sum().backward()

    def penalty() -> None:
        x = image()
        y = GradientByConvolution.apply(functional.conv2d(x, weight, padding=1).tanh(), weight)
        torch.autograd.grad(y.sum(), x, create_graph=True)[0].pow(2).sum().backward()

    def implicit() -> None:
        Implicit.apply(torch.randn(16, 16, requires_grad=True), square).sum().backward()

    def hook() -> None:
        def changed(g):  # type: ignore[no-untyped-def]
            with torch.enable_grad():
                return g.clone() @ square

        y = torch.randn(16, 16, requires_grad=True) @ square
        y.register_hook(changed)
        y.clone().tanh().sum().backward()

    def plain() -> None:
        _conv_net("none")

    return {f.__name__: f for f in (by_convolution, penalty, implicit, hook, plain)}


@pytest.mark.parametrize("name", ["by_convolution", "penalty", "implicit", "hook", "plain"])
@pytest.mark.parametrize("shapes", [True, False])
def test_operators_of_a_backward_pass_that_look_like_forward_ones_do_not_run_again(tmp_path: Path, name: str, shapes: bool) -> None:
    # GIVEN a backward pass with operators of the forward pass's names and sizes: in custom functions, in a hook, differentiated itself
    c = _capture(tmp_path / "step.pt.trace.json", _functions()[name], shapes=shapes)
    # THEN nothing is called recomputation
    assert not recomputed(c).any()


def test_a_function_that_runs_its_forward_pass_again_by_hand_is_recomputation(tmp_path: Path) -> None:
    # GIVEN a custom function whose backward pass runs (x w).tanh() again and differentiates it
    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x, w)
            return (x @ w).tanh()

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            with torch.enable_grad():
                y = (x @ w).tanh()
            return torch.autograd.grad(y, (x, w), g)

    def step() -> None:
        x, w = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
        ByHand.apply(x, w).sum().backward()

    # THEN one product is forward, one runs again, two are its gradients
    product = 2 * 16**3
    assert _sums(_recorded(tmp_path / "step.pt.trace.json", step)) == (product, product, 2 * product)
