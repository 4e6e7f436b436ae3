"""The headline of the overview: the ratio as one equation, and the utilizations beside it, each with its formula in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED, ratio
from tb_sol_plugin.devices.limits import why_no_limits
from tb_sol_plugin.metrics.report.headline import WRONG, a_device, why_no_ratio
from tb_sol_plugin.metrics.report.overview import PLAIN, shown_ratio
from tb_sol_plugin.metrics.time.breakdown import CATEGORIES, average, device_word, split_steps, split_windows
from tb_sol_plugin.metrics.time.scope import Scope, is_uncounted, step_time
from tb_sol_plugin.metrics.time.waterfall import SCALED, Waterfall, windows_of
from tb_sol_plugin.metrics.trees.label_times import phase_device_ns, phase_time_ns, usual_phase_ns
from tb_sol_plugin.metrics.trees.phases import STEP, phase_times
from tb_sol_plugin.metrics.trees.profile_tree import ScopeWork, scope_tree, scope_work
from tb_sol_plugin.metrics.work.columns import over_whole
from tb_sol_plugin.metrics.work.sums import Performed, performed, phase_work, ratios, use_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Fact, FactsSection, Link, Mark, Scalar, Sort, TableSection, make_facts, make_table
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import capitalized, human

FACTS: Final = (
    Fact("speed_of_light", "of the speed of light", "ratio", "Time at the limits of the device over the measured time."),
    Fact("gpu_busy", "Device busy", "ratio", "Part of the step in which at least one device event runs; of a host recording, in which an "
         "operator runs."),
    Fact("efficiency_while_busy", "Efficiency while busy", "ratio", "Time at the limits over the busy time."),
    Fact("mfu", "MFU", "ratio", "Model FLOP utilization: matrix operations over the step at the dense peak of their type, "
         "without work that is done again: of fused attention, twice the forward for the backward pass."),
    Fact("hfu", "HFU", "ratio", "Hardware FLOP utilization: the same with all work that ran: forward calls that run again, and the scores "
         "that a fused attention computes again in its backward pass (2.5 times its forward)."),
    Fact("bandwidth_utilisation", "Memory bandwidth", "ratio", "Least memory traffic of the modeled work over the step at the memory "
         "bandwidth."),
    Fact("modelled_share", "Own work modeled", "ratio", "Part of the device's own work, communication and copies over a link set "
         "aside, that a cost model covers."),
    Fact("step_ns", "Step", "ns", "Mean length of a step by its GPU-aware bounds; of the whole recording where no step was recorded."),
    Fact("sol_ns", "Limit", "ns", "Sum of the limits of all modeled work, per step."),
    Fact("compute_limit_ns", "Limit, arithmetic", "ns", "Part of that sum that arithmetic bounds, recomputed work set aside."),
    Fact("memory_limit_ns", "Limit, memory bandwidth", "ns", "Part of that sum that memory bandwidth bounds, recomputed work set aside."),
    Fact("traffic_bytes", "Memory traffic", "B", "Least memory traffic of the modeled work, per step."),
    Fact("recompute_ns", "Recomputed", "ns", "Device time of forward work that runs again in the backward pass, per step."),
    Fact("speed_of_light_achievable", "Of the achievable rates", "ratio", "The same ratio with matrix work at the rate that products "
         "reach in practice."),
    Fact("launch_gap_ns", "Launch gaps", "ns", "Idle time in which the host prepares the next launch, and hand-overs between kernels, "
         "per step."),
    Fact("blocked_ns", "Host blocked", "ns", "Idle time after the host waited for the device, or while it is in runtime calls, per step."),
    Fact("host_busy", "Host busy", "ratio", "Part of the step in which some operator, range or frame runs on the host."),
    Fact("loading_share", "Loading", "ratio", "Part of the step in which a batch is fetched and nothing else of higher rank runs."),
    Fact("operator_calls", "Operator calls", "count", "Operator calls in the selection."),
    Fact("matrix_flop", "Matrix work", "FLOP", "Matrix operations that a SOL capture counted, per step; of a profile those that launch "
         "hooks stated, in all."),
    Fact("vector_flop", "Vector work", "FLOP", "Vector operations that a SOL capture counted, per step."),
    Fact("matrix_flop_per_s", "Achieved", "FLOP/s", "Matrix operations over the step."),
    Fact("kernel_sum_ns", "Kernel time", "ns", "Plain sum of the device time of all kernels of a profile."),
    Fact("copies_sum_ns", "Copies", "ns", "Plain sum of the device time of all copies and sets of a profile."),
    Fact("samples_per_s", "Samples/s", "", "Samples of the iterations that the step is the mean of, over their time."),
    Fact("tokens_per_s", "Tokens/s", "", "Tokens of the iterations that the step is the mean of, over their time."),
    Fact("iterations", "Iterations", "count", "Iterations in the SOL capture."),
    Fact("operator_share", "In operators", "ratio", "Part of the sampled steps in operators that the recorder timed."),
)  # fmt: skip
"""Facts of the headline."""


@dataclass
class Tiles:
    """Values in order with what stands beside them."""

    values: dict[str, Scalar] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)

    def add(
        self, name: str, value: Scalar, *, label: str = "", note: str = "", more: str = "", mark: Mark | None = None, hidden: bool = False
    ) -> None:
        """Adds a value. label: where it is not the usual one. more: the formula in numbers, after the definition. hidden: data only."""
        self.values[name] = value
        if hidden:
            self.hidden.append(name)
        if label:
            self.labels[name] = label
        if more:
            self.more[name] = more
        if note:
            self.notes[name] = note
        if mark is not None:
            self.marks[name] = mark

    def hide_unknown(self, *names: str) -> None:
        """Keeps those of the names whose value is not known as data only: a row of dashes tells nothing."""
        self.hidden += [name for name in names if self.values[name] is None and name not in self.hidden]

    def section(self, title: str, style: Literal["tiles", "equation"], links: dict[str, Link] | None = None) -> FactsSection:
        """Builds the headline that holds them. links: of values that lead on."""
        return make_facts(
            "answer",
            title,
            self.values,
            FACTS,
            labels=self.labels,
            more_docs=self.more,
            weight="headline",
            style=style,
            notes=self.notes,
            hidden=self.hidden,
            marks=self.marks,
            value_links=links or {},
        )


NOT_TIMED = "a SOL capture has no time of single operators on this device: record a profiler trace"
COUNTED_ONLY = "work that the trace does not name takes the limit of the matrix operations that a SOL capture counted in its phase"
BY_CALLS = "Of the counted calls: single calls were not timed."


def equation(capture: Capture, part: Scope, waterfall: Waterfall) -> FactsSection:
    """Builds ratio = busy × efficiency while busy, then tiles; where no ratio is known, how busy the device is comes first."""
    tiles = Tiles()
    _ratio(tiles, capture, waterfall)
    _utilizations(tiles, capture, waterfall, part)
    share = waterfall.modeled_kernel_share
    each = waterfall.steps
    on_host = waterfall.work.by_host_time
    without = human(round(waterfall.unmodelled_ns / each), "ns")
    tiles.add(
        "modelled_share",
        share,
        label="Operator time modeled" if on_host else "Own work modeled" if waterfall.work.timed else "Calls modeled",
        note=f"{without} without a model {_per(waterfall)}"
        if waterfall.unmodelled_ns
        else "all of it"
        if share and waterfall.work.timed
        else "",
        more=f"{human(round(sum(waterfall.kind_ns.values()) / each), 'ns')} with a model, {without} without."
        if waterfall.work.timed
        else BY_CALLS,
    )
    tiles.add("step_ns", round(waterfall.total_ns / each), hidden=True)
    tiles.add("sol_ns", round(waterfall.sol_ns / each) if waterfall.has_limits else None, hidden=True)
    tiles.add("compute_limit_ns", round(waterfall.limits.compute / each) if waterfall.has_limits else None, hidden=True)
    tiles.add("memory_limit_ns", round(waterfall.limits.memory / each) if waterfall.has_limits else None, hidden=True)
    tiles.add("recompute_ns", round(sum(waterfall.again_ns.values()) / each), hidden=True)
    if not on_host and not waterfall.work.from_ledger:
        tiles.add("launch_gap_ns", round(waterfall.launch_gap_ns / each), hidden=True)
        tiles.add("blocked_ns", round(waterfall.blocked_ns / each), hidden=True)
    if shown_ratio(waterfall) is None and waterfall.work.timed:
        _lead_with_busy(tiles)
    return tiles.section("Speed of light", "equation", {"modelled_share": Link("roofline")})


def _lead_with_busy(tiles: Tiles) -> None:
    """Puts the share of busy time first; the sentence of the page says that the ratio is not known, and why."""
    order = ("gpu_busy", "mfu", "hfu", "bandwidth_utilisation", "modelled_share", "speed_of_light")
    tiles.values = {name: tiles.values[name] for name in order} | tiles.values
    tiles.hide_unknown("speed_of_light", "efficiency_while_busy", "modelled_share")


def _per(waterfall: Waterfall) -> str:
    return "per step" if waterfall.stepped else "in the recording"


def _ratio(tiles: Tiles, capture: Capture, waterfall: Waterfall) -> None:
    each, ratio, spec = waterfall.steps, shown_ratio(waterfall), waterfall.work.spec
    step, least, busy = (human(round(ns / each), "ns") for ns in (waterfall.total_ns, waterfall.sol_ns, waterfall.busy_ns))
    unit = "Host" if waterfall.work.by_host_time else device_word(capture)
    unit = capitalized(unit)
    best = waterfall.limits.achievable
    more = ""
    if ratio is not None and spec is not None:
        more = (
            f"{least} / {step}. The limit of a call is the longest of its operations at the dense peak of their type and its least "
            f"memory traffic at the bandwidth of {a_device(spec)}."
        )
        if best is not None:
            reached = human(best / waterfall.total_ns, "ratio")
            more += f"\nAt the rates that products reach in practice{_rates(waterfall)}: {reached}, {human(round(best / each), 'ns')}."
    mark = _mark(capture, waterfall, ratio)
    if ratio is not None and ratio > TOLERATED:
        mark = Mark("flagged", WRONG)
    tiles.add("speed_of_light", ratio, more=more, mark=mark)
    timed = waterfall.work.timed
    tiles.add(
        "gpu_busy",
        waterfall.busy_ns / waterfall.total_ns if waterfall.total_ns and timed else None,
        label=f"{unit} busy",
        more=f"{busy} / {step}." if timed else "",
        mark=_scaled(waterfall) if timed else Mark("unknown", NOT_TIMED),
    )
    efficiency = waterfall.sol_ns / waterfall.busy_ns if ratio is not None and waterfall.busy_ns and timed else None
    tiles.add(
        "efficiency_while_busy",
        efficiency,
        more=f"{least} / {busy}." if efficiency is not None else "",
        mark=_mark(capture, waterfall, ratio) or _scaled(waterfall) if timed else Mark("unknown", NOT_TIMED),
    )
    achievable = best / waterfall.total_ns if ratio is not None and best is not None and waterfall.total_ns else None
    tiles.add("speed_of_light_achievable", achievable, hidden=True)


def _rates(waterfall: Waterfall) -> str:
    """Returns ` (bf16 794.0 TFLOP/s)`: the achievable rates of the types that the matrix work uses."""
    spec, ops = waterfall.work.spec, waterfall.work.ops
    used = ops["dtype"][waterfall.counted & (np.nan_to_num(ops["flop"].to_numpy(dtype=np.float64)) > 0)].unique()
    known = [f"{d} {human(spec.achievable(str(d)), 'FLOP/s')}" for d in used if spec is not None and spec.achievable(str(d))]
    return f" ({', '.join(known)})" if known else ""


def _mark(capture: Capture, waterfall: Waterfall, ratio: float | None) -> Mark | None:
    share = waterfall.modeled_kernel_share
    if ratio is None:
        return Mark("unknown", why_no_ratio(capture, waterfall))
    if share is not None and share < PLAIN:
        return Mark("partial", f"a cost model covers {human(share, 'ratio')} of the work")
    return Mark("estimated", COUNTED_ONLY) if waterfall.work.takes_counted else None


def _scaled(waterfall: Waterfall) -> Mark | None:
    return Mark("estimated", f"times of operators are {SCALED}") if waterfall.scaled else None


def step_words(capture: Capture, part: Scope, waterfall: Waterfall) -> str:
    """Says of a SOL capture which iterations give the length of a step; "" where these are the sampled ones, and for a trace."""
    _, rows = windows_of(capture, part)
    usual = step_time(capture, rows) if waterfall.work.from_ledger else None
    return f"The step is the median of {human(usual.count, 'count')} of the same inputs that were not sampled." if usual else ""


def _utilizations(tiles: Tiles, capture: Capture, waterfall: Waterfall, part: Scope) -> None:
    spec, each = waterfall.work.spec, waterfall.steps
    inside = performed(waterfall.work.ops).take(np.flatnonzero(waterfall.inside))
    which = step_words(capture, part, waterfall)
    use = use_of(inside, spec, waterfall.total_ns, devices=waterfall.devices)
    step = human(round(waterfall.total_ns / each), "ns")
    share = waterfall.modeled_kernel_share
    partial = Mark("lower_bound", f"a cost model covers {human(share, 'ratio')} of the work") if (share or 0) < PLAIN else None
    if partial is None and spec is not None and spec.method == "derived":
        partial = Mark("estimated", "the peaks follow from units, rate and clock of a device that is not in the table")
    model, again = use.model_flop or 0, use.recompute_flop or 0
    first = inside._replace(flop=inside.flop - inside.again)
    many = f" × {waterfall.devices} devices" if waterfall.devices > 1 else ""
    dtype = f", {use.dtype} {spec.density if spec else 'dense'}" if use.dtype else ""
    why = Mark("unknown", "no matrix work with a known peak and recorded shapes")
    tiles.add(
        "mfu",
        use.mfu,
        label=f"MFU{dtype}",
        note=f"{human(model / each, 'FLOP')} {_per(waterfall)}" if model else "",
        more=_joined(_over_peaks(first, waterfall, step, many), which),
        mark=why if use.mfu is None else partial,
        hidden=not model and share is not None and share >= PLAIN,  # none of the work is of matrices
    )
    tiles.add(
        "hfu",
        use.hfu,
        note=f"{human(again / each, 'FLOP')} done again" if again else "",
        more=_joined(_over_peaks(inside, waterfall, step, many), which),
        mark=why if use.hfu is None else partial,
        hidden=not again,
    )
    traffic = float(np.nansum(inside.data))
    known = use.bandwidth_utilisation is not None
    bandwidth = human(spec.memory_bandwidth, "B/s") if spec is not None and spec.memory_bandwidth else ""
    tiles.add(
        "bandwidth_utilisation",
        use.bandwidth_utilisation if known else None,
        note=f"{human(traffic / each, 'B')} at least, {_per(waterfall)}" if traffic else "",
        more=_joined(f"{human(traffic / each, 'B')} / ({step} × {bandwidth}{many}).", which) if known else "",
        mark=partial if known else Mark("unknown", "no traffic of modeled work, or no known bandwidth"),
    )
    tiles.add("traffic_bytes", round(traffic / each) if waterfall.inside.any() else None, hidden=True)
    tiles.hide_unknown("mfu", "hfu", "bandwidth_utilisation")


def _joined(formula: str, which: str) -> str:
    return f"{formula} {which}".strip() if formula else ""


def _over_peaks(done: Performed, waterfall: Waterfall, step: str, many: str) -> str:
    """Matrix FLOP over the peak of their type, summed over types, over the time: `(2.25 TFLOP / 989.4 TFLOP/s of bf16 + …) / 15.16 ms.`"""
    spec = waterfall.work.spec
    flop = np.bincount(done.type, done.flop, minlength=len(done.types)).tolist()
    terms = [
        f"{human(total / waterfall.steps, 'FLOP')} / {human(spec.matrix_peak(name), 'FLOP/s')} of {name}"
        for name, total in sorted(zip(done.types, flop, strict=True), key=lambda pair: -pair[1])
        if total > 0 and spec is not None and spec.matrix_peak(name)
    ]
    if not terms:
        return ""
    return f"{terms[0]} / {step}{many}." if len(terms) == 1 else f"({' + '.join(terms)}) / {step}{many}."


# -- The host ---------------------------------------------------------------------------------------------------------


def mean_split(capture: Capture, part: Scope) -> dict[str, int]:
    """Returns the mean exclusive split of the looked-at steps, of the whole recording where none was recorded; ns."""
    _, rows = windows_of(capture, part)
    if rows:
        steps, chosen = split_steps(capture), list(rows)
        return average({name: steps[name].to_numpy()[chosen] for name in ("duration_ns", *CATEGORIES)})
    low, high = part.window_ns
    frame = split_windows(capture, [low], [high])
    return average(frame.assign(duration_ns=high - low))


def host_tiles(capture: Capture, part: Scope, waterfall: Waterfall) -> FactsSection:
    """Builds the answer of a recording without a device and without limits: tiles over the host."""
    split = mean_split(capture, part)
    whole = split["duration_ns"]
    tiles = Tiles()
    tiles.add("step_ns", round(waterfall.total_ns / waterfall.steps), label="" if waterfall.stepped else "Recording")
    tiles.add("host_busy", (whole - split["other_ns"]) / whole if whole else None)
    tiles.add("loading_share", split["dataloader_ns"] / whole if whole else None)
    tiles.add("operator_calls", len(waterfall.work.ops))
    return tiles.section("Host time", "tiles")


# -- The overview of a profile without events -------------------------------------------------------------------------
# how close its kernels run to their limits, which kernels and which scopes take the time.


MOST_SCOPES: Final = 12
WORDED: Final = {
    "name": ("Kernel", "Name of the kernel."),
    "calls": ("Launches", "Launches in the whole profile."),
    "phase": ("Scope", "Path of the scope."),
    "device_ns": ("Device", "Plain sum of the device time of kernels and copies inside."),
    "flop": ("FLOP", "Matrix operations that launch hooks stated for the kernels inside."),
    "sol_ns": ("Limit", "Least time of the stated work on this device."),
    "measured_ns": ("Time", "Device time of all its launches."),
}
"""Labels and definitions that differ from those of a trace."""
NOT_STATED: Final = "no launch hook stated any work"


def sentence(capture: Capture, waterfall: Waterfall) -> str:
    """Returns how long the kernels run, and how long the same work takes at the limits of the device."""
    if not waterfall.total_ns:
        return "This profile holds no device time."
    spec, time = waterfall.work.spec, human(waterfall.total_ns, "ns")
    known = sum(waterfall.kind_ns.values())
    if spec is None:
        return f"Kernels take **{time}** in all. No limits: {why_no_limits(capture)}."
    if not known or not waterfall.has_limits:
        return f"Kernels take **{time}** in all; {NOT_STATED}, so there is no limit to compare it with."
    share = known / waterfall.total_ns
    part = "" if share > 0.95 else f"; {human(share, 'ratio')} of it is work that was stated"
    least = human(round(waterfall.sol_ns), "ns")
    return f"Kernels take **{time}** in all{part}; that work takes **{least}** at the limits of {a_device(spec)}."


def tiles(capture: Capture, waterfall: Waterfall) -> FactsSection:
    """Builds efficiency, time, rates and copies of the whole profile."""
    ops, out = waterfall.work.ops, Tiles()
    known = sum(waterfall.kind_ns.values())
    efficiency = waterfall.sol_ns / known if waterfall.has_limits and known else None
    share = known / waterfall.total_ns if waterfall.total_ns else None
    mark = Mark("flagged", WRONG) if efficiency is not None and efficiency > TOLERATED else None
    if mark is None and efficiency is not None and share is not None and share < 0.95:
        mark = Mark("partial", f"covers {human(share, 'ratio')} of the time of kernels")
    if efficiency is None:
        mark = Mark("unknown", NOT_STATED if waterfall.work.spec is not None else why_no_limits(capture))
    note = _over(waterfall.sol_ns, known) if efficiency is not None else ""
    out.add("efficiency_while_busy", efficiency, label="Efficiency", note=note, mark=mark)
    out.add("kernel_sum_ns", waterfall.total_ns, note=f"{human(int(ops['launches'].sum()), 'count')} launches")
    flop, data = (float(np.nansum(ops[c].to_numpy(dtype=np.float64))) for c in ("flop", "bytes"))
    out.add("matrix_flop", round(flop) if flop else None, label="Stated work", note=f"{human(data, 'B')} moved" if data else "")
    rate = flop / known * 1e9 if flop and known else None
    out.add("matrix_flop_per_s", rate, hidden=rate is None)
    copies = capture.tables[S.COPIES.name]
    if len(copies):
        time = float(np.nansum(copies["time_ns"].to_numpy(dtype=np.float64)))
        size = int(copies["bytes"].to_numpy().sum())
        out.add("copies_sum_ns", round(time), note=human(size, "B") if size else "")
    out.hide_unknown("efficiency_while_busy", "matrix_flop")
    return out.section("Kernels of the profile", "tiles", {"matrix_flop": Link("roofline")})


def _over(least: float, time: int) -> str:
    return f"{human(round(least), 'ns')} / {human(time, 'ns')}"


def scope_table(capture: Capture, part: Scope, limits: str, columns: tuple[Column, ...]) -> TableSection:
    """Builds the table of scopes with most device time, each with what is inside."""
    done: ScopeWork = scope_work(capture, part, limits)
    tree = scope_tree(capture)
    sums = ratios(done.inclusive)
    whole = float(np.nansum(done.calls.values["flop"]))
    flop = sums["flop"].to_numpy(dtype=np.float64)
    rows = pd.DataFrame(
        {
            "phase": tree.path,
            "host_ns": pd.Series([None] * len(tree.path), dtype=object),
            "device_ns": whole_numbers(sums["device_sum_ns"].to_numpy(dtype=np.float64)),
            "flop": whole_numbers(flop),
            "flop_share": flop / whole if whole else np.nan,
            "sol_ns": whole_numbers(sums["sol_ns"].to_numpy(dtype=np.float64)),
            "efficiency": sums["efficiency"].to_numpy(),
        }
    ).sort_values("device_ns", ascending=False, kind="stable", ignore_index=True)
    every = len(rows)
    return make_table(
        "phases",
        "Scopes",
        rows.head(MOST_SCOPES),
        worded(tuple(c for c in columns if c.name != "host_ns")),
        subtitle="whole profile" + (f", first {MOST_SCOPES} of {human(every, 'count')}" if every > MOST_SCOPES else ""),
        key="phase",
        sort=Sort("device_ns"),
        links=[Link("phases", label="Phases")],
        empty="No scope was named: proton.scope(name) names parts of the program.",
        footer="A scope contains the scopes inside it. Device is the plain sum of its kernels and copies.",
    )


def worded(columns: tuple[Column, ...]) -> list[Column]:
    """Returns columns in the words of a profile."""
    return [msgspec.structs.replace(c, label=text[0], doc=text[1]) if (text := WORDED.get(c.name)) else c for c in columns]


# -- Overview of a SOL capture ----------------------------------------------------------------------------------------
# its work as tiles where no limits are known, and its phases.


MOST_PHASES: Final = 12
PHASE_COLUMNS: Final = (
    Column("phase", "Phase", "", "Path of the phase below the step.", "code"),
    Column("host_ns", "Host", "ns", "Sum of its ranges, per step, in iterations that were not sampled where there are any.", "bar",
           color="host"),
    Column("device_ns", "Device", "ns", "Time between the events around its ranges, likewise.", "bar", color="compute",
           missing="not timed"),
    Column("flop", "FLOP", "FLOP", "Matrix operations counted in it, per step.", missing="no work with a cost model"),
    Column("flop_share", "Of all", "ratio", "Its matrix operations over those of all phases.", "share", rank=2),
    Column("sol_ns", "Limit", "ns", "Least time of its work on this device, per step.", missing="no cost model, or unknown device limits"),
    Column("efficiency", "Efficiency", "ratio", "Limit over the time of its operators that have one.", "efficiency",
           missing="no limit, or no time"),
)  # fmt: skip


def counted_tiles(capture: Capture, part: Scope, waterfall: Waterfall) -> FactsSection:
    """Builds the answer of a SOL capture without limits."""
    ops = waterfall.work.ops[waterfall.inside]
    flop, vector = (float(np.nansum(ops[c].to_numpy(dtype=np.float64))) / waterfall.steps for c in ("flop", "flop_vector"))
    step = waterfall.total_ns / waterfall.steps
    tiles = Tiles()
    tiles.add("step_ns", round(step), label="" if waterfall.stepped else "Recording", more=step_words(capture, part, waterfall))
    if is_uncounted(capture):
        return _uncounted(tiles, capture)
    tiles.add("matrix_flop", round(flop), note="per step" if waterfall.stepped else "")
    tiles.add("matrix_flop_per_s", flop / step * 1e9 if step else None)
    if waterfall.work.timed:
        share = waterfall.busy_ns / waterfall.total_ns if waterfall.total_ns else None
        tiles.add("operator_share", share, mark=_scaled(waterfall))
    tiles.add("operator_calls", len(waterfall.work.ops))
    tiles.add("vector_flop", round(vector), hidden=True)
    return tiles.section("Counted work", "tiles", {"matrix_flop": Link("roofline")})


def _uncounted(tiles: Tiles, capture: Capture) -> FactsSection:
    """Adds what is known without counted work: rates and iterations; the work itself stays unknown and is not shown."""
    table, shown = capture.tables["iterations"], len(capture.steps)
    last = table.nlargest(shown, "start_ns")
    seconds = float(last["duration_ns"].sum()) / 1e9
    for name in ("samples", "tokens"):
        known = last["batch" if name == "samples" else name].to_numpy(dtype=np.float64)
        if len(known) and (known >= 0).all() and seconds > 0:
            tiles.add(f"{name}_per_s", float(known.sum()) / seconds)
    same = "" if shown == len(table) else f"the step is the mean of the last {human(shown, 'count')}, whose inputs have one size"
    tiles.add("iterations", len(table), note="none sampled", more=same)
    for name in ("matrix_flop", "matrix_flop_per_s", "operator_calls"):
        tiles.add(name, None, hidden=True)
    return tiles.section("No work was counted", "tiles", {"iterations": Link("iterations")})


def phase_table(capture: Capture, part: Scope, limits: str) -> TableSection:
    """Builds the table of phases of a SOL capture per step: those with ranges of their own, the longest first."""
    frame = phase_times(capture, part)
    frame = frame[(frame["count"] > 0) & (frame["path"] != STEP)].reset_index(drop=True)
    work = phase_work(capture, part, limits)
    node = frame["node"].to_numpy()
    sums = ratios(work.inclusive.take(node))
    each = part.step_count
    host = frame["host_ns"].to_numpy(dtype=np.float64) / each
    device = phase_device_ns(capture, part)[node] / each
    usual = usual_phase_ns(capture, part)
    if usual is not None:
        host, device = usual.host_ns[node], np.where(np.isfinite(usual.device_ns[node]), usual.device_ns[node], device)
    sol = sums["sol_ns"].to_numpy(dtype=np.float64)
    flop = sums["flop"].to_numpy(dtype=np.float64)
    whole = float(np.nansum(work.calls.values["flop"]))
    out = pd.DataFrame(
        {
            "phase": [str(p).removeprefix(f"{STEP}/") for p in frame["path"]],
            "host_ns": whole_numbers(host),
            "device_ns": whole_numbers(device),
            "flop": whole_numbers(flop / each),
            "flop_share": flop / whole if whole else np.nan,
            "sol_ns": whole_numbers(sol / each),
            "efficiency": sums["efficiency"].to_numpy() if work.calls.done.timed else ratio(sol, phase_time_ns(capture, part)[node]),
        }
    ).sort_values("host_ns", ascending=False, kind="stable", ignore_index=True)
    every = len(out)
    hidden_columns = {"device_ns"} if not out["device_ns"].notna().any() else set()
    hidden_columns |= {"efficiency"} if not out["efficiency"].notna().any() else set()
    hidden_columns |= {"sol_ns"} if not out["sol_ns"].notna().any() else set()
    return make_table(
        "phases",
        "Phases",
        out.head(MOST_PHASES),
        [
            msgspec.structs.replace(c, rank=3) if c.name in hidden_columns else c
            for c in over_whole(PHASE_COLUMNS, "phase", timed=work.calls.done.timed)
        ],
        subtitle="per step" + (f", first {MOST_PHASES} of {human(every, 'count')}" if every > MOST_PHASES else ""),
        key="phase",
        sort=Sort("host_ns"),
        links=[Link("phases", label="Phases")],
        empty="No phase was named.",
        footer="A phase contains the phases inside it.",
    )
