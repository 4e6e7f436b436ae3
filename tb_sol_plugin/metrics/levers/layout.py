"""Copies that only change the order in memory: a library's own layout kernels, and permuting copies of the program."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.cost.inputs import Inputs, Tensor
from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.kernel_name import short_name
from tb_sol_plugin.metrics.levers.case import Case
from tb_sol_plugin.metrics.levers.lever import Lever, counted, over, running, took
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.units import human

CONVERTS: Final = re.compile(r"nchw_?(To|2)_?nhwc|nhwc_?(To|2)_?nchw|batched_transpose_\d|transpose_readWrite|transpose_NCHW2CNHW|transpose_CNHW2NCHW", re.IGNORECASE)
"""Kernels with which cuDNN and MIOpen change the layout around a convolution."""
COPIES: Final = frozenset(("aten::copy_", "aten::clone", "aten::contiguous"))


def layout_kernels(case: Case) -> Lever | None:
    """Layout kernels inside the calls that need another layout: their time goes when the tensors have it from the start."""
    device, owner = case.capture.device, case.fall.work.owner
    if case.on_host or len(owner) != len(device):
        return None
    hit = texts.where(device["name"], lambda n: CONVERTS.search(n) is not None) & (device["kind"].to_numpy() == S.KERNEL)
    rows = np.flatnonzero(hit & (owner >= 0) & (case.fall.own > 0))
    if not len(rows):
        return None
    per = np.bincount(owner[rows], case.fall.own[rows], minlength=len(case.ops)).astype(np.float64)
    calls = np.flatnonzero(per > 0)
    claimed = case.claim(calls, per[calls])
    (kernel,), _ = texts.largest([device["name"]], rows, case.fall.own[rows])
    (operator,), _ = texts.largest([case.ops["name"]], calls, claimed)
    library = "MIOpen" if case.vendor == "amd" else "cuDNN"
    whole = float(case.time[calls].sum())
    return Lever(
        "layout_kernels",
        f"{library} converts the memory layout around convolutions",
        f"{counted(len(rows), 'kernel').capitalize()} such as `{short_name(kernel)}` take {took(per.sum())}, "
        f"{human(float(per.sum()) / whole, 'ratio')} of the {counted(len(calls), 'call')} of `{operator}` and others that run them: NCHW tensors, NHWC kernels.",
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
    (name, shapes), most = texts.largest([case.ops["name"], case.ops["shapes"]], rows, claimed)
    biggest = rows[int(claimed.argmax())]
    images = bool(np.array([_image(call) for _, call in read])[code][permutes][int(claimed.argmax())])
    (layer,), _ = texts.largest([case.ops["layer"]], rows, claimed)
    return Lever(
        "permuting_copies",
        "Copies only change the order of elements in memory",
        f"{running(len(rows), 'permuting copy', 'permuting copies')} {took(claimed.sum())}, {took(most)} of it in {over(name, shapes)}"
        f"{f' inside `{layer}`' if layer else ''}; what reads them may take the first order.",
        case.each(float(claimed.sum())),
        "model.to(memory_format=torch.channels_last)  # and the input: one layout from the first to the last layer"
        if images
        else "# leave out .contiguous() after transpose(): matmul and scaled_dot_product_attention take strided inputs",
        "other",
        "roofline",
        "Copies on the roofline",
        find=str(texts.pick(case.ops["name"], [biggest])[0]),
        candidate=True,
        rows=rows,
        claimed=claimed,
    )  # fmt: skip


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
