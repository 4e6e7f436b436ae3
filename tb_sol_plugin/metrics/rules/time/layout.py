"""Copies that only change the order in memory: a library's own layout kernels, and permuting copies of the program."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.cost.inputs import Inputs, Tensor
from tb_sol_plugin.metrics.rules.engine import Lever, acting, counted, over, took
from tb_sol_plugin.metrics.rules.time.context import Case
from tb_sol_plugin.metrics.rules.time.matmul import product
from tb_sol_plugin.metrics.time.kernel_names import short_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

CONVERTS: Final = re.compile(
    r"nchw_?(to|2)_?nhwc|nhwc_?(to|2)_?nchw|batched_transpose_\d|transpose_readwrite|transpose_(nchw2cnhw|cnhw2nchw)", re.IGNORECASE
)
"""Kernels with which cuDNN and MIOpen change the layout around a convolution."""
COPIES: Final = frozenset(("aten::copy_", "aten::clone", "aten::contiguous"))


def layout_kernels(case: Case) -> Lever | None:
    """Layout kernels inside the calls that need another layout: their time goes when the tensors have it from the start."""
    device, owner = case.capture.device, case.fall.work.owner
    if case.on_host or len(owner) != len(device):
        return None
    hit = arrays.where(device["name"], lambda n: CONVERTS.search(n) is not None) & (device["kind"].to_numpy() == S.KERNEL)
    rows = np.flatnonzero(hit & (owner >= 0) & (case.fall.own > 0))
    if not len(rows):
        return None
    per = np.bincount(owner[rows], case.fall.own[rows], minlength=len(case.ops)).astype(np.float64)
    calls = np.flatnonzero(per > 0)
    claimed = case.claim(calls, per[calls])
    (kernel,), _ = arrays.largest([device["name"]], rows, case.fall.own[rows])
    (operator,), _ = arrays.largest([case.ops["name"]], calls, claimed)
    library = "MIOpen" if case.vendor == "amd" else "cuDNN"
    whole = float(case.time[calls].sum())
    return Lever(
        "layout_kernels",
        f"{library} converts the memory layout around convolutions",
        f"{acting(len(rows), 'kernel', 'takes')} {took(per.sum())} (`{short_name(kernel)}`), "
        f"{human(float(per.sum()) / whole, 'ratio')} of the time of the "
        f"{counted(len(calls), 'call')} that run them, most of them `{operator}`: the tensors are NCHW, the kernels NHWC.",
        case.each(float(claimed.sum())),
        "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
        "conv",
        "kernels",
        "The kernels",
        find=short_name(kernel),
        rows=calls,
        claimed=claimed,
    )


def permuting_copies(case: Case) -> Lever | None:
    """Copies between two dense orders of the same elements, whoever asked for them: the reader of the copy might take the first."""
    if case.spec is None:
        return None
    rows = np.flatnonzero(case.named(COPIES.__contains__) & case.known & (case.left == case.time))
    if not len(rows):
        return None
    code, read = case.by_signature(rows)
    permutes = np.array([_permutes(name, call) for name, call in read], bool)[code]
    rows = rows[permutes]
    if not len(rows):
        return None
    claimed = case.claim(rows, case.left[rows])
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    biggest = rows[int(claimed.argmax())]
    images = bool(np.array([_image(call) for _, call in read])[code][permutes][int(claimed.argmax())])
    (layer,), _ = arrays.largest([case.ops["layer"]], rows, claimed)
    return Lever(
        "permuting_copies",
        "Copies only change the order of elements in memory",
        f"{acting(len(rows), 'permuting copy', 'takes', 'permuting copies')} {took(claimed.sum())}, "
        f"{took(most)} of it in {over(name, shapes)}{f' inside `{layer}`' if layer else ''}; what reads them may take the first order.",
        case.each(float(claimed.sum())),
        "model.to(memory_format=torch.channels_last)  # and the input: one layout from the first to the last layer"
        if images
        else "# leave out .contiguous() after transpose(): matmul and scaled_dot_product_attention take strided inputs",
        "other",
        "roofline",
        "Copies on the roofline",
        find=str(arrays.pick(case.ops["name"], [biggest])[0]),
        candidate=True,
        rows=rows,
        claimed=claimed,
    )  # fmt: skip


LAYERS: Final = re.compile(r"aten::((mkldnn_|_slow_|thnn_|slow_)?conv|\w*batch_norm|\w*(max|avg)_pool|upsample_)\w*")
"""Layers whose CPU kernels vectorise over channels when these lie together."""


def channels_first(case: Case) -> Lever | None:
    """On a CPU: convolutions and their neighbours over NCHW tensors, whose kernels are written for NHWC."""
    if not case.on_host or case.spec is None:
        return None
    conv = case.of_kind("conv") & case.known
    rows = np.flatnonzero(case.named(lambda n: LAYERS.fullmatch(n) is not None) & case.known & (case.left > case.limit))
    if not conv.any() or not len(rows):
        return None
    code, read = case.by_signature(rows)
    rows = rows[np.array([_planes(call) for _, call in read], bool)[code]]
    if not len(rows):
        return None
    spent, least = float(case.left[rows].sum()), float(case.limit[rows].sum())
    claimed = case.claim(rows, case.left[rows] - case.limit[rows])
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    return Lever(
        "channels_first",
        "Convolution, pooling and norm layers work on NCHW tensors",
        f"{acting(len(rows), 'call', 'takes')} {took(spent)} where the limit is {took(least)}, {took(most)} above it in "
        f"{over(name, shapes)}; "
        "the kernels of a CPU work best with the channels last.",
        case.each(float(claimed.sum())),
        "model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
        "conv",
        "roofline",
        "The layers on the roofline",
        find=name,
        candidate=True,
        rows=rows,
        claimed=claimed,
    )


def _planes(call: Inputs) -> bool:
    """Whether image batches of several channels are among the tensors, and the planes of all lie one after another."""
    images = [t for t in call.flat if len(t.shape) == 4 and min(t.shape) > 1]
    return bool(images) and all(_order(t) == (0, 1, 2, 3) for t in images)


def _permutes(name: str, call: Inputs) -> bool:
    """Whether source and result are dense, of one size, and order their elements differently."""
    first, second = call.tensor(0), call.tensor(1)
    if name == "aten::copy_":
        if first is None or second is None or first.shape != second.shape:
            return False
        a, b = _order(first), _order(second)
        return a is not None and b is not None and a != b
    own = _order(first) if first is not None else None
    return name == "aten::contiguous" and own is not None and own != tuple(sorted(own))


def _order(tensor: Tensor) -> tuple[int, ...] | None:
    """Dimensions longer than 1 from the slowest to the fastest, None unless they fill memory without gaps or overlap."""
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
    """Whether a copy goes between NCHW and NHWC."""
    orders = {_order(t) for t in (call.tensor(0), call.tensor(1)) if t is not None}
    return orders == {(0, 1, 2, 3), (0, 2, 3, 1)}


# -- Weights that are kept in FP32 and cast for every step -----------------------------------------------------------
# autocast reads the wide copy and writes the narrow one before each use.


NARROW: Final = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2")


def weight_casts(case: Case) -> Lever | None:
    """Copies from FP32 to a narrow type over exactly the size of a weight that a product or a convolution takes in that type."""
    if case.spec is None:
        return None
    rows = np.flatnonzero(case.named("aten::copy_".__eq__) & case.known & (case.left == case.time))
    users = np.flatnonzero(case.of_kind("gemm", "conv") & case.of_type("bf16", "fp16", "fp8"))
    if not len(rows) or not len(users):
        return None
    code, read = case.by_signature(rows)
    weights = _weights(case, users)
    hit = np.array([_cast(call) in weights for _, call in read], bool)[code]
    rows = rows[hit]
    if not len(rows):
        return None
    claimed = case.claim(rows, case.left[rows])
    (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    trains = len(case.capture.tables["backward"]) > 0
    return Lever(
        "weight_casts",
        "Weights are cast from FP32 in every step",
        f"{acting(len(rows), 'cast', 'takes')} {took(claimed.sum())}, {took(most)} of it in {over(name, shapes)}: each has the size of "
        "a weight that a product takes in the narrow type.",
        case.each(float(claimed.sum())),
        "fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))  # or weights in BF16, FP32 in the optimizer"
        if trains
        else "model = model.to(torch.bfloat16)  # in place of autocast: weights are cast once",
        "other",
        "roofline",
        "Copies on the roofline",
        find=name,
        candidate=True,
        rows=rows,
        claimed=claimed,
    )


def _cast(call: Inputs) -> tuple[int, ...]:
    """Sizes of a tensor that is cast from FP32 to a narrow type as it stands; (0,) for any other copy."""
    to, of = call.tensor(0), call.tensor(1)
    fits = to is not None and of is not None and to.shape == of.shape and of.dtype == "fp32" and to.dtype in NARROW
    return to.shape if fits and to is not None else (0,)


def _weights(case: Case, rows: Ints) -> set[tuple[int, ...]]:
    """Sizes of the weights of some products and convolutions, as modules keep them: (out, in), or of a convolution as recorded."""
    out: set[tuple[int, ...]] = set()
    for name, call in case.by_signature(rows)[1]:
        found = product(name, call)
        weight = call.tensor(1)
        if found is not None and found.batch == 1:
            out.add((found.n, found.k))
        elif "conv" in name and weight is not None and len(weight.shape) > 2:
            out.add(weight.shape)
    return out
