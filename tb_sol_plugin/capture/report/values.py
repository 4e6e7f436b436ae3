"""The scalars and the four tables that a step is logged as; TensorBoard and W&B get the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from tb_sol_plugin.capture.report.analysis import Analysis, TopOperation
from tb_sol_plugin.capture.work.sums import Group

Cell: TypeAlias = "str | int | float | None"

GROUP_COLUMNS: Final = (
    "name", "count", "estimated_ms", "share_pct", "measured_ms", "efficiency_pct", "tflops", "memory_gb", "bound",
)  # fmt: skip
"""tflops: matrix FLOP / 1e12, a count; memory_gb: 1e9 bytes. None is unknown."""
TOP_COLUMNS: Final = (
    "rank", "name", "layer_name", "phase", "direction", "shapes", "dtype", "count", "flops", "bytes", "arithmetic_intensity",
    "estimated_us", "measured_us", "efficiency_pct", "bound", "flags",
)  # fmt: skip
"""flops, bytes: of all calls, matrix and vector FLOP together. flags: names separated by blanks, see `roofline.FLAGS`."""
AGE: Final = "sol/capture_age_iters"
LONGEST: Final = 200
"""Characters of a group's name in the name of a metric."""


def scalars(analysis: Analysis) -> dict[str, float]:
    """Returns every scalar of a step by name; what is not known is left out, never 0."""
    total = analysis.total
    found: dict[str, float | None] = {
        "sol/total_ops": total.count,
        "sol/total_tflops": _per(total.flops, 1e12),
        "sol/total_memory_gb": _per(total.bytes, 1e9),
        "sol/estimated_time_ms": _per(total.estimated_us, 1e3),
        "sol/measured_time_ms": _per(total.measured_us, 1e3),
        "sol/efficiency_pct": _percent(total.efficiency),
        AGE: analysis.age,
    }
    sections = (("sol_layer", analysis.layers), ("sol_func", analysis.functions), ("sol_phase", analysis.phases))
    for prefix, groups in sections:
        for group in groups:
            name = f"{prefix}/{' '.join(group.name.split())[:LONGEST]}"
            found[f"{name}/count"] = group.count
            found[f"{name}/estimated_ms"] = _per(group.estimated_us, 1e3)
            found[f"{name}/measured_ms"] = _per(group.measured_us, 1e3)
            found[f"{name}/efficiency_pct"] = _percent(group.efficiency)
    return {name: value for name, value in found.items() if value is not None}


def tables(analysis: Analysis) -> dict[str, tuple[tuple[str, ...], list[list[Cell]]]]:
    """Returns the four tables of the last sampled step by name: columns and rows."""
    analysis = analysis.reported
    return {
        "sol/by_layer_type": (GROUP_COLUMNS, _group_rows(analysis.layers)),
        "sol/by_function": (GROUP_COLUMNS, _group_rows(analysis.functions)),
        "sol/by_phase": (GROUP_COLUMNS, _group_rows(analysis.phases)),
        "sol/top_operations": (TOP_COLUMNS, [_top_row(operation) for operation in analysis.top]),
    }


def _group_rows(groups: Iterable[Group]) -> list[list[Cell]]:
    return [
        [
            group.name,
            group.count,
            _per(group.estimated_us, 1e3),
            _percent(group.share),
            _per(group.measured_us, 1e3),
            _percent(group.efficiency),
            _per(group.flops, 1e12),
            _per(group.bytes, 1e9),
            group.bound.value,
        ]
        for group in groups
    ]


def _top_row(operation: TopOperation) -> list[Cell]:
    return [
        operation.rank,
        operation.name,
        operation.layer_name,
        operation.phase,
        operation.direction,
        shapes_text(operation.shapes),
        operation.dtype.value,
        operation.count,
        operation.flops,
        operation.bytes,
        operation.arithmetic_intensity,
        operation.estimated_us,
        operation.measured_us,
        _percent(operation.efficiency),
        operation.bound.value,
        " ".join(operation.flags),
    ]


def shapes_text(shapes: Iterable[object], longest: int = 120) -> str:
    """Formats sizes as a person reads them: `[128, 64] [64]`; scalars and missing tensors are left out."""
    text = " ".join(str(list(shape)) for shape in shapes if isinstance(shape, list | tuple) and len(shape))
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _per(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100.0 * ratio
