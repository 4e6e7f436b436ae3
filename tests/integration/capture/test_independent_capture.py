"""Every figure that pages, report and scalars show of a tracked run, against sums over the file made here: plain JSON and formulas.

The loops run on the CPU for real. What differs by more than the rounding of whole nanoseconds is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import isclose
from pathlib import Path
from statistics import mean, median
from tempfile import mkdtemp
from typing import Any

import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Report, encode
from tests.support import raw_capture as own
from tests.support.forked import python
from tests.support.torch_models import transformer

torch = pytest.importorskip("torch", reason="records training loops")

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
LIMITS = str(SAMPLES / "sol_devices.json")
STEPS, EVERY = 8, 3


@dataclass(frozen=True)
class Run:
    """A recorded loop: the file as read here, where it is, what was printed."""

    raw: own.Raw
    path: Path
    printed: str

    @property
    def rows(self) -> list[own.Row]:
        """Of the iterations that pages look at."""
        return [r for r in self.raw.rows if r.iteration in self.raw.shown]

    def page(self, name: str, **query: str) -> dict[str, Any]:
        report = opened(str(self.path), self.path.stat().st_size).analyze(name, **query)
        assert isinstance(report, Report), f"{name} is unavailable"
        return json.loads(encode(report))


@lru_cache(maxsize=4)
def opened(path: str, size: int) -> Capture:
    """The capture of a file of a size: pages of one recording open it once."""
    return sol.open_capture(path)


def section(page: dict[str, Any], name: str) -> Any:
    return next(s for s in page["sections"] if s["id"] == name)


def values(page: dict[str, Any], name: str) -> dict[str, Any]:
    return section(page, name)["values"]


def table(page: dict[str, Any], name: str) -> list[dict[str, Any]]:
    data = section(page, name)["data"]
    return [dict(zip(data, cells, strict=True)) for cells in zip(*data.values(), strict=True)]


# -- loops ---------------------------------------------------------------------------------------------------------------------


def tracked(model: Any, step: Callable[[Any], None], **options: Any) -> Path:
    folder = Path(mkdtemp(prefix="sol"))
    with sol.capture(str(folder), model=model, every_n_steps=EVERY, report_interval=1, device=LIMITS, **options) as tracker:
        for _ in range(STEPS):
            step(tracker)
            tracker.step()
    return folder


def training(
    model: Any, loss: Callable[[], Any], *, batches: int = 1, precision: Any = None, parameters: Any = None, **options: Any
) -> Path:
    optimizer = torch.optim.AdamW(list(parameters or model.parameters()), lr=1e-3)

    def step(tracker: Any) -> None:
        for _ in range(batches):
            with tracker.phase("forward"), torch.autocast("cpu", precision, enabled=precision is not None):
                found = loss()
            with tracker.phase("train/backward"):
                found.backward()
        with tracker.phase("train"), tracker.phase("train/optimizer"):
            with tracker.phase("clip"):
                torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return tracked(model, step, **options)


def decoder(**more: Any) -> Any:
    sizes: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 4, "hidden": 128, "vocab": 96}
    return transformer(**{**sizes, "gated": False, "causal": True, "fused": False, **more})


def loss_of(model: Any, tokens: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())


def toy() -> Path:
    model, tokens = decoder(), torch.randint(0, 96, (3, 40))
    return training(model, lambda: loss_of(model, tokens), tokens=120, batch=3)


def accumulated() -> Path:
    model, tokens = decoder(), torch.randint(0, 96, (3, 40))
    return training(model, lambda: loss_of(model, tokens), batches=3)


def mixed() -> Path:
    model, tokens = decoder(), torch.randint(0, 96, (3, 40))
    return training(model, lambda: loss_of(model, tokens), precision=torch.bfloat16)


def grouped() -> Path:
    model, tokens = decoder(kv_heads=2, gated=True, fused=True), torch.randint(0, 96, (3, 40))

    def loss() -> Any:
        x = model.embed(tokens)
        for block in model.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return torch.nn.functional.cross_entropy(model.head(model.norm(x)).flatten(0, 1), tokens.flatten())

    return training(model, loss)


def convolutions() -> Path:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1, groups=4), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(16, 16, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    images, classes = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    return training(model, lambda: nn.functional.cross_entropy(model(images), classes))


def two_models() -> Path:
    nn = torch.nn
    maker, judge = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 32)), nn.Sequential(nn.Linear(32, 24), nn.Linear(24, 1))
    noise = torch.randn(20, 16)
    both = {"maker": maker, "judge": judge}
    return training(both, lambda: judge(maker(noise)).square().mean(), parameters=[*maker.parameters(), *judge.parameters()])


def reinforcement() -> Path:
    sys.path.insert(0, str(SAMPLES))
    try:
        import capture_rl as rl
    finally:
        sys.path.remove(str(SAMPLES))
    from tb_sol_plugin.capture import add_sol_arguments, clear_sol_captures, initialize_sol, log_training_sol

    folder = Path(mkdtemp(prefix="sol"))
    parser = argparse.ArgumentParser()
    add_sol_arguments(parser)
    args = parser.parse_args(["--rl-sol-report-interval", str(EVERY), "--sol-logdir", str(folder), "--rl-sol-device", LIMITS])
    policy, reference = (rl.Decoder(vocabulary=rl.VOCABULARY, width=32, layers=1, heads=2, length=rl.LENGTH) for _ in range(2))
    optimizer = torch.optim.AdamW(policy.parameters())
    tracker = initialize_sol([policy, reference.requires_grad_(False)], args)
    for iteration in range(STEPS):
        clear_sol_captures()
        rl.iterate(policy, reference, optimizer, torch.randint(0, rl.VOCABULARY, (rl.PROMPTS, rl.PROMPT)))
        log_training_sol(iteration, clear=True)
    tracker.close()
    return folder


LOOPS = {f.__name__: f for f in (toy, accumulated, mixed, grouped, convolutions, two_models, reinforcement)}


@cache
def run(name: str) -> Run:
    torch.manual_seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        folder = LOOPS[name]()
    (path,) = folder.glob("*.sol.jsonl")
    return Run(own.read(path), path, printed.getvalue())


each = pytest.mark.parametrize("name", LOOPS)


def near(got: float | None, wanted: float, *, slack: float = 1.0) -> bool:
    """Equal but for the rounding of whole ns, FLOP or bytes."""
    return got is not None and isclose(got, wanted, rel_tol=1e-9, abs_tol=slack)


def same(got: float | None, wanted: float) -> bool:
    """Ratios of such figures."""
    return got is not None and isclose(got, wanted, rel_tol=1e-6, abs_tol=1e-12)


# -- the file ------------------------------------------------------------------------------------------------------------------


@each
def test_work_of_every_signature(name: str) -> None:
    # GIVEN the operators of a run WHEN their matrix FLOP and bytes are worked out from the sizes THEN they are as written
    raw, checked = run(name).raw, 0
    for sig in raw.sigs.values():
        flop, data = own.matrix_flop(sig), own.plain_bytes(sig)
        if flop is not None:
            assert sig["flop"] == flop, sig
            checked += 1
        elif not sig["op"].startswith("aten::native_"):
            assert not sig["flop"], f"matrix work that is not checked here: {sig}"
        if data is not None and sig["bytes"] is not None:
            assert sig["bytes"] == data, (data, sig)
            checked += 1
    assert checked > 10


@each
def test_totals_in_the_file_are_sums_of_its_rows(name: str) -> None:
    # GIVEN sampled iterations WHEN their rows are summed THEN totals are those sums; unknown are calls without a cost
    raw = run(name).raw
    for number, step in raw.steps.items():
        if not step["sampled"]:
            assert "totals" not in step
            continue
        mine = [r for r in raw.rows if r.iteration == number]
        total, told = own.summed(mine, raw.limits)[""], step["totals"]
        assert (told["ops"], told["flop"], told["flop_vector"]) == (total.calls, total.flop, total.vector)
        assert told["bytes"] == total.bytes and near(told["sol_ns"], total.sol)
        assert told["unknown"] == sum(r.count for r in mine if not r.known and not r.collective)


# -- pages ---------------------------------------------------------------------------------------------------------------------


def usual(run: Run) -> float:
    """Step time: for each sampled iteration the median of the others with its inputs, and the mean of these."""
    steps = run.raw.steps
    return mean(
        median(s["duration_ns"] for s in steps.values() if not s["sampled"] and s.get("signature") == steps[n]["signature"])
        for n in run.raw.shown
    )


def scales(run: Run) -> dict[int, float]:
    """By sampled iteration: length of those like it that were not sampled, over its own, or over its operators where these take longer."""
    steps = run.raw.steps
    out = {}
    for n in run.raw.shown:
        like = median(s["duration_ns"] for s in steps.values() if not s["sampled"] and s.get("signature") == steps[n]["signature"])
        out[n] = like / max(steps[n]["duration_ns"], sum(r.time or 0 for r in run.rows if r.iteration == n))
    return out


@each
def test_overview_page_equals_sums_of_the_file(name: str) -> None:
    # GIVEN a run WHEN the overview answers THEN step, limit, utilizations and the parts of the step are the sums of the ledger
    found = run(name)
    page, limits, steps = found.page("overview"), found.raw.limits, len(found.raw.shown)
    got, total, step = values(page, "answer"), own.summed(found.rows, limits)[""], usual(found)
    first = [r for r in found.rows if not r.again]
    bound = own.summed(first, limits)[""]
    assert near(got["step_ns"], step) and near(got["sol_ns"], total.sol / steps)
    assert same(got["speed_of_light"], total.sol / steps / step)
    assert same(got["mfu"], (total.peak - total.again_peak) / steps / step) and same(got["hfu"], total.peak / steps / step)
    assert near(got["traffic_bytes"], total.bytes / steps)
    assert same(got["bandwidth_utilisation"], total.bytes / limits.bandwidth * 1e9 / steps / step)
    assert near(got["compute_limit_ns"], bound.compute_bound / steps) and near(
        got["memory_limit_ns"], (bound.sol - bound.compute_bound) / steps
    )
    again = sum((r.time or 0) * scales(found)[r.iteration] for r in found.rows if r.again and r.known)
    assert near(got["recompute_ns"], again / steps, slack=200)
    assert same(got["modelled_share"], total.timed / total.time)
    scale = scales(found)
    assert near(got["gpu_busy"] * step, sum((r.time or 0) * scale[r.iteration] for r in found.rows) / steps)
    parts = table(page, "parts")
    whole = {p["part"]: p["time_ns"] for p in parts}
    assert near(parts[0]["time_ns"], step) and near(sum(p["time_ns"] for p in parts[1:]), step, slack=len(parts))
    assert near(sum(v for k, v in whole.items() if "peed of light" in k), total.sol / steps, slack=4), whole


ROWS = (
    ("calls", "calls"), ("flop", "flop"), ("vector_flop", "vector"), ("bytes", "bytes"), ("sol_ns", "sol"), ("measured_ns", "time"),
    ("compute_ns", "compute"), ("memory_ns", "memory"),
)  # fmt: skip


@each
def test_roofline_page_equals_sums_of_the_file(name: str) -> None:
    # GIVEN a run WHEN the roofline lists its rows by operator and sizes THEN each is the sum of its calls, ratios are made of sums
    found = run(name)
    page, limits = found.page("roofline"), found.raw.limits

    def key(row: own.Row) -> tuple[Any, ...]:
        return row.op, row.sizes, row.dtype if row.known else "", "bwd" if row.backward and not row.again else "fwd"

    wanted, rows = own.summed(found.rows, limits, key), table(page, "ops")
    whole = sum(s.time for s in wanted.values())
    got = {(r["name"], r["input_shapes"], r["dtype"] if r["sol_ns"] is not None else "", r["direction"]): r for r in rows}
    assert len(got) == len(rows)
    assert set(got) == set(wanted), set(got) ^ set(wanted)
    for k, row in got.items():
        mine = wanted[k]
        assert row["calls"] == mine.calls and near(row["measured_ns"], mine.time, slack=2), (row, mine)
        assert same(row["share"], mine.time / whole)
        if mine.limited:
            for column, part in ROWS:
                assert near(row[column], getattr(mine, part), slack=2), (column, row, mine)
            assert same(row["efficiency"], mine.sol / mine.timed) and near(row["wasted_ns"], mine.timed - mine.sol, slack=3)
            assert same(row["achieved_flop_per_s"] or 0.0, (mine.flop or mine.vector) / mine.timed * 1e9), row
            assert same(row["achieved_bytes_per_s"] or 0.0, mine.bytes / mine.timed * 1e9)
            if mine.bytes and (mine.flop or mine.vector):
                assert same(row["intensity_flop_per_byte"], (mine.flop or mine.vector) / mine.bytes)
    facts, total = values(page, "facts"), own.summed(found.rows, limits)[""]
    assert (facts["total_flop"], facts["total_vector_flop"], facts["total_bytes"]) == (total.flop, total.vector, total.bytes)
    assert near(facts["sol_ns"], total.sol) and near(facts["measured_ns"], total.timed, slack=3)
    assert same(facts["efficiency"], total.sol / total.timed) and near(facts["unmodelled_ns"], total.time - total.timed, slack=3)
    step = usual(found) * len(found.raw.shown)
    assert near(facts["steps_ns"], step) and same(facts["mfu"], (total.peak - total.again_peak) / step)
    assert same(facts["hfu"], total.peak / step)
    assert facts["peak_bytes_per_s"] == limits.bandwidth


@each
@pytest.mark.parametrize(("by", "key"), [
    ("op", lambda r: r.op), ("dtype", lambda r: r.dtype or "(no type recorded)"), ("function", lambda r: r.function), ("step", lambda r: str(r.iteration)),
])  # fmt: skip
def test_roofline_groups_equal_sums_of_the_file(name: str, by: str, key: Any) -> None:
    # GIVEN a run WHEN rows are grouped otherwise THEN work, limit and time of each group are its sums
    found = run(name)
    wanted = own.summed(found.rows, found.raw.limits, key)
    rows = table(found.page("roofline", by=by), "ops")
    assert sum(r["calls"] for r in rows) == sum(s.calls for s in wanted.values())
    for row in rows:
        if by == "function" and row["name"].startswith("("):
            row["name"] = ""
        if by == "step":
            row["name"] = re.sub(r"\D", "", row["name"])
        mine = wanted[row["name"]]
        assert row["calls"] == mine.calls and near(row["flop"] or 0, mine.flop) and near(row["bytes"] or 0, mine.bytes), (row, mine)
        assert near(row["sol_ns"] or 0, mine.sol, slack=2) and near(row["measured_ns"], mine.time, slack=2), (row, mine)


@each
@pytest.mark.parametrize("per", ["all", "step"])
def test_phases_page_equals_sums_of_the_file(name: str, per: str) -> None:
    # GIVEN a run with phases inside phases WHEN the page shows them THEN each holds its own and those inside, times are its ranges
    found = run(name)
    raw, limits = found.raw, found.raw.limits
    page = found.page("phases", per=per)
    each_step = len(raw.shown) if per == "step" else 1
    inside: dict[tuple[str, ...], list[own.Row]] = defaultdict(list)
    for row in found.rows:
        for depth in range(len(row.phase) + 1):
            inside[row.phase[:depth]].append(row)
    host: dict[tuple[str, ...], int] = defaultdict(int)
    plain: dict[tuple[str, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for number, ranges in raw.phases.items():
        for label, _, duration, _, _ in ranges:
            path = raw.phase_path(label)
            if number in raw.shown:
                host[path] += duration
            elif not raw.steps[number]["sampled"] and "signature" in raw.steps[number]:
                plain[path][number] += duration
    seen = 0
    for row in table(page, "phases"):
        path = tuple(row["path"].split("/"))[1:]
        mine = own.summed(inside[path], limits).get("", own.Sum())
        calls = mine.limited if row["ops"] != mine.calls / each_step else mine.calls
        assert near(row["ops"], calls / each_step), (row, mine)
        assert near(row["flop"] or 0, mine.flop / each_step) and near(row["bytes"] or 0, mine.bytes / each_step), (row, mine)
        assert near(row["sol_ns"] or 0, mine.sol / each_step, slack=2) and near(row["measured_ns"] or 0, mine.timed / each_step, slack=2)
        if mine.timed:
            assert same(row["efficiency"], mine.sol / mine.timed), (row, mine)
        if path in host:
            assert near(row["host_ns"], host[path] / each_step), (row, host[path])
            assert near(row["usual_ns"], median(plain[path].values()) * len(raw.shown) / each_step), row
            seen += 1
        elif not path:
            whole = sum(raw.steps[n]["duration_ns"] for n in raw.shown)
            assert near(row["host_ns"], whole / each_step)
    assert seen == len(host)
    once = table(page, "once")
    by_phase = own.summed(found.rows, limits, lambda row: "/".join(row.phase))
    total = own.summed(found.rows, limits)[""]
    for row in once:
        mine = by_phase["" if row["phase"] == "(no phase)" else row["phase"]]
        assert near(row["ops"], mine.limited / each_step) and near(row["sol_ns"] or 0, mine.sol / each_step, slack=2), (row, mine)
        assert same(row["share"] or 0.0, mine.sol / total.sol) and near(row["measured_ns"] or 0, mine.timed / each_step, slack=2)
    assert near(sum(r["sol_ns"] or 0 for r in once), total.sol / each_step, slack=len(once) + 1)


@each
@pytest.mark.parametrize("direction", ["both", "forward", "backward"])
def test_modules_page_equals_sums_of_the_file(name: str, direction: str) -> None:
    # GIVEN a run WHEN the tree of modules is shown THEN work, limit and time of each are those of it and the modules inside
    found = run(name)
    raw, limits = found.raw, found.raw.limits
    page = found.page("modules", direction=direction)
    inside: dict[str, list[own.Row]] = defaultdict(list)
    outside: list[own.Row] = []
    classes: dict[str, list[own.Row]] = defaultdict(list)
    for row in found.rows:
        back = row.backward and not row.again
        if direction != "both" and back != (direction == "backward"):
            continue
        for label in row.module:
            inside[raw.labels[label]["name"]].append(row)
        for kind in {raw.labels[label]["class"] for label in row.module}:
            classes[kind].append(row)
        if not row.module:
            outside.append(row)
    calls: dict[str, int] = defaultdict(int)
    host: dict[str, int] = defaultdict(int)
    for number in raw.shown:
        for label, _, duration, _, count in raw.modules[number]:
            calls[raw.labels[label]["name"]] += count
            host[raw.labels[label]["name"]] += duration
    rows = [r for r in table(page, "modules") if r["calls"]]
    assert {r["qualified_name"] for r in rows} == set(calls)
    for row in rows:
        mine = own.summed(inside[row["qualified_name"]], limits).get("", own.Sum())
        assert row["calls"] == calls[row["qualified_name"]] and near(row["host_total_ns"], host[row["qualified_name"]])
        assert near(row["flop"] or 0, mine.flop) and near(row["bytes"] or 0, mine.bytes) and near(row["sol_ns"] or 0, mine.sol, slack=2), (
            row,
            mine,
        )
        assert near(row["operator_ns"] or 0, mine.time, slack=2) and near(row["measured_ns"] or 0, mine.timed, slack=2), (row, mine)
        if direction == "both":
            assert near(row["backward_flop"] or 0, mine.backward_flop), (row, mine)
        if mine.timed:
            assert same(row["efficiency"], mine.sol / mine.timed), (row, mine)
    for row in table(page, "classes"):
        mine = own.summed(classes[row["class_name"]], limits).get("", own.Sum())
        assert near(row["flop"] or 0, mine.flop) and near(row["sol_ns"] or 0, mine.sol, slack=2), (row, mine)
        assert near(row["operator_ns"] or 0, mine.time, slack=2), (row, mine)
    roots = [r for r in rows if r["parent"] is None]
    bare = [r for r in table(page, "modules") if not r["calls"] and r["parent"] is None]
    mine = own.summed(outside, limits).get("", own.Sum())
    assert near(sum(r["flop"] or 0 for r in bare), mine.flop) and near(sum(r["sol_ns"] or 0 for r in bare), mine.sol, slack=4), (bare, mine)
    total = sum(own.summed(inside[r["qualified_name"]], limits).get("", own.Sum()).flop for r in roots)
    assert total + mine.flop == sum(
        r.flop or 0 for r in found.rows if direction == "both" or (r.backward and not r.again) == (direction == "backward")
    )


@each
def test_iterations_page_equals_sums_of_the_file(name: str) -> None:
    # GIVEN a run WHEN the page of iterations is made THEN times are those of the file, work that of the last sampled one alike
    found = run(name)
    raw, limits = found.raw, found.raw.limits
    page = found.page("iterations")
    rows = {r["iteration"]: r for r in table(page, "iterations")}
    assert list(rows) == list(raw.steps)
    source = None
    for number, step in raw.steps.items():
        row = rows[number]
        source = number if step["sampled"] else source
        assert row["time_ns"] == row["host_ns"] == step["duration_ns"] and row["device_ns"] is None
        assert row["start_ns"] == step["start_ns"] - raw.steps[0]["start_ns"]
        mine = own.summed([r for r in raw.rows if r.iteration == source], limits)[""]
        time = step["duration_ns"]
        if source or not mine.again_flop:  # the work of the first is left out, so how much of it is recomputed is not known
            assert row["flop"] == mine.flop - mine.again_flop, (number, row, mine)
        else:
            assert row["flop"] is None
        assert (row["bytes"], row["ops"]) == (mine.bytes, mine.calls) and row["age"] == number - source
        if source or row["sol_ns"] is not None:
            assert row["recompute_flop"] == mine.again_flop
            assert near(row["sol_ns"], mine.sol) and same(row["sol_ratio"], mine.sol / time)
            assert same(row["mfu"], (mine.peak - mine.again_peak) / time) and same(row["hfu"], mine.peak / time)
        assert same(row["bandwidth_utilisation"], mine.bytes / limits.bandwidth * 1e9 / time)
        if step.get("tokens"):
            assert same(row["tokens_per_s"], step["tokens"] / time * 1e9)
        if step.get("batch"):
            assert same(row["samples_per_s"], step["batch"] / time * 1e9)
    between = [s["duration_ns"] for s in raw.steps.values() if not s["sampled"]]
    head, facts = values(page, "answer"), values(page, "facts")
    mine = own.summed([r for r in raw.rows if r.iteration == 1], limits)[""]
    assert near(head["median_ns"], median(between)) and head["sampled"] == sum(s["sampled"] for s in raw.steps.values())
    assert facts["iterations"] == STEPS and near(facts["sol_ns"], mine.sol)
    assert same(head["sol_ratio"], mine.sol / median(between)) and same(head["mfu"], (mine.peak - mine.again_peak) / median(between))
    assert same(facts["hfu"], mine.peak / median(between))
    later = [s["duration_ns"] for n, s in raw.steps.items() if s["sampled"] and n]
    assert near(facts["sampled_median_ns"], median(later))
    if "tokens" in raw.steps[1]:
        assert same(facts["tokens_per_s"], sum(s["tokens"] for s in raw.steps.values() if not s["sampled"]) / sum(between) * 1e9)


@each
def test_health_page_equals_sums_of_the_file(name: str) -> None:
    # GIVEN a run WHEN trace health counts THEN calls are those of the ledger
    found = run(name)
    got = values(found.page("health"), "recorder")
    rows = found.rows
    assert got["counted_calls"] == sum(r.count for r in rows)
    assert got["unknown_calls"] == sum(r.count for r in rows if not r.known and not r.collective)
    assert (got["iterations"], got["sampled"]) == (STEPS, sum(s["sampled"] for s in found.raw.steps.values()))


# -- report and scalars ----------------------------------------------------------------------------------------------------------

LINE = re.compile(
    r"  (?P<name>.+?) +(?P<ops>\d+) ops, +(?P<ms>[\d.]+) ms \( *(?P<share>[\d.]+)%\)(?: \[meas: (?P<meas>[\d.]+)ms(?:, eff: (?P<eff>[\d.]+)%)?\])?"
)


@each
def test_the_report_on_the_console_equals_sums_of_the_file(name: str) -> None:
    # GIVEN the last report WHEN it is read as text THEN counts, least times, shares, times and efficiencies are those of its iteration
    found = run(name)
    raw, limits = found.raw, found.raw.limits
    number = max(n for n, s in raw.steps.items() if s["sampled"])
    rows = [r for r in raw.rows if r.iteration == number]
    report = found.printed.split("SOL (Speed of Light) Analysis")[-1]
    total = own.summed(rows, limits)[""]
    head = re.search(r"Ops: (\d+) \| Total: ([\d.]+) ms", report)
    assert head is not None and int(head[1]) == total.calls and float(head[2]) == pytest.approx(total.sol / 1e6, abs=0.006)
    parts = {"By Phase:": lambda r: r.pushed, "By Function:": lambda r: r.function}
    for title, key in parts.items():
        wanted = own.summed(rows, limits, key)
        lines = [m for line in report.split(title)[1].split("-----")[0].splitlines() if (m := LINE.match(line))]
        assert lines, title
        for line in lines:
            mine = wanted[line["name"]]
            assert int(line["ops"]) == mine.calls and float(line["ms"]) == pytest.approx(mine.sol / 1e6, abs=0.006), (line, mine)
            assert float(line["share"]) == pytest.approx(100 * mine.sol / total.sol, abs=0.06)
            assert float(line["meas"]) == pytest.approx(mine.time / 1e6, abs=0.06), (line, mine)
            if line["eff"] and mine.timed:
                assert float(line["eff"]) == pytest.approx(100 * mine.sol / mine.timed, abs=0.06)


@each
def test_tensorboard_scalars_are_sums_of_the_file(name: str) -> None:
    # GIVEN the event file WHEN its scalars are read THEN each is its sum, in the unit of its name, at its own iteration
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = run(name)
    raw, limits = found.raw, found.raw.limits
    events = event_accumulator.EventAccumulator(str(found.path.parent))
    events.Reload()
    got = {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    source, known = {}, None
    for number, step in raw.steps.items():
        known = number if step["sampled"] else known
        source[number] = known
    sums = {n: own.summed([r for r in raw.rows if r.iteration == n], limits)[""] for n in set(source.values())}
    for number, base in source.items():
        mine = sums[base]
        assert got["sol/total_ops"][number] == mine.calls
        assert got["sol/total_tflops"][number] == pytest.approx(mine.flop / 1e12, rel=1e-6)
        assert got["sol/total_memory_gb"][number] == pytest.approx(mine.bytes / 1e9, rel=1e-6)
        assert got["sol/estimated_time_ms"][number] == pytest.approx(mine.sol / 1e6, rel=1e-6)
        assert got["sol/capture_age_iters"][number] == number - base
        time = raw.steps[number]["duration_ns"]
        assert got["sol/step_time_ms"][number] == pytest.approx(time / 1e6, rel=1e-6)
        assert got["sol/mfu_pct"][number] == pytest.approx(100 * (mine.peak - mine.again_peak) / time, rel=1e-6)
        assert got["sol/hfu_pct"][number] == pytest.approx(100 * mine.peak / time, rel=1e-6)
        for size in ("tokens", "samples"):
            count = raw.steps[number].get("batch" if size == "samples" else size)
            assert got.get(f"sol/{size}_per_s", {}).get(number) == (pytest.approx(count * 1e9 / time, rel=1e-6) if count else None)
        if base == number:
            assert got["sol/measured_time_ms"][number] == pytest.approx(mine.time / 1e6, rel=1e-6)
            assert got["sol/efficiency_pct"][number] == pytest.approx(100 * mine.sol / mine.timed, rel=1e-6)
            phases = own.summed([r for r in raw.rows if r.iteration == number], limits, lambda r: r.pushed)
            for path, one in phases.items():
                assert got[f"sol_phase/{path}/count"][number] == one.calls
                assert got[f"sol_phase/{path}/estimated_ms"][number] == pytest.approx(one.sol / 1e6, rel=1e-6)
        else:
            assert number not in got["sol/measured_time_ms"]


# -- time ----------------------------------------------------------------------------------------------------------------------


def test_the_trace_lies_in_its_own_iteration() -> None:
    # GIVEN a run that is traced, so that starting the profiler and writing traces is far more own work than an iteration lasts
    model, tokens = decoder(), torch.randint(0, 96, (3, 40))
    folder = training(model, lambda: loss_of(model, tokens), profile=True, trace_stacks=False, console=False)
    (path,) = folder.glob("*.sol.jsonl")
    raw = own.read(path)
    work = own.summed([r for r in raw.rows if r.iteration == 1], raw.limits)[""].flop
    seen = []
    for trace in sol.open(str(folder), cache=False).captures:
        if trace.facts.source == "sol_capture":
            continue
        # WHEN a trace is shown beside the capture THEN just the iteration of its step is said to be in the trace
        (number,) = trace.steps["number"].tolist()
        table = trace.analyze("iterations").table("iterations")
        assert table.loc[table["flags"].astype(str).str.contains("in the trace"), "iteration"].tolist() == [number]
        assert table["start_ns"].tolist() == [s["start_ns"] - raw.steps[0]["start_ns"] for s in raw.steps.values()]
        # AND the trace explains the work that the capture counted, and nothing is counted twice
        facts = trace.analyze("roofline").facts
        assert facts["total_flop"] == facts["explained_flop"] == facts["counted_flop"] == work
        seen.append(number)
    assert sorted(seen) == [2, 4, 7]


def test_times_are_those_of_a_stopwatch() -> None:
    # GIVEN iterations of known length, with sleep in phases inside of each other, own work before and after them
    lasted: list[float] = []
    inner: list[float] = []

    def step(tracker: Any) -> None:
        began = time.perf_counter()
        with tracker.phase("outer"):
            time.sleep(0.004)
            began_inner = time.perf_counter()
            with tracker.phase("outer/inner"):
                time.sleep(0.006)
            inner.append(time.perf_counter() - began_inner)
        lasted.append(time.perf_counter() - began)

    began = time.perf_counter()
    folder = tracked(torch.nn.Linear(2, 2), step, console=False)
    whole = time.perf_counter() - began
    (path,) = folder.glob("*.sol.jsonl")
    raw = own.read(path)
    # WHEN the file is read THEN no range is longer than by the stopwatch around it, nor shorter than what slept in it
    end = 0
    for number, record in raw.steps.items():
        ranges = {raw.phase_path(label): (start, length) for label, start, length, _, _ in raw.phases[number]}
        (outer, long), (within, short) = ranges["outer",], ranges["outer", "inner"]
        assert 6e6 <= short <= inner[number] * 1e9 + 1e3
        assert 10e6 <= long <= lasted[number] * 1e9 + 1e3
        # AND phases lie in their iteration, iterations follow each other without overlap
        start, length = record["start_ns"], record["duration_ns"]
        assert start >= end and start <= outer <= within and within + short <= outer + long <= start + length
        assert long <= length
        end = start + length
    # AND what passed is own work and iterations, and no more than the stopwatch says
    own_work = sum(s["overhead_ns"] + s["before_ns"] for s in raw.steps.values())
    assert own_work + sum(s["duration_ns"] for s in raw.steps.values()) <= whole * 1e9


def test_what_the_recorder_cost() -> None:
    # GIVEN a run WHEN the page books own work THEN it is that inside of an iteration and after it; setting up and iteration 0 stand apart
    found = run("toy")
    steps = list(found.raw.steps.values())
    mine = [s["overhead_ns"] + (t["before_ns"] if t else 0) for s, t in zip(steps, [*steps[1:], None], strict=True)]
    page = found.page("iterations")
    assert [r["overhead_ns"] for r in table(page, "iterations")] == mine
    share = sum(mine[1:]) / (sum(mine[1:]) + sum(s["duration_ns"] for s in steps[1:]))
    facts = values(page, "facts")
    assert same(values(page, "answer")["overhead_share"], share) and facts["overhead_once_ns"] == steps[0]["before_ns"] + mine[0]
    assert same(values(found.page("health"), "recorder")["overhead_share"], share)


def test_no_iteration_waits_for_code_to_be_loaded(tmp_path: Path) -> None:
    # GIVEN a process without anything of ours WHEN tracking has begun THEN what the end of an iteration needs is there
    code = f"""
import sys, torch
for name in [name for name in sys.modules if name.split(".")[0] == "tb_sol_plugin"]:
    del sys.modules[name]
import tb_sol_plugin as sol
needed = ("tb_sol_plugin.cost", "tb_sol_plugin.capture.report.analysis", "tb_sol_plugin.capture.report.writer", "tb_sol_plugin.devices.limits")
before = [name for name in needed if name in sys.modules]
with sol.capture({str(tmp_path)!r}, model=torch.nn.Linear(2, 2), console=False, wandb=False) as tracker:
    print(before, [name for name in needed if name not in sys.modules])
    loaded = set(sys.modules)
    tracker.models[0](torch.ones(1, 2)).sum().backward()
    tracker.step()
    print(sorted(name for name in set(sys.modules) - loaded if name.startswith("tb_sol_plugin")))
"""
    process = python("-c", code, errors_apart=True)
    printed, errors = process.communicate(300)
    assert process.returncode == 0 and printed.splitlines() == ["[] []", "[]"], errors


# -- random models ---------------------------------------------------------------------------------------------------------------


def random_model(draw: random.Random) -> tuple[Any, Any]:
    """(model, input): layers of several sorts on [batch, length, width] or [batch, width, side, side]."""
    nn = torch.nn
    if draw.random() < 0.4:
        channels, layers = 3, []
        for _ in range(draw.randint(1, 3)):
            groups = draw.choice([1, 1, 2]) if channels % 2 == 0 else 1
            more = 2 * draw.randint(1, 6)
            layers += [
                nn.Conv2d(
                    channels, more, draw.choice([1, 3]), stride=draw.choice([1, 2]), padding=1, groups=groups, bias=draw.random() < 0.5
                )
            ]
            layers += [draw.choice([nn.ReLU(), nn.GELU(), nn.BatchNorm2d(more)])]
            channels = more
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)), torch.randn(
            draw.randint(1, 4), 3, 12, 12
        )
    width = 8 * draw.randint(1, 4)
    layers = [draw.choice([
        lambda: nn.Linear(width, width, bias=draw.random() < 0.5), lambda: nn.LayerNorm(width), lambda: nn.GELU(),
        lambda: nn.Sequential(nn.Linear(width, 3 * width), nn.SiLU(), nn.Linear(3 * width, width)),
        lambda: nn.TransformerEncoderLayer(width, draw.choice([1, 2, 4]), 2 * width, dropout=0.0, batch_first=True),
    ])() for _ in range(draw.randint(1, 4))]  # fmt: skip
    return nn.Sequential(*layers, nn.Linear(width, 5)), torch.randn(draw.randint(1, 4), draw.randint(1, 9), width)


@pytest.mark.parametrize("seed", range(12))
def test_recordings_of_random_models_equal_the_file(seed: int) -> None:
    # GIVEN a random model and loop WHEN torch's own counter watches the same step THEN both counted the same matrix FLOP, but for
    # attention on a CPU, which torch leaves out, and for weight gradients of grouped convolutions, which it takes for dense ones
    from torch.utils.flop_counter import FlopCounterMode

    draw = random.Random(seed)
    torch.manual_seed(seed)
    model, given = random_model(draw)
    batches, frozen = draw.randint(1, 3), draw.random() < 0.3
    if frozen:
        next(model.parameters()).requires_grad_(False)
    path = next(training(model, lambda: model(given).square().mean(), batches=batches, console=False).glob("*.sol.jsonl"))
    with FlopCounterMode(display=False) as counter:
        for _ in range(batches):
            model(given).square().mean().backward()
    found = Run(own.read(path), path, "")
    total = own.summed([r for r in found.raw.rows if r.iteration == 1], found.raw.limits)[""]
    if not any(isinstance(m, torch.nn.Conv2d) and m.groups > 1 for m in model.modules()):
        attention = sum(r.flop or 0 for r in found.raw.rows if r.iteration == 1 and "attention" in r.op)
        assert total.flop - attention == counter.get_total_flops()
    assert total.flop == sum(f * r.count for r in found.raw.rows if r.iteration == 1 and (f := own.matrix_flop(found.raw.sigs[r.sig])))
    # AND modules with the outside, phases and rows of the roofline each hold all of it once
    whole, steps = own.summed(found.rows, found.raw.limits)[""], found.raw.shown
    roof, phases, modules = table(found.page("roofline"), "ops"), found.page("phases"), table(found.page("modules"), "modules")
    for column, wanted in (("flop", whole.flop), ("bytes", whole.bytes), ("sol_ns", whole.sol)):
        assert near(sum(r[column] or 0 for r in roof), wanted, slack=len(roof))
        assert near(sum(r[column] or 0 for r in modules if r["parent"] is None), wanted, slack=4)
        assert near(table(phases, "phases")[0][column], wanted)
    assert near(sum(r["sol_ns"] or 0 for r in table(phases, "once")), whole.sol, slack=8)
    assert values(found.page("modules"), "facts")["flop"] == whole.flop == len(steps) * total.flop


def test_without_limits_the_work_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # GIVEN a CPU without limits WHEN a loop is counted THEN its work is not called unknown; it has no least time, which is not 0
    monkeypatch.setattr(f"{__name__}.LIMITS", "auto")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    raw = own.read(next(toy().glob("*.sol.jsonl")))
    if raw.header["device"].get("limits"):
        pytest.skip("this CPU has measured limits")
    totals = raw.steps[1]["totals"]
    assert totals["unknown"] == 0 and totals.get("sol_ns") is None and totals["flop"] > 0
