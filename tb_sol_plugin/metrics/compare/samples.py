"""Takes from one recording what a comparison needs: numbers per step, times of operators, kernels, modules and the like per step, settings.

A sample is one complete step of one recording, over its bounds on host and device. The first complete step is left out where four or more
remain: profilers and caches warm up in it. A recording without steps is one sample, its whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.compare.step_tree import StepTree, step_tree
from tb_sol_plugin.metrics.critical.replayed import replayed_findings
from tb_sol_plugin.metrics.memory.curves import whole
from tb_sol_plugin.metrics.memory.leaks import sums_of_steps
from tb_sol_plugin.metrics.report.notes import setting
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import breakdown as P
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.kernels import class_of, kernel_classes
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.metrics.trees.module_tree import module_tree
from tb_sol_plugin.metrics.trees.phases import device_owners, phase_tree
from tb_sol_plugin.metrics.work.costs import costs
from tb_sol_plugin.metrics.work.step_limits import StepLimits
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.packed import compressed, expanded
from tb_sol_plugin.units import human

MOST_STEPS: Final = 1_000
"""Steps whose numbers are taken, the last ones of a longer recording."""
ROW_STEPS: Final = 64
"""Steps of which rows are taken, spread over the others."""
MOST_ROWS: Final = 150
"""Rows of a grouping, those with most time; the others are added up in `OTHER`."""
NAME: Final = 240
"""Characters of a name."""
OTHER: Final = "(smaller ones together)"
NO_OPERATOR: Final = "(no operator)"
NO_MODULE: Final = "(outside every module)"
NO_PHASE: Final = "(outside every phase)"
LEAST_AFTER_FIRST: Final = 4
MATRIX: Final = re.compile(r"mm\b|matmul|linear|convolution|attention")
COMPILED: Final = re.compile(r"CompiledFunction|CompiledFxGraph|Torch-Compiled Region|^triton_")
FLOATS: Final = {
    '"float"': "float32", '"double"': "float64", "Half": "float16", "BFloat16": "bfloat16", "Float8": "float8",
}  # fmt: skip
"""Names of types of matrix products by what a recording writes in their place."""

# -- What is compared -------------------------------------------------------------------------------------------------


class Metric(NamedTuple):
    """A number of a step. unit: ns, count, B or ratio. exact: nearly free of noise, so that it is compared as it is.

    of: of a ratio, the name of the time in `Samples.values` that is divided by the length of the step; more of it is better.
    """

    label: str
    unit: str
    doc: str
    exact: bool = False
    of: str = ""


METRICS: Final[Mapping[str, Metric]] = {
    "step_time": Metric("Step", "ns", "from the start of a step to the last device work that it launched"),
    "device_busy": Metric("Device busy", "ns", "time in which the device runs kernels, copies or communication"),
    "kernel_time": Metric("Kernels", "ns", "time in which kernels run that are neither communication nor copies"),
    "exposed_communication": Metric("Exposed communication", "ns", "communication not behind other device work"),
    "exposed_memcpy": Metric("Exposed copies", "ns", "copies and sets of memory not behind kernels"),
    "idle": Metric("Device idle", "ns", "the rest of the step"),
    "host_time": Metric("Host", "ns", "length of the step on the host"),
    "dataloader": Metric("DataLoader", "ns", "loading of the next batch that nothing else hides"),
    "launches": Metric("Device events", "count", "kernels, copies and sets launched in a step", exact=True),
    "syncs": Metric("Blocking calls", "count", "calls that return when the device has done its work", exact=True),
    "allocations": Metric("Allocator calls", "count", "calls that take memory from the driver or give it back, as cudaMalloc", exact=True),
    "copied_bytes": Metric("Copied", "B", "bytes moved by the copies that a step launched, where recorded", exact=True),
    "peak_memory": Metric("Memory peak", "B", "most memory in use at the device during a step, where recorded", exact=True),
    "efficiency": Metric("Speed of light", "ratio", "least time of the step's work at the device's limits, over the step", of="limit"),
    "mfu": Metric("MFU", "ratio", "model FLOP utilization: least time of the step's matrix work, over the step", of="matrix_limit"),
    "findings": Metric("Findings", "count", "findings that save 0.5 % of the step or more, where they were looked for", exact=True),
}
PARTS: Final = P.CATEGORIES
"""Exclusive parts of a step, which add up to it."""
PROFILER: Final = ("record_shapes", "with_stack", "profile_memory")
"""Settings of the profiler, which cost time themselves."""
LEAST_MODELED: Final = 0.8
"""Part of the device's own work that a cost model knows, below which an efficiency says nothing."""
ALLOCATING: Final = re.compile(r"^(cuda|hip|musa)(Malloc|Free|Mem(Create|Map|Unmap|Release))|^cuMem(Alloc|Free|Create|Map|Unmap|Release)")
"""Calls of the driver's allocator: a caching allocator makes none of them once it has what a step takes."""
GROUPINGS: Final = ("operator", "kernel", "kind", "module", "phase", "copy")
LAUNCH: Final = "launch"
"""Kernels by the module and operator that launched them: not shown by itself, it says what kernel time consists of."""
BETWEEN: Final = "\x1f"
"""Between the module, operator and kernel in the name of a launch; a level that was not recorded is empty."""


class Grouping(msgspec.Struct, frozen=True):
    """Times of named rows per step: int64 little-endian, rows x steps, compressed.

    names, of: a row per name; of: what it belongs to (the kind of a kernel, "" none). calls, host, device: counts, ns on the host without
    what is inside, ns on the device (plain sums). work: of operators, FLOP of matrix products and bytes of others that the cost models
    know, -1 where one of the calls has no model; b"" none. cut: rows that are in `OTHER`.
    """

    names: tuple[str, ...]
    of: tuple[str, ...]
    calls: bytes
    host: bytes
    device: bytes
    cut: int = 0
    work: bytes = b""


class PathParts(msgspec.Struct, frozen=True):
    """The critical path of each step: ns by part, which add up to the step, and what each part consists of. grade: good, fair or poor.

    silent: part of the steps in which the path is on the host, nothing is recorded there, and the device works.
    """

    grade: str
    parts: dict[str, tuple[int, ...]]
    items: Grouping
    silent: float = 0.0


class Samples(msgspec.Struct, frozen=True):
    """What one recording gives to a comparison.

    source: kineto or sol_capture. steps: their numbers, -1 for a recording without any. values: per metric one per step; a metric that is
    not known is left out. parts: exclusive parts per step, ns. row_steps: places in `steps` of those that `groupings` have. incomplete:
    steps that were cut by the window. warm: the first complete step, where it was left out. settings: how the recording was made. tree: of
    one step, the one whose length is nearest to the median; None without operators. findings: ns per step that each
    saves, by its rule, where they were looked for. began_ns: when the recording began, ns since 1970; None where it does not say.
    path: the critical paths, where they were looked for.
    """

    source: str
    steps: tuple[int, ...]
    values: dict[str, tuple[int, ...]]
    parts: dict[str, tuple[int, ...]]
    row_steps: tuple[int, ...]
    groupings: dict[str, Grouping]
    incomplete: int
    warm: int | None
    settings: dict[str, str]
    tree: StepTree | None = None
    findings: dict[str, int] | None = None
    began_ns: int | None = None
    path: PathParts | None = None


def text_of(value: float | None, unit: str) -> str:
    """Returns a number of a step in its unit, as `4.93 ms`, `32` or `38.4 %`; unknown is an em dash."""
    return human(value if value is None or unit == "ratio" else round(value), unit)


def samples_of(capture: Capture, query: Query) -> Samples:
    """Returns the samples of a recording. Unavailable where it holds no step and no event."""
    if scope.is_capture(capture) and not len(capture.host):
        return _of_iterations(capture)
    where = scope.scope(capture, query)
    rows, incomplete, warm = _steps(capture, where)
    every = np.array(where.rows, np.int64)
    split = P.split_steps(capture) if len(every) else None
    if split is None or not len(rows):
        low, high = where.window_ns
        if high <= low:
            raise Unavailable("no event with a duration in this recording", hint="record at least one step")
        start, end = np.array([low]), np.array([high])
        window = P.split_windows(capture, start, end)
        parts: dict[str, Ints] = {name: window[name].to_numpy() for name in PARTS}
        duration, host, numbers = end - start, end - start, np.array([-1])
        step_of_device, step_of_host = np.zeros(len(capture.device), np.int64), np.zeros(len(capture.host), np.int64)
    else:
        parts = {name: split[name].to_numpy()[rows] for name in PARTS}
        duration, host, numbers = (split[c].to_numpy()[rows] for c in ("duration_ns", "host_ns", "step"))
        place = np.full(len(capture.steps) + 1, -1, np.int64)
        place[rows] = np.arange(len(rows))
        step_of_device = place[capture.device["step"].to_numpy()]
        step_of_host = _steps_of_host(capture, rows)
    count = len(duration)
    values = _values(capture, parts, duration, host, step_of_device, step_of_host) | _peaks(capture, numbers)
    values |= _limits(capture, where, query, rows if len(rows) and split is not None else None, duration)
    chosen = np.unique(np.linspace(0, count - 1, min(count, ROW_STEPS)).round().astype(np.int64))
    shown = np.full(count + 1, -1, np.int64)
    shown[chosen] = np.arange(len(chosen))
    typical = int(np.argmin(np.abs(duration - np.sort(duration)[(count - 1) // 2])))
    groupings = _groupings(capture, shown[step_of_device], shown[step_of_host], len(chosen))
    return Samples(
        capture.facts.source, tuple(numbers.tolist()), values, {n: tuple(v.tolist()) for n, v in parts.items()}, tuple(chosen.tolist()),
        groupings, incomplete, warm, setting(capture) | _program(capture),
        step_tree(capture, int(numbers[typical]), step_of_device == typical, step_of_host == typical), began_ns=began(capture),
    )  # fmt: skip


def began(capture: Capture) -> int | None:
    """Returns when a recording began, ns since 1970; None where it does not say."""
    facts = capture.facts
    return facts.origin_ns + facts.extent_ns[0] if facts.absolute else None


def _of_iterations(capture: Capture) -> Samples:
    """Returns the samples of a SOL log: lengths of the iterations in which nothing was counted, without their first."""
    table = capture.tables["iterations"]
    plain = ~table["sampled"].to_numpy() & (table["evaluation_ns"].to_numpy() <= 0)
    rows = np.flatnonzero(plain)[1:][-MOST_STEPS:]
    if not len(rows):
        raise Unavailable("no iteration of this SOL log ran without being sampled", hint="record more iterations than those sampled")
    duration = table["duration_ns"].to_numpy()[rows]
    device = table["device_ns"].to_numpy(dtype=np.float64)[rows]
    values = {"step_time": tuple(int(v) for v in duration)}
    if np.isfinite(device).all():
        values["device_busy"] = tuple(round(v) for v in device.tolist())
    numbers = tuple(int(n) for n in table["number"].to_numpy()[rows])
    return Samples(capture.facts.source, numbers, values, {}, (), {}, 0, None, setting(capture), began_ns=began(capture))


def _steps(capture: Capture, where: scope.Scope) -> tuple[Ints, int, int | None]:
    """Returns (rows of `steps` that are samples, incomplete ones, number of a first one that was left out)."""
    every = np.array(where.rows, np.int64)
    if not len(every):
        return every, 0, None
    complete = every[capture.steps["complete"].to_numpy()[every]]
    warm = None
    if where.whole and len(complete) > LEAST_AFTER_FIRST:
        warm, complete = int(capture.steps["number"].to_numpy()[complete[0]]), complete[1:]
    incomplete = int((~capture.steps["complete"].to_numpy()[every]).sum())
    return (complete if len(complete) else every)[-MOST_STEPS:], incomplete, warm


def _steps_of_host(capture: Capture, rows: Ints) -> Ints:
    """Returns the place in `rows` of the step in which each host row starts, -1 outside of all."""
    start, end = (capture.steps[c].to_numpy()[rows] for c in ("host_start_ns", "host_end_ns"))
    out, begin = np.full(len(capture.host), -1, np.int64), capture.host["start_ns"].to_numpy()
    if not len(rows):
        return out
    inside = np.flatnonzero((begin >= start.min()) & (begin < end.max()))
    order = np.argsort(start, kind="stable")
    found = order[np.searchsorted(start[order], begin[inside], side="right") - 1]
    out[inside] = np.where(begin[inside] < end[found], found, -1)
    return out


def _values(
    capture: Capture, parts: Mapping[str, Ints], duration: Ints, host: Ints, step_of_device: Ints, step_of_host: Ints
) -> dict[str, tuple[int, ...]]:
    """Returns the metrics that this recording can tell, one number per step."""
    count = len(duration)
    out: dict[str, Ints] = {"step_time": duration}
    if len(capture.host):
        out |= {"host_time": host, "dataloader": parts["dataloader_ns"]}
    if len(capture.device):
        busy = parts["kernel_ns"] + parts["memcpy_ns"] + parts["memset_ns"] + parts["communication_ns"]
        kind, size = capture.device["kind"].to_numpy(), capture.device["bytes"].to_numpy()
        out |= {
            "device_busy": busy, "kernel_time": parts["kernel_ns"], "exposed_communication": parts["communication_ns"],
            "exposed_memcpy": parts["memcpy_ns"] + parts["memset_ns"], "idle": duration - busy,
            "launches": at.sum_by(step_of_device, np.ones(len(step_of_device), np.int64), count),
        }  # fmt: skip
        moved = np.where((kind == S.MEMCPY) & (step_of_device >= 0), step_of_device, -1)
        if (size[moved >= 0] >= 0).all():
            out["copied_bytes"] = at.sum_by(moved, np.maximum(size, 0).astype(np.int64), count)
        if len(capture.host):
            waits = at.named(capture, S.CALL, lambda name: P.WAITING.search(name) is not None)
            out["syncs"] = at.sum_by(step_of_host[waits], np.ones(len(waits), np.int64), count)
            allocating = at.named(capture, S.CALL, lambda name: ALLOCATING.match(name) is not None)
            out["allocations"] = at.sum_by(step_of_host[allocating], np.ones(len(allocating), np.int64), count)
    return {name: tuple(int(v) for v in values) for name, values in out.items()}


def _peaks(capture: Capture, numbers: Ints) -> dict[str, tuple[int, ...]]:
    """Returns the most memory in use on the first device in each step, where all of these steps know it."""
    curve = next((c for c in whole(capture) if c.allocated is not None and not c.relative and c.source == "events"), None)
    if curve is None:
        return {}
    found = sums_of_steps(capture, curve)
    peak = dict(zip(found["step"].tolist(), found["peak"].tolist(), strict=True))
    known = [peak.get(n) for n in numbers.tolist()]
    return {"peak_memory": tuple(int(v) for v in known if v is not None)} if None not in known else {}


def _limits(capture: Capture, where: scope.Scope, query: Query, rows: Ints | None, duration: Ints) -> dict[str, tuple[int, ...]]:
    """Returns the least time of each step's work and of its matrix products on this device, ns; each only where known of all steps.

    Nothing where cost models know too little of the work. rows: of `steps`, None for the whole recording as one.
    """
    try:
        known = StepLimits.of(capture, where, query.device_limits)
    except Unavailable:
        return {}
    every = [] if rows is None else rows.tolist()
    share = known.limits(every, int(duration.sum()))["own_share"]
    if not isinstance(share, float) or share < LEAST_MODELED:
        return {}
    found = [known.limits([] if rows is None else [row], ns) for row, ns in zip(every or [-1], duration.tolist(), strict=True)]
    least, used = [one["sol_ns"] for one in found], [one["mfu"] for one in found]
    matrix = [round(u * ns) if isinstance(u, float) else None for u, ns in zip(used, duration.tolist(), strict=True)]
    out = {"limit": least, "matrix_limit": matrix}
    return {name: tuple(v for v in of if isinstance(v, int)) for name, of in out.items() if all(isinstance(v, int) for v in of)}


def findings_in(capture: Capture, query: Query) -> dict[str, int]:
    """Returns what each finding of a recording saves, ns per step, by its rule; those that the page of findings does not call hidden."""
    if scope.is_capture(capture) or scope.is_profile(capture):
        raise Unavailable("findings need the time of single operators", hint="record a profiler trace")
    where = scope.scope(capture, query)
    return {f.id: f.saving for f in replayed_findings(capture, where, waterfall(capture, where, query.device_limits)).shown}


def _program(capture: Capture) -> dict[str, str]:
    """Returns what the operators say of the program: types of matrix products, whether it was compiled, whether it replays graphs."""
    return memo(capture, ("compare.program",), lambda: _program_of(capture))


def _program_of(capture: Capture) -> dict[str, str]:
    if not len(capture.tables["operators"]):
        return {}
    table, names = capture.tables["operators"], arrays.coded(capture.host["name"])
    host, types = table["host"].to_numpy(), arrays.coded(table["types"])
    code, every = names.codes[host], [str(name) for name in names.categories.tolist()]
    own = arrays.having(code, [i for i in arrays.in_use(code, len(every)).tolist() if MATRIX.search(every[i])], len(every))
    known = types.categories.take(arrays.in_use(types.codes[own], len(types.categories))).tolist()
    seen = {kind for text in known for kind in FLOATS if kind in str(text)}
    out = {"types of matrix products": ", ".join(sorted(FLOATS[k] for k in seen))} if seen else {}
    compiled = any(map(COMPILED.search, every))
    graphs = at.any_named(capture, lambda name: "GraphLaunch" in name)
    return out | {"compiled": "yes" if compiled else "no", "CUDA graphs": "yes" if graphs else "no"}


# -- Rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owners:
    """To which name each row belongs.

    count: names. name, belongs: text of a name, and what it belongs to ("" nothing). device: name per device row, -1 none. rows: of the
    host that have a name, ascending; None: those of the host do not count. host, own_ns: name and ns of each. work: of each, -1 unknown.
    most: characters of a name.
    """

    count: int
    name: Callable[[int], str]
    device: Rows
    rows: npt.NDArray[np.integer] | None = None
    host: Rows | None = None
    own_ns: Ints | None = None
    work: Ints | None = None
    belongs: Callable[[int], str] = lambda _: ""
    most: int = NAME


def owners_of(capture: Capture) -> dict[str, Owners]:
    """Returns to which names rows belong, by grouping; those that the recording has."""

    def make() -> dict[str, Owners]:
        owners: dict[str, Owners] = {}
        if len(capture.device):
            owners |= _by_name(capture)
        if len(capture.host):
            owners |= {"operator": _operators(capture), "module": _modules(capture), "phase": _phases(capture)}
        if len(capture.device):
            owners[LAUNCH] = _launches(owners)
        return owners

    return memo(capture, ("compare.owners",), make)


def _groupings(capture: Capture, of_device: Ints, of_host: Ints, steps: int) -> dict[str, Grouping]:
    """Returns rows of every grouping that the recording has. of_device, of_host: the step of each row, -1 none."""
    owners, device, host = owners_of(capture), np.flatnonzero(of_device >= 0), np.flatnonzero(of_host >= 0)
    steps_of = (device, of_device[device]), (host, of_host[host])
    found = {name: _grouped(capture, owners[name], *steps_of, steps) for name in (*GROUPINGS, LAUNCH) if name in owners}
    return {name: rows for name, rows in found.items() if rows is not None}


def _by_name(capture: Capture) -> dict[str, Owners]:
    """Returns kernels by name and by kind of work, and copies by direction."""
    device, classes = capture.device, kernel_classes(capture)
    code = class_of(capture, slice(None))
    kernels = device["kind"].to_numpy() == S.KERNEL
    known = sorted({classes.kind_names[kind] for kind in arrays.in_use(classes.kind, len(classes.kind_names)).tolist()})
    kind = np.array([known.index(name) if name in known else -1 for name in classes.kind_names], np.int32)[classes.kind]
    copies = (device["kind"].to_numpy() == S.MEMCPY) | (device["kind"].to_numpy() == S.MEMSET)
    directions = arrays.coded(device["direction"])
    return {
        "kernel": Owners(
            len(classes), classes.short_name, np.where(kernels, code, -1).astype(np.int32),
            belongs=lambda i: classes.kind_names[classes.kind[i]]),
        "kind": Owners(len(known), known.__getitem__, np.where(kernels, kind[code], -1).astype(np.int32)),
        "copy": Owners(
            len(directions.categories), lambda i: str(directions.categories[i]),
            np.where(copies, directions.codes, -1).astype(np.int32)),
    }  # fmt: skip


def _launches(owners: Mapping[str, Owners]) -> Owners:
    """Returns kernels by the module and the operator that launched them, where these were recorded."""
    levels = [owners.get(name) for name in ("module", "operator")]
    kernel = owners["kernel"]
    rows = np.flatnonzero(kernel.device >= 0)
    code = kernel.device[rows].astype(np.int64)
    sizes = [kernel.count]
    for level in reversed(levels):
        if level is not None:
            code = code + (level.device[rows].astype(np.int64) + 1) * np.int64(np.prod(sizes))
            sizes.append(level.count + 1)
    known, place = arrays.in_order(code)
    device = np.full(len(kernel.device), -1, np.int32)
    device[rows] = place

    def part(i: int) -> list[int]:
        left, out = int(known[i]), []
        for size in sizes:
            left, one = divmod(left, size)
            out.append(one)
        return out

    def name(i: int) -> str:
        kernel_of, *others = part(i)
        texts = [kernel.name(kernel_of)[:NAME]]
        for level, one in zip([found for found in reversed(levels) if found is not None], others, strict=True):
            texts.append(level.name(one - 1)[:NAME] if one else "")
        return BETWEEN.join(reversed(texts + [""] * (3 - len(texts))))

    return Owners(len(known), name, device, belongs=lambda i: kernel.belongs(int(known[i]) % kernel.count), most=3 * NAME + 2)


def _operators(capture: Capture) -> Owners:
    """Returns the innermost operator of each launch, and operators on the host without those that they call."""
    names = arrays.coded(capture.host["name"])
    none, rows = len(names.categories), at.of_kind(capture, S.OPERATOR)
    operator = capture.device["operator"].to_numpy()
    launched = np.where(operator >= 0, names.codes[np.maximum(operator, 0)], none).astype(np.int32)
    return Owners(
        none + 1, lambda i: str(names.categories[i]) if i < none else NO_OPERATOR, launched, rows, names.codes[rows].astype(np.int32),
        at.self_among(capture, (S.OPERATOR,))[rows], _work(capture, rows),
    )  # fmt: skip


def _work(capture: Capture, rows: npt.NDArray[np.integer]) -> Ints:
    """Returns FLOP of matrix products and bytes of other operators of host rows, -1 where no cost model knows them."""
    found = costs(capture)
    amounts = [c.flop or c.bytes for c in found.costs]
    amount = np.array([-1 if v is None or not 0 <= v < 2**53 else v for v in (*amounts, None)], np.int64)
    out: Ints = amount[found.of_host[rows]]
    return out


def _modules(capture: Capture) -> Owners:
    """Returns the innermost module of each launch, of the forward call in a backward pass, and modules without those inside.

    Modules of one class at one place of the tree, the layers of a model, are one name: the path of their classes.
    """
    tree = module_tree(capture)
    above = tree.parent.tolist()
    known: dict[tuple[int, str], int] = {}
    place = [0] * len(above)
    for node, class_name in enumerate(tree.class_name):  # parents stand before what is inside them
        place[node] = known.setdefault((place[above[node]] if above[node] >= 0 else -1, class_name), len(known))
    parents, none = list(known), len(known)
    of_node = np.array([*place, -1], np.int32)

    def path(row: int) -> str:
        parts, length = [], 0
        while row >= 0 and length < NAME:
            row, class_name = parents[row]
            parts.append(class_name)
            length += len(class_name) + 1
        return "/".join(reversed(parts))

    launch = at.launches(capture)
    around = at.nearest(capture, S.MODULE, launch.call, launch.time)
    forward, _ = at.module_forward_rows(capture, launch.call, launch.time)
    call = np.where(around >= 0, around, at.nearest(capture, S.MODULE, forward))
    own = of_node[np.where(call >= 0, tree.node[np.maximum(call, 0)], -1)] if len(tree.node) else np.full(len(call), -1)
    rows = np.flatnonzero(tree.node >= 0)
    return Owners(
        none + 1, lambda i: path(i) if i < none else NO_MODULE, np.where(own >= 0, own, none if none else -1).astype(np.int32),
        rows, of_node[tree.node[rows]], at.self_among(capture, (S.MODULE,))[rows],
    )  # fmt: skip


def _phases(capture: Capture) -> Owners:
    """Returns the innermost phase of each launch, and phases without those inside."""
    tree, node = phase_tree(capture), device_owners(capture).node
    none, rows = len(tree.path), np.flatnonzero(tree.node >= 0)
    return Owners(
        none + 1, lambda i: tree.path[i] if i < none else NO_PHASE, np.where(node >= 0, node, none if none else -1).astype(np.int32),
        rows, tree.node[rows].astype(np.int32), at.self_among(capture, (S.ANNOTATION,))[rows],
    )  # fmt: skip


FEW: Final = 8
"""Rows of a recording for each of those in a step up to which all are looked through."""


def _named(rows: npt.NDArray[np.integer], row: Ints, step: Ints) -> tuple[Ints, Ints]:
    """Returns places of the rows that are in a step, and its number. rows: ascending; row, step: those in a step, ascending, and which."""
    if len(row) * FEW < len(rows):
        place = np.searchsorted(rows, row)
        there = np.flatnonzero(rows[np.minimum(place, len(rows) - 1)] == row)
        return place[there], step[there]
    of_row = np.full(max(int(rows.max(initial=-1)), int(row.max(initial=-1))) + 1, -1, np.int64)
    of_row[row] = step
    found = of_row[rows]
    inside = np.flatnonzero(found >= 0)
    return inside, found[inside]


def _grouped(capture: Capture, of: Owners, on_device: tuple[Ints, Ints], on_host: tuple[Ints, Ints], steps: int) -> Grouping | None:
    """Returns the rows with most time, the others added up, with their sums per step. on_device, on_host: rows in a step, and that step."""
    inside = np.flatnonzero(of.device[on_device[0]] >= 0)
    row, of_device = (one[inside] for one in on_device)
    at_device, duration = of.device[row], capture.device["duration_ns"].to_numpy()[row]
    total, calls = at.sum_by(at_device, duration, of.count), np.bincount(at_device, minlength=of.count)
    at_host, of_host, own, work_of = np.zeros(0, np.int32), *(np.zeros(0, np.int64) for _ in range(3))
    if of.rows is not None and of.host is not None and of.own_ns is not None:
        inside, of_host = _named(of.rows, *on_host)
        known = np.flatnonzero(of.host[inside] >= 0)
        inside, of_host = inside[known], of_host[known]
        at_host, own = of.host[inside], of.own_ns[inside]
        work_of = of.work[inside] if of.work is not None else work_of
        total, calls = total + at.sum_by(at_host, own, of.count), calls + np.bincount(at_host, minlength=of.count)
    seen = np.flatnonzero(calls > 0)
    if not len(seen):
        return None
    seen = seen[np.argsort(-total[seen], kind="stable")]
    keep, rest = seen[:MOST_ROWS], seen[MOST_ROWS:]
    row = np.full(of.count + 1, -1, np.int64)
    row[keep] = np.arange(len(keep))
    row[rest] = len(keep)
    rows = len(keep) + bool(len(rest))

    def summed(code: Rows, step: Ints, values: Ints) -> tuple[Ints, Ints]:
        """Returns the sum of values, and how many there are, per row and step."""
        cell = row[code] * steps + step
        count = np.bincount(cell, minlength=rows * steps).astype(np.int64, copy=False)
        return at.sum_by(cell, values, rows * steps).reshape(rows, steps), count.reshape(rows, steps)

    device, launched = summed(at_device, of_device, duration)
    if of.host is not None:
        host, called = summed(at_host, of_host, own)
        calls = np.where(called.sum(1, keepdims=True) > 0, called, launched)  # a name without a call of its own counts what it launched
    else:
        host, calls = np.zeros_like(device), launched
    names = [of.name(i)[: of.most] for i in keep.tolist()] + [OTHER] * bool(len(rest))
    belongs = [of.belongs(i)[:NAME] for i in keep.tolist()] + [""] * bool(len(rest))
    packed = [pack(v) for v in (calls, host, device)]
    work = b""
    if of.work is not None:
        whole = summed(at_host, of_host, np.where(work_of >= 0, 0, 1))[0] == 0
        amount = np.where(whole, summed(at_host, of_host, np.maximum(work_of, 0))[0], -1)
        work = pack(amount)
    return Grouping(tuple(names), tuple(belongs), packed[0], packed[1], packed[2], len(rest), work)


def pack(values: Ints) -> bytes:
    """Returns whole numbers of rows x steps as a grouping holds them."""
    return compressed(values, "i8")


def per_step(found: Grouping, column: str, steps: int) -> Ints:
    """Returns one of calls, host, device, work of a grouping: rows x steps; -1 where work is not known at all.

    ValueError where a stored one does not hold so many numbers.
    """
    packed: bytes = getattr(found, column)
    shape = len(found.names), steps
    if not packed and column == "work":
        return np.full(shape, -1, np.int64)
    return expanded(packed, "i8", shape[0] * shape[1]).reshape(shape).astype(np.int64)
