"""Finds copies that only change the order in memory: a library's own layout kernels, and permuting copies of the program."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.cost.inputs import Inputs, Tensor
from tb_sol_plugin.cost.products import product
from tb_sol_plugin.metrics.rules.engine import Answer, count_text, rule, subject_verb, time_text
from tb_sol_plugin.metrics.rules.time.context import TimeContext
from tb_sol_plugin.metrics.time.kernel_names import short_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

CONVERTS: Final = re.compile(
    r"nchw_?(to|2)_?nhwc|nhwc_?(to|2)_?nchw|batched_transpose_\d|transpose_readwrite|transpose_(nchw2cnhw|cnhw2nchw)", re.IGNORECASE
)
"""Kernels with which cuDNN and MIOpen change the layout around a convolution."""
_HINTS: Final = ("nhwc", "nchw", "tran")
"""What `CONVERTS` matches holds one of these in lower case; looking for them is ten times faster."""
COPIES: Final = frozenset(("aten::copy_", "aten::clone", "aten::contiguous"))


def _converts(name: str) -> bool:
    lower = name.lower()
    return any(hint in lower for hint in _HINTS) and CONVERTS.search(name) is not None


@rule(
    "layout_kernels", fix="model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
    page="kernels", label="The kernels", color="conv",
)  # fmt: skip
def layout_kernels(context: TimeContext) -> Answer:
    """Finds layout kernels inside the calls that need another layout: their time goes when the tensors have it from the start."""
    device, owner = context.capture.device, context.waterfall.work.owner
    if context.on_host or len(owner) != len(device):
        return None
    hit = arrays.where(device["name"], _converts, _HINTS) & (device["kind"].to_numpy() == S.KERNEL)
    rows = np.flatnonzero(hit & (owner >= 0) & (context.waterfall.own > 0))
    if not len(rows):
        return None
    per = np.bincount(owner[rows], context.waterfall.own[rows], minlength=len(context.ops)).astype(np.float64)
    calls = np.flatnonzero(per > 0)
    calls = calls[context.explains(calls, per[calls])]
    rows = rows[np.isin(owner[rows], calls)]
    if not len(calls):
        return None
    claim = context.claim(calls, per[calls])
    (kernel,), _ = arrays.largest([device["name"]], rows, context.waterfall.own[rows])
    library = "MIOpen" if context.vendor == "amd" else "cuDNN"
    whole = float(context.time[calls].sum())
    return context.finding(
        f"{subject_verb(len(rows), 'kernel', 'takes')} {time_text(claim.total)} (`{short_name(kernel)}`), "
        f"{human(claim.total / whole, 'ratio')} of the time of the {count_text(len(calls), 'call')} that run them, "
        f"most of them `{claim.largest('name')}`: the tensors are NCHW, the kernels NHWC.",
        claim,
        title=f"{library} converts the memory layout around convolutions",
        names=list(set(arrays.pick(device["name"], rows).tolist())),
    )


@rule(
    "permuting_copies", title="Copies only change the order of elements in memory", page="roofline", label="Copies on the roofline",
    color="other", candidate=True,
)  # fmt: skip
def permuting_copies(context: TimeContext) -> Answer:
    """Finds copies between two dense orders of the same elements, whoever asked for them: the reader of the copy might take the first."""
    if context.spec is None:
        return None
    rows = np.flatnonzero(context.named(COPIES.__contains__) & context.known & (context.left == context.time))
    if not len(rows):
        return None
    code, read = context.by_signature(rows)
    permutes = np.array([_permutes(name, call) for name, call in read], bool)[code]
    rows = rows[permutes]
    if not len(rows):
        return None
    claim = context.claim(rows, context.left[rows])
    layer = claim.largest("layer")
    images = bool(np.array([_image(call) for _, call in read])[code][permutes][claim.worst])
    return context.finding(
        f"{subject_verb(len(rows), 'permuting copy', 'takes', 'permuting copies')} {time_text(claim.total)}, "
        f"{claim.most} of it in {claim.where}{f' inside `{layer}`' if layer else ''}; what reads them may take the first order.",
        claim,
        fix="model.to(memory_format=torch.channels_last)  # and the input: one layout from the first to the last layer"
        if images
        else "# leave out .contiguous() after transpose(): matmul and scaled_dot_product_attention take strided inputs",
    )


LAYERS: Final = re.compile(r"aten::((mkldnn_|_slow_|thnn_|slow_)?conv|\w*batch_norm|\w*(max|avg)_pool|upsample_)\w*")
"""Layers whose CPU kernels vectorize over channels when these lie together."""


@rule(
    "channels_first", title="Convolution, pooling and norm layers work on NCHW tensors",
    fix="model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)", page="roofline",
    label="The layers on the roofline", color="conv", candidate=True,
)  # fmt: skip
def channels_first(context: TimeContext) -> Answer:
    """Finds, on a CPU, convolutions and their neighbors over NCHW tensors, whose kernels are written for NHWC."""
    if not context.on_host or context.spec is None:
        return None
    conv = context.of_kind("conv") & context.known
    rows = np.flatnonzero(context.named(lambda n: LAYERS.fullmatch(n) is not None) & context.known & (context.left > context.limit))
    if not conv.any() or not len(rows):
        return None
    code, read = context.by_signature(rows)
    rows = rows[np.array([_planes(call) for _, call in read], bool)[code]]
    if not len(rows):
        return None
    spent, least = float(context.left[rows].sum()), float(context.limit[rows].sum())
    claim = context.claim(rows, context.left[rows] - context.limit[rows])
    return context.finding(
        f"{subject_verb(len(rows), 'call', 'takes')} {time_text(spent)} where the limit is {time_text(least)}, {claim.most} above it in "
        f"{claim.where}; the kernels of a CPU work best with the channels last.",
        claim,
    )


def _planes(call: Inputs) -> bool:
    """Returns whether image batches of several channels are among the tensors, and the planes of all lie one after another."""
    images = [t for t in call.flat if len(t.shape) == 4 and min(t.shape) > 1]
    return bool(images) and all(_order(t) == (0, 1, 2, 3) for t in images)


def _permutes(name: str, call: Inputs) -> bool:
    """Returns whether source and result are dense, of one size, and order their elements differently."""
    first, second = call.tensor(0), call.tensor(1)
    if name == "aten::copy_":
        if first is None or second is None or first.shape != second.shape:
            return False
        a, b = _order(first), _order(second)
        return a is not None and b is not None and a != b
    own = _order(first) if first is not None else None
    return name == "aten::contiguous" and own is not None and own != tuple(sorted(own))


def _order(tensor: Tensor) -> tuple[int, ...] | None:
    """Returns dimensions longer than 1 from the slowest to the fastest, None unless they fill memory without gaps or overlap."""
    if tensor.strides is None or not tensor.shape:
        return None
    places = [i for i, n in enumerate(tensor.shape) if n > 1]
    order = sorted(places, key=lambda i: -tensor.strides[i] if tensor.strides is not None else 0)
    step = 1
    for i in reversed(order):
        if tensor.strides[i] != step:
            return None
        step *= tensor.shape[i]
    return tuple(order)


def _image(call: Inputs) -> bool:
    """Returns whether a copy goes between NCHW and NHWC."""
    orders = {_order(t) for t in (call.tensor(0), call.tensor(1)) if t is not None}
    return orders == {(0, 1, 2, 3), (0, 2, 3, 1)}


# -- Weights that are kept in FP32 and cast for every step -----------------------------------------------------------
# autocast reads the wide copy and writes the narrow one before each use.


NARROW: Final = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2")


@rule(
    "weight_casts", title="Weights are cast from FP32 in every step", page="roofline", label="Copies on the roofline", color="other",
    candidate=True,
)  # fmt: skip
def weight_casts(context: TimeContext) -> Answer:
    """Finds copies from FP32 to a narrow type over exactly the size of a weight that a product or a convolution takes in that type."""
    if context.spec is None:
        return None
    rows = np.flatnonzero(context.named("aten::copy_".__eq__) & context.known & (context.left == context.time))
    users = np.flatnonzero(context.of_kind("gemm", "conv") & context.of_type("bf16", "fp16", "fp8"))
    if not len(rows) or not len(users):
        return None
    code, read = context.by_signature(rows)
    weights = _weights(context, users)
    hit = np.array([_cast(call) in weights for _, call in read], bool)[code]
    rows = rows[hit]
    if not len(rows):
        return None
    claim = context.claim(rows, context.left[rows])
    trains = len(context.capture.tables["backward"]) > 0
    return context.finding(
        f"{subject_verb(len(rows), 'cast', 'takes')} {time_text(claim.total)}, {claim.most} of it in {claim.where}: each has the size of "
        "a weight that a product takes in the narrow type.",
        claim,
        fix="fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))  # or weights in BF16, FP32 in the optimizer"
        if trains
        else "model = model.to(torch.bfloat16)  # in place of autocast: weights are cast once",
    )


def _cast(call: Inputs) -> tuple[int, ...]:
    """Returns sizes of a tensor that is cast from FP32 to a narrow type as it stands; (0,) for any other copy."""
    to, of = call.tensor(0), call.tensor(1)
    fits = to is not None and of is not None and to.shape == of.shape and of.dtype == "fp32" and to.dtype in NARROW
    return to.shape if fits and to is not None else (0,)


def _weights(context: TimeContext, rows: Ints) -> set[tuple[int, ...]]:
    """Returns sizes of the weights of some products and convolutions, as modules keep them: (out, in), or of a convolution as recorded."""
    out: set[tuple[int, ...]] = set()
    for name, call in context.by_signature(rows)[1]:
        found = product(name, call)
        weight = call.tensor(1)
        if found is not None and found.batch == 1:
            out.add((found.n, found.k))
        elif "conv" in name and weight is not None and len(weight.shape) > 2:
            out.add(weight.shape)
    return out
