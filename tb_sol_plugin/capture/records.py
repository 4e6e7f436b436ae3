"""Rows of the ledger as records that reports and scripts read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

from tb_sol_plugin.capture.costs import data_type_of, op_type_of
from tb_sol_plugin.capture.labels import NONE, Labels
from tb_sol_plugin.capture.operation_registry import OpRecord, Shape
from tb_sol_plugin.capture.signatures import Signature
from tb_sol_plugin.format import BACKWARD, COMPILED, ESTIMATED, RECOMPUTE


def record(
    signature: Signature, key: tuple[int, int, int, int, int, int], row: Sequence[int], labels: Labels,
    supported: Callable[[int], str | None],
) -> OpRecord:  # fmt: skip
    """One row as a record: work is that of all its calls.

    key: as `format.LEDGER_ROW`, up to the flags. row: calls, and their time in ns (-1 not timed).
    """
    _, module, phase, forward_phase, function, flags = key
    count, time_ns = row[0], row[1]
    cost = signature.known
    layer, layer_type = _layer(module, labels, supported)
    return OpRecord(
        name=signature.op,
        op_type=op_type_of(signature.op, cost.kind),
        input_shapes=list(_shapes(signature.shapes, signature.types)),
        output_shapes=list(_shapes(signature.out_shapes, signature.out_types)),
        input_dtypes=list(_dtypes(signature.types)),
        stride0_mask=list(signature.stride0),
        dtype=data_type_of(cost.dtype),
        flops=None if cost.flop is None else cost.flop * count,
        flops_vector=None if cost.flop_vector is None else cost.flop_vector * count,
        bytes=None if cost.bytes is None else cost.bytes * count,
        count=count,
        direction="bwd" if flags & BACKWARD else "fwd",
        is_recompute=bool(flags & RECOMPUTE),
        layer_name=layer,
        layer_type=layer_type,
        func_name=_name(function, labels),
        phase=_name(phase, labels) or "(no phase)",
        module_context=_name(module, labels),
        measured_time_us=None if time_ns < 0 else time_ns / 1000,
        source="hook" if flags & ESTIMATED else "dispatch",
        estimated=bool(flags & ESTIMATED) or cost.estimated,
        forward_phase=_name(forward_phase, labels),
        reason=cost.reason,
        compiled=bool(flags & COMPILED),
    )


def _name(label: int, labels: Labels) -> str:
    return "" if label == NONE else labels.known[label].name


def _layer(module: int, labels: Labels, supported: Callable[[int], str | None]) -> tuple[str, str]:
    """Name and type of the innermost supported layer around a module, itself included."""
    while module != NONE:
        layer_type = supported(module)
        if layer_type:
            return labels.known[module].name, layer_type
        module = labels.known[module].parent
    return "", ""


@lru_cache(maxsize=65536)
def _shapes(shapes: str, types: str) -> tuple[Shape, ...]:
    """Sizes of tensors only, lists opened."""
    out: list[Shape] = []
    for shape, kind in zip(json.loads(shapes), json.loads(types), strict=False):
        if isinstance(kind, list):
            out += [tuple(one) for one in shape]
        elif kind not in ("", "Scalar", "ScalarList"):
            out.append(tuple(shape))
    return tuple(out)


@lru_cache(maxsize=65536)
def _dtypes(types: str) -> tuple[str, ...]:
    out: list[str] = []
    for kind in json.loads(types):
        if isinstance(kind, list):
            out += kind
        elif kind not in ("", "Scalar", "ScalarList"):
            out.append(kind)
    return tuple(out)
