"""Losses. A loss with reduction writes one number, without one as many as it has elements; a gradient is as large as the input.

FLOP per element: 3 for losses of a difference (subtract, square or abs, add up), 4 for those with logarithms.
Source: the definitions of the losses in PyTorch's documentation.
Limits: targets that are ignored count like the others.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.elementwise import pointwise
from tb_sol_plugin.cost.inputs import Inputs, Tensor, broadcast, size_of, wider
from tb_sol_plugin.cost.model import Cost, Direction, model
from tb_sol_plugin.cost.norm import SOFTMAX
from tb_sol_plugin.cost.parts import count, given, like, moved, read, vector

NO_REDUCTION: Final = "reduction not recorded: one number assumed as result"


def _loss(call: Inputs, reduction_at: int, *, per_element: int, also: tuple[int, ...] = ()) -> Cost | None:
    """(x, target, ...): both and the optional weights read; the reduction is 0 none, 1 mean, 2 sum."""
    x, target = call.tensor(0), call.tensor(1)
    shape = broadcast(x.shape, target.shape) if x is not None and target is not None else None
    if x is None or target is None or shape is None:
        return None
    whole = Tensor(shape, wider(x.dtype, target.dtype))
    reduction = count(call, reduction_at)
    out = whole.numel if reduction == 0 else 1
    return vector(
        whole.dtype, per_element * whole.numel, *read(x, target, *given(call, *also)), size_of(out, whole.dtype),
        reason="" if reduction is not None else NO_REDUCTION,
    )  # fmt: skip


@model("aten::mse_loss", "aten::l1_loss", "aten::soft_margin_loss", kind="elementwise")
def difference(call: Inputs) -> Cost | None:
    """mse_loss(x, target, reduction): 3 n FLOP; x and target read, the result written. What it calls below belongs to it."""
    return _loss(call, 2, per_element=3)


@model("aten::smooth_l1_loss", "aten::huber_loss", kind="elementwise")
def smooth(call: Inputs) -> Cost | None:
    """smooth_l1_loss(x, target, reduction, beta): 3 n FLOP."""
    return _loss(call, 2, per_element=3)


@model("aten::binary_cross_entropy", kind="elementwise")
def binary_cross_entropy(call: Inputs) -> Cost | None:
    """binary_cross_entropy(x, target, weight, reduction): 4 n FLOP."""
    return _loss(call, 3, per_element=4, also=(2,))


@model("aten::binary_cross_entropy_with_logits", kind="elementwise")
def with_logits(call: Inputs) -> Cost | None:
    """binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction): 4 n FLOP; several kernels, one pass counted."""
    return _loss(call, 4, per_element=4, also=(2, 3))


@model("aten::kl_div", kind="elementwise")
def kl_div(call: Inputs) -> Cost | None:
    """kl_div(x, target, reduction, log_target): 4 n FLOP."""
    return _loss(call, 2, per_element=4)


@model("aten::mse_loss_backward", "aten::l1_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward",
       "aten::binary_cross_entropy_backward", "aten::soft_margin_loss_backward", "aten::kl_div_backward", kind="elementwise")  # fmt: skip
def loss_gradient(call: Inputs) -> Cost | None:
    """mse_loss_backward(grad, x, target, reduction): x and target read, a gradient like x written; n FLOP."""
    operands = given(call, 0, 1, 2)
    return pointwise(operands, direction="bwd") if len(operands) == 3 else None


@model("aten::cross_entropy_loss", kind="norm", wrapper=True)
def cross_entropy(call: Inputs) -> Cost | None:
    """cross_entropy_loss(logits[B, V, ...], target, ...), where neither softmax nor loss was recorded below it: 5 B V FLOP.

    Logits and targets read, the loss written; the log-probabilities in between could stay on the chip.
    """
    logits, target = call.tensor(0), call.tensor(1)
    if logits is None or target is None or not logits.shape:
        return None
    out = target.numel if count(call, 3) == 0 else 1
    return vector(logits.dtype, SOFTMAX * logits.numel, *read(logits, target, call.tensor(2)), size_of(out, logits.dtype), kind="norm")


def _nll(call: Inputs, direction: Direction = "fwd") -> Cost | None:
    scores, target = call.tensor(0), call.tensor(1)
    if scores is None or target is None:
        return None
    out = target.numel if count(call, 3) == 0 else 1
    return moved(
        scores.dtype, size_of(target.numel, scores.dtype), *read(target, call.tensor(2)), size_of(out, scores.dtype), flop=target.numel,
        direction=direction,
    )  # fmt: skip


@model("aten::nll_loss_forward", "aten::nll_loss2d_forward", kind="other")
def nll_loss_forward(call: Inputs) -> Cost | None:
    """nll_loss_forward(scores[B, V], target[B], weight, reduction, ignore): one score per target read, the loss written."""
    return _nll(call)


@model("aten::nll_loss", "aten::nll_loss2d", "aten::nll_loss_nd", kind="other", wrapper=True)
def nll_loss(call: Inputs) -> Cost | None:
    """nll_loss(scores, target, weight, reduction, ignore), where no forward was recorded below it."""
    return _nll(call)


@model("aten::nll_loss_backward", "aten::nll_loss2d_backward", kind="other")
def nll_loss_backward(call: Inputs) -> Cost | None:
    """nll_loss_backward(grad, scores, target, ...): the gradient is zeroed, then one element per target written."""
    scores, target = call.tensor(1), call.tensor(2)
    if scores is None or target is None:
        return None
    return moved(scores.dtype, like(scores), size_of(target.numel, scores.dtype), target.bytes, direction="bwd")


@model("LigerCrossEntropyFunction", "CrossEntropyFunction", kind="norm")
def liger_cross_entropy(call: Inputs) -> Cost | None:
    """LigerCrossEntropyFunction(logits[..., V], target, ...): the gradient is written over the logits in the forward pass; 7 B V FLOP."""
    logits, target = call.tensor(0), call.tensor(1)
    if logits is None or target is None or len(logits.shape) < 2:
        return None
    return vector(logits.dtype, 7 * logits.numel, *read(logits, target), like(logits), kind="norm")
