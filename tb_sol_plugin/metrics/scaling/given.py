"""Points that a person writes down: a small JSON or CSV file beside the runs, or named on the command line.

JSON holds lists of equal length (seconds), CSV the same names as columns. Only the first three and one of the times are needed:

    {"num_nodes": [1, 2], "num_replicas": [4, 8], "atomic_bsz": [32, 32], "accum_step_time": [0.30, 0.30], "optim_step_time": [0.34, 0.41]}

A list `run` names the run that a point is of: it then stands over what that run's recordings say of the same configuration. JSON may
also tell `grad_params` ({"sqr", "var"}), `init_batch_size`, `max_batch_size`, `atomic_bsz_range` ([low, high]) and `accumulation`, with
points or without. Gradient statistics may also stand in scalars that the program wrote for TensorBoard.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.scaling.points import Point, checked

SQR_TAG: Final = "adaptdl/grad_sqr"
VAR_TAG: Final = "adaptdl/grad_var"
FILES: Final = ("sol_scaling.json", "sol_scaling.csv", f"scalar:{SQR_TAG}", f"scalar:{VAR_TAG}")
"""Names under which it is found beside the runs, and scalars of TensorBoard that tell gradient statistics."""
NEEDED: Final = ("num_nodes", "num_replicas", "atomic_bsz", "optim_step_time")
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of such a file at most."""
MOST: Final = 20_000
_HINT: Final = "lists num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time of equal length, times in seconds"


@dataclass(frozen=True)
class Given:
    """points, and what else the file tells; None and 0 are unknown. bad: rows that were left out, with the reason.

    grads_from: where sqr and var are from, in words.
    """

    points: tuple[Point, ...] = ()
    sqr: float | None = None
    var: float | None = None
    initial: int = 0
    most: int = 0
    bounds: tuple[int, int] = (0, 0)
    accumulation: bool | None = None
    grads_from: str = "given"
    bad: tuple[str, ...] = field(default=())


def parse(text: str, name: str) -> Given:
    """The file's points. name: for messages, and `.csv` at its end says what it is. BadQuery where it is no such file."""
    if len(text) > LARGEST:
        raise BadQuery(f"{name}: larger than {LARGEST // 1024 // 1024} MiB", hint=f"give {_HINT}", field="points")
    columns, rest = _csv(text, name) if name.lower().endswith(".csv") else _json(text, name)
    if not columns and rest != NOTHING:
        return Given((), *rest)
    missing = [n for n in NEEDED if n not in columns]
    if missing:
        raise BadQuery(f"{name}: {', '.join(missing)} missing", hint=f"give {_HINT}", field="points")
    lengths = {len(v) for v in columns.values()}
    if len(lengths) != 1 or max(lengths) > MOST:
        why = f"more than {MOST:,} points" if len(lengths) == 1 else "its lists differ in length"
        raise BadQuery(f"{name}: {why}", hint=f"give {_HINT}", field="points")
    points, bad = [], []
    for i in range(lengths.pop()):
        row = {n: values[i] for n, values in columns.items()}
        try:
            points.append(_point(row))
        except ValueError as error:
            bad.append(f"{name}: point {i + 1}: {error}")
    return Given(tuple(points), *rest, bad=tuple(bad))


def _point(row: dict[str, object]) -> Point:
    nodes, replicas, batch = (_number(row, n) for n in NEEDED[:3])
    if any(v != round(v) for v in (nodes, replicas, batch)):
        raise ValueError("nodes, replicas and batch size must be whole numbers")
    optim = _number(row, "optim_step_time")
    told = row.get("accum_step_time") not in (None, "")
    accum = _number(row, "accum_step_time") if told else optim
    guessed = () if told or replicas == 1 else ("time without synchronisation: not given, taken as the step's",)
    run = str(row.get("run") or "")
    return checked(Point(run, int(nodes), int(replicas), int(batch), accum, optim, max(optim - accum, 0.0), 0, 0, "given", 0, guessed))


def _number(row: dict[str, object], name: str) -> float:
    value = row.get(name)
    try:
        found = float(str(value))
    except ValueError:
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number") from None
    if not math.isfinite(found) or isinstance(value, bool):
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number")
    return found


Rest = tuple[float | None, float | None, int, int, tuple[int, int], bool | None, str]
NOTHING: Final[Rest] = (None, None, 0, 0, (0, 0), None, "given")


def _csv(text: str, name: str) -> tuple[dict[str, list[object]], Rest]:
    try:
        rows = list(csv.DictReader(io.StringIO(text.lstrip("\ufeff")), strict=True))
    except csv.Error as error:
        raise BadQuery(f"{name}: {error}", hint=f"a header line with the names, then one line per point: {_HINT}", field="points") from None
    names = [n for n in (rows[0] if rows else {}) if n]
    return {n.strip(): [r.get(n) for r in rows] for n in names}, NOTHING


class _File(msgspec.Struct):
    num_nodes: list[float | None] = []
    num_replicas: list[float | None] = []
    atomic_bsz: list[float | None] = []
    accum_step_time: list[float | None] = []
    optim_step_time: list[float | None] = []
    run: list[str | None] = []
    grad_params: dict[str, float | None] | None = None
    scalars: dict[str, float] = {}
    init_batch_size: int | None = None
    max_batch_size: int | None = None
    atomic_bsz_range: tuple[int, int] | None = None
    accumulation: bool | None = None


def _json(text: str, name: str) -> tuple[dict[str, list[object]], Rest]:
    try:
        found = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadQuery(f"{name}: {error}", hint=f"give {_HINT}", field="points") from None
    columns = {n: list(v) for n in (*NEEDED, "accum_step_time", "run") if (v := getattr(found, n))}
    grads = found.grad_params or {}
    sqr, var = grads.get("sqr", grads.get("norm")), grads.get("var")
    whole = (max(found.init_batch_size or 0, 0), max(found.max_batch_size or 0, 0))
    source = "given"
    if found.scalars and sqr is None and var is None:
        sqr, var, source = found.scalars.get(SQR_TAG), found.scalars.get(VAR_TAG), f"scalars {SQR_TAG} and {VAR_TAG}, their last values"
    return columns, (sqr, var, *whole, found.atomic_bsz_range or (0, 0), found.accumulation, source)
