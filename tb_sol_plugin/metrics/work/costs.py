"""Computes the cost of every operator call of a recording, once per distinct signature (name, shapes, types, strides, values)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

from tb_sol_plugin import cost
from tb_sol_plugin.cost import Cost, Inputs, Kind
from tb_sol_plugin.cost.inputs import Launch
from tb_sol_plugin.cost.ops.conv import GRADIENT_CALLS, GRADIENT_PLACES, result_sizes
from tb_sol_plugin.cost.ops.experts import BY_NAME, TELLING
from tb_sol_plugin.cost.ops.paged import LENGTHS, READS_LENGTHS
from tb_sol_plugin.cost.ops.triton import POINTWISE
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Mask, Rows, factorize

SIGNATURE = ("shapes", "types", "strides", "concrete")
COMPILED = "triton_"
"""Kernels of the compiler, which record further fields (`kernel_flop`) that their models read."""
Sizes = tuple[int, ...]

ELEMENTS = ("", "bf16", "fp16", "fp32", "fp64", "opaque8", "opaque16", "opaque32", "opaque64", "opaque128")
"""Element types that a kernel name can give away; an opaque type is any type of that size."""
_OPAQUE = {size: f"opaque{8 * size}" for size in (1, 2, 4, 8, 16)}
_WORDS = (("c10::BFloat16", "bf16"), ("__nv_bfloat16", "bf16"), ("c10::Half", "fp16"), ("double", "fp64"), ("float", "fp32"))


class Costs(Struct, frozen=True):
    """The costs of all operator calls, one per distinct signature.

    costs: one per distinct signature that has a usable model. of_host: index into it per host row, -1 none.

    wrapper: per host row, whether its model belongs to an operator that only calls others.
    """

    costs: tuple[Cost, ...]
    of_host: Rows
    wrapper: Mask


def costs(capture: Capture) -> Costs:
    """Returns costs of all operator calls with recorded arguments."""
    return memo(capture, ("work.costs",), lambda: _costs(capture))


def signature_inputs(capture: Capture, row: int) -> Inputs:
    """Returns the recorded arguments of a row of `operators`."""
    table = capture.tables["operators"]
    return Inputs(*("" if pd.isna(text) else str(text) for text in (table[c].iloc[row] for c in SIGNATURE)))


def usable(found: Cost | None) -> bool:
    """Returns whether a cost says enough to place an operation: its traffic, or matrix work."""
    return found is not None and (found.bytes is not None or bool(found.flop))


def _costs(capture: Capture) -> Costs:
    host, table = capture.host, capture.tables["operators"]
    of_host = np.full(len(host), -1, np.int32)
    wrapper = np.zeros(len(host), bool)
    names = arrays.coded(host["name"]).categories.tolist()
    rows = table["host"].to_numpy()
    name_codes = arrays.coded(host["name"]).codes[rows].astype(np.int64)
    there = {code: str(names[code]) for code in arrays.in_use(name_codes, len(names)).tolist()}  # names of kernels are among the others
    models = {code: model for code, name in there.items() if (model := cost.model_for(name)) is not None}

    def named(test: Callable[[str], bool]) -> Mask:
        """Returns per name whether it passes a test; only those of operators are asked about."""
        return _those([code for code, name in there.items() if test(name)], len(names))

    use = np.flatnonzero(_those(models, len(names))[name_codes] & (host["kind"].to_numpy()[rows] == S.OPERATOR)) if len(rows) else rows
    if not len(use):
        return Costs((), of_host, wrapper)
    codes = [arrays.coded(table[c]).codes[use] for c in SIGNATURE]
    own, asked = name_codes[use], rows[use]
    hint = _hints(capture, asked)
    extra = np.where(named(lambda name: name.startswith(COMPILED))[own], arrays.coded(table["extra"]).codes[use].astype(np.int64), -1)
    around, lengths = _lengths(capture, asked, named(READS_LENGTHS.__contains__)[own])
    code_of = {name: code for code, name in there.items()}
    below, made = _gradients(capture, asked, code_of)
    below_grids, launched = _launched(capture, asked, code_of)
    group, first = factorize([own, *codes, hint, extra, around, below, below_grids])
    texts = [arrays.coded(table[c]).categories.tolist() for c in (*SIGNATURE, "extra")]

    parts = [[_text(of, code) for code in column[first].tolist()] for of, column in zip(texts, (*codes, extra), strict=True)]
    more = (hint, around, below, below_grids)
    given = list(zip(*parts, *(column[first].tolist() for column in more), strict=True))

    def call(at: int, result: tuple[int, ...] | None = None) -> Inputs:
        shapes, types, strides, concrete, fields, element, step, inside, kernels = given[at]
        return Inputs(
            shapes, types, strides, concrete, hint=ELEMENTS[element], result=result, extra=fields,
            around=lengths[step] if step >= 0 else "", below=made[inside], launched=launched[kernels],
        )  # fmt: skip

    called = [there[code] for code in own[first].tolist()]
    results = _results([(name, call(at)) for at, name in enumerate(called) if name in GRADIENT_PLACES])
    found: list[Cost] = []
    place = np.full(len(first), -1, np.int32)
    for at, name in enumerate(called):
        arguments = call(at)
        x, weight = (arguments.tensor(0), arguments.tensor(1)) if results else (None, None)
        if x is not None and weight is not None and (x.shape, weight.shape) in results:
            arguments = call(at, results[x.shape, weight.shape])
        answer = cost.estimate(name, arguments)
        if answer is not None and usable(answer):
            place[at] = len(found)
            found.append(answer)
    of_host[asked] = place[group]
    wrapper[asked] = _those([code for code, model in models.items() if model.wrapper], len(names))[own]
    return Costs(tuple(found), of_host, wrapper)


def _those(codes: Iterable[int], count: int) -> Mask:
    """Returns which of the codes below `count` are among some."""
    out = np.zeros(count, np.bool_)
    out[list(codes)] = True
    return out


def _lengths(capture: Capture, rows: Rows, ask: Mask) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Returns per operator row the place of the annotation around it that tells lengths of sequences, -1 none; and those names."""
    host = capture.host
    out = np.full(len(rows), -1, np.int64)
    if not ask.any():
        return out, []
    names = [str(n) for n in host["name"].cat.categories]
    names_lengths = np.fromiter((LENGTHS.search(n) is not None for n in names), bool, len(names))
    mask = (host["kind"].to_numpy() == S.ANNOTATION) & names_lengths[arrays.coded(host["name"]).codes]
    start = host["start_ns"].to_numpy()
    end, last = start + host["duration_ns"].to_numpy(), host["end"].to_numpy()
    row = tree.nearest(mask, host["parent"].to_numpy(), end, rows[ask], start[rows[ask]], last)
    out[ask] = np.where(row >= 0, arrays.coded(host["name"]).codes[row], -1)
    return out, names


def _gradients(capture: Capture, rows: Rows, code_of: Mapping[str, int]) -> tuple[npt.NDArray[np.int64], list[tuple[str, ...]]]:
    """Returns per operator row a place in the list of what is inside it: the calls that make one gradient each, () for most rows.

    code_of: codes of the names of operators.
    """
    out = np.zeros(len(rows), np.int64)
    code = arrays.coded(capture.host["name"]).codes
    own = code[rows]
    end = capture.host["end"].to_numpy()
    inside: list[tuple[str, ...]] = [()]
    for parent, parts in GRADIENT_CALLS.items():
        ask = np.flatnonzero(own == code_of[parent]) if parent in code_of else np.zeros(0, np.int64)
        if not len(ask):
            continue
        names = arrays.coded(capture.host["name"]).categories.tolist()
        bits = np.zeros(len(ask), np.int64)
        for at, part in enumerate(parts):
            calls = np.flatnonzero(code == names.index(part)) if part in names else np.zeros(0, np.int64)
            inside_of = np.searchsorted(calls, end[rows[ask]]) > np.searchsorted(calls, rows[ask])
            bits |= inside_of.astype(np.int64) << at
        out[ask] = np.where(bits > 0, len(inside) - 1 + bits, 0)
        inside += [tuple(part for at, part in enumerate(parts) if bit >> at & 1) for bit in range(1, 1 << len(parts))]
    return out, inside


MOST_LAUNCHED: Final = 3
"""Kernels that tell sizes, of one call; no model reads more than two."""


def _launched(capture: Capture, rows: Rows, code_of: Mapping[str, int]) -> tuple[npt.NDArray[np.int64], list[tuple[Launch, ...]]]:
    """Returns per operator row a place in the list of launched kernels that tell sizes, where a model reads them; else ().

    code_of: codes of the names of operators.
    """
    out = np.zeros(len(rows), np.int64)
    code = arrays.coded(capture.host["name"]).codes[rows]
    ask = np.flatnonzero(np.isin(code, [k for name, k in code_of.items() if name in BY_NAME or name.startswith(POINTWISE)]))
    device = capture.device
    telling = np.flatnonzero(arrays.where(device["name"], _tells)) if len(ask) else ask
    operator = device["operator"].to_numpy()[telling]
    telling, operator = telling[operator >= 0], operator[operator >= 0]
    if not len(telling):
        return out, [()]
    order = np.argsort(operator, kind="stable")  # of one call in order of start
    telling, operator = telling[order], operator[order]
    low, high = np.searchsorted(operator, rows[ask]), np.searchsorted(operator, capture.host["end"].to_numpy()[rows[ask]])
    kernels, grids = arrays.coded(device["name"]), arrays.coded(device["grid"])
    which, example = factorize([kernels.codes[telling], grids.codes[telling]])
    at = low[:, None] + np.arange(MOST_LAUNCHED)
    kind = np.where(at < high[:, None], which[np.minimum(at, len(which) - 1)], -1)
    group, first = factorize([np.ascontiguousarray(kind[:, k]) for k in range(MOST_LAUNCHED)])
    out[ask] = 1 + group
    texts, blocks = kernels.categories.tolist(), grids.categories.tolist()
    made = [Launch(_text(texts, kernels.codes[row]), _grid(_text(blocks, grids.codes[row]))) for row in telling[example].tolist()]
    return out, [(), *(tuple(made[k] for k in kind[row].tolist() if k >= 0) for row in first.tolist())]


def _tells(kernel: str) -> bool:
    return kernel.startswith(POINTWISE) or TELLING.fullmatch(kernel) is not None


def _grid(text: str) -> tuple[int, ...]:
    """Returns the blocks of `[x,y,z]`, () for what is none."""
    found = re.fullmatch(r"\[\s{0,9}(\d{1,18})\s{0,9},\s{0,9}(\d{1,18})\s{0,9},\s{0,9}(\d{1,18})\s{0,9}\]", text)
    return tuple(map(int, found.groups())) if found is not None else ()


def _text(categories: list[object], code: int | np.integer) -> str:
    return str(categories[code]) if code >= 0 else ""


def element_of(kernel: str) -> str:
    """Returns the element type that a kernel's template arguments name, "" if none or several.

    FP32 beside a 16-bit type is its arithmetic.
    """
    opaque = re.search(r"OpaqueType<(\d{1,9})u?>", kernel)
    if opaque:
        return _OPAQUE.get(int(opaque[1]), "")
    found = {dtype for word, dtype in _WORDS if re.search(rf"\b{re.escape(word)}\b", kernel)}
    if len(found) > 1:
        found.discard("fp32")
    return found.pop() if len(found) == 1 else ""


def _hints(capture: Capture, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Returns per operator row the place in ELEMENTS of the type that its first kernel names; only for calls with tensor lists."""
    out = np.zeros(len(rows), np.int64)
    table = capture.tables["operators"]
    types = arrays.coded(table["types"])
    lists = np.append(np.fromiter(("TensorList" in str(t) for t in types.categories), bool, len(types.categories)), False)
    ask = np.flatnonzero(lists[types.codes[capture.operator_of_host[rows]]])
    if not len(ask):
        return out
    operator = capture.device["operator"].to_numpy()
    launched = np.flatnonzero((operator >= 0) & (capture.device["kind"].to_numpy() == S.KERNEL))
    if not len(launched):
        return out
    launched = launched[np.argsort(operator[launched], kind="stable")]
    slot = np.searchsorted(operator[launched], rows[ask])
    slot_ok = slot < len(launched)
    first = launched[np.minimum(slot, len(launched) - 1)]
    inside = slot_ok & (operator[first] < capture.host["end"].to_numpy()[rows[ask]])
    names = capture.device["name"].cat
    used, place = np.unique(names.codes.to_numpy()[first[inside]], return_inverse=True)
    element = np.array([ELEMENTS.index(element_of(str(names.categories[code]))) for code in used.tolist()], np.int64)
    out[ask[inside]] = element[place.reshape(-1)]
    return out


def _results(calls: list[tuple[str, Inputs]]) -> dict[tuple[Sizes, Sizes], Sizes]:
    """Returns sizes of convolution results by input and weight, where backward calls tell exactly one."""
    found: dict[tuple[Sizes, Sizes], Sizes | None] = {}
    for name, call in calls:
        reported = result_sizes(name, call)
        if reported is not None:
            x, weight, result = reported
            found[x, weight] = result if found.get((x, weight), result) == result else None
    return {key: result for key, result in found.items() if result is not None}


# -- Words for work --------------------------------------------------------------------------------------------------
# its kinds and its directions, in the order of their codes.


KINDS: Final[tuple[Kind, ...]] = ("gemm", "attention", "conv", "norm", "elementwise", "other")
DIRECTIONS: Final = ("fwd", "bwd")
