"""Fused optimizers over lists of parameters, gradients and state. Every array is read once, those that change written once.

FLOP per parameter: SGD 2, with momentum 4; Adagrad 6; Adam and AdamW 12 (moments 6, bias correction and step 6). With FP32 state,
Adam moves 28 bytes per parameter. Lists carry no element type: it is read from the name of the kernel, one type for all lists.
Source: the update rules: Kingma and Ba, Adam (2014); Loshchilov and Hutter, AdamW (2017); Duchi et al., Adagrad (2011).
Limits: a master copy in another type counts in the one type of the lists.
"""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.inputs import Inputs
from tb_sol_plugin.cost.model import Cost, model, pattern
from tb_sol_plugin.cost.ops.pointwise import lists, reason, vector, written

ADAM: Final = 12
SGD: Final = 2
SGD_MOMENTUM: Final = 4
ADAGRAD: Final = 6


def _optimizer(call: Inputs, read: tuple[int, ...], changed: tuple[int, ...], per_parameter: int) -> Cost | None:
    parameters = call.tensors(0)
    if not parameters:
        return None
    traffic = [t.bytes for at in read for t in call.tensors(at)] + [b for at in changed for b in written(call.tensors(at))]
    return vector(parameters[0].dtype, per_parameter * sum(t.numel for t in parameters), *traffic, reason=reason(call))


@model("aten::_fused_adam_", "aten::_fused_adamw_", kind="elementwise")
def fused_adam(call: Inputs) -> Cost | None:
    """_fused_adam_(parameters, gradients, m, v, max_v, steps, ...): 7 arrays in all, 9 with max_v; 12 FLOP per parameter."""
    return _optimizer(call, (0, 1, 2, 3, 4), (0, 2, 3, 4), ADAM)


@model("aten::_fused_sgd_", kind="elementwise")
def fused_sgd(call: Inputs) -> Cost | None:
    """_fused_sgd_(parameters, gradients, momentum, ...): 3 arrays and 2 FLOP per parameter, 5 and 4 with momentum."""
    return _optimizer(call, (0, 1, 2), (0, 2), SGD_MOMENTUM if call.tensors(2) else SGD)


@model("aten::_fused_adagrad_", kind="elementwise")
def fused_adagrad(call: Inputs) -> Cost | None:
    """_fused_adagrad_(parameters, gradients, sums, steps, ...): 5 arrays; 6 FLOP per parameter."""
    return _optimizer(call, (0, 1, 2), (0, 2), ADAGRAD)


MULTI_TENSOR: Final = "arrays of a multi-tensor kernel in the order of apex; one element type for all"


@pattern(r"(\w+::)?multi_tensor_(fused_)?adam\w*", kind="elementwise")
def multi_tensor_adam(call: Inputs) -> Cost | None:
    """multi_tensor_adam(chunk, flag, [gradients, parameters, m, v[, copies]], ...) as apex and Transformer Engine name it.

    Needs the four lists: gradients read, the others read and written, a fifth one (low-precision copies) written; 12 FLOP each.
    """
    found = lists(call)
    if len(found) not in (4, 5) or len({sum(t.numel for t in tensors) for tensors in found}) != 1:
        return None
    traffic = [t.bytes for tensors in found[:4] for t in tensors] + [b for tensors in found[1:] for b in written(tensors)]
    return vector(found[0][0].dtype, ADAM * sum(t.numel for t in found[0]), *traffic, reason=MULTI_TENSOR)


@pattern(r"(\w+::)?multi_tensor_(scale|axpby|l2norm)\w*", kind="elementwise")
def multi_tensor(call: Inputs) -> Cost | None:
    """multi_tensor_scale(chunk, flag, [in, out], scale): all but the last list read and the last written; `l2norm` only reads."""
    found = lists(call)
    if not found:
        return None
    reads = found if len(found) == 1 else found[:-1]
    traffic = [t.bytes for tensors in reads for t in tensors] + ([] if len(found) == 1 else written(found[-1]))
    return vector(found[0][0].dtype, 2 * sum(t.numel for t in found[0]), *traffic, reason=MULTI_TENSOR)
