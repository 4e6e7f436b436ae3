"""Measures whether comparisons name what was planted, and how often they cry wolf.

    python -m benchmarks.comparisons                          # 200 planted changes, 500 pairs without one
    python -m benchmarks.comparisons --planted 40 --equal 60
    python -m benchmarks.comparisons --unseen                 # of steps that end with the device without a call that waits for it

Recordings are generated, of a small training loop (`tests/support/compared.py`) with 1 % noise that hangs together (0.5), 3 % slow
steps and 0.3 % from run to run. Their steps end with a call that waits for the device, so that the critical path holds them; without that
call nothing says so, and exclusive parts take its place. A change counts as named where the first cause is of its kind and of the row that
was changed. An alarm is a regression at a limit of 3 % between two recordings of one job; the pairs are drawn from forty of them. Ends with
1 where less than 95 % are named, more than 1 % alarm, or bars do not add up.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from tb_sol_plugin.metrics.compare.causes import compared
from tb_sol_plugin.metrics.compare.differences import Bar, Side
from tb_sol_plugin.metrics.compare.gate import check, wanted_of
from tb_sol_plugin.metrics.compare.on_path import samples_with_path
from tb_sol_plugin.metrics.compare.samples import Samples
from tb_sol_plugin.model.query import Query
from tests.support.compared import Job, recording

NAMED: Final = 0.95
ALARMS: Final = 0.01
BASE: Final = Job(steps=16, slow=0.03, run_noise=0.003, batch=1, waits=True)


@dataclass(frozen=True)
class Planted:
    """A change: what of the job is another, the kinds that name it, and the row that a cause has to name ("" any). size: of the change."""

    change: dict[str, Any]
    kinds: tuple[str, ...]
    of: str = ""


def planted(random: np.random.Generator) -> dict[str, Planted]:
    """Returns changes of random sizes, by what they are."""
    operators = ["aten::mm", "aten::gelu", "aten::native_layer_norm", "aten::_softmax"]
    one = operators[int(random.integers(len(operators)))]
    slower = float(random.uniform(1.5, 2.5)) if one != "aten::mm" else float(random.uniform(1.1, 1.5))
    return {
        "slower kernel": Planted({"scale": {one: slower}}, ("slower_same_kernel",), one),
        "other type": Planted({"kernels": {one: "ampere_sgemm_128x64_tn"}, "scale": {one: slower}}, ("substitution",), one),
        "wider layer": Planted(
            {"shapes": {"aten::mm": 2}, "scale": {"aten::mm": float(random.uniform(1.3, 1.6))}}, ("more_work",), "aten::mm"),
        "batch doubled": Planted({"batch": 2}, ("more_work",)),
        "one more launch": Planted({"more": {"aten::add": int(random.integers(2, 4))}}, ("more_calls",), "aten::add"),
        "sync added": Planted({"syncs": int(random.integers(1, 3))}, ("sync_added",)),
        "memory from the driver": Planted({"mallocs": int(random.integers(1, 3))}, ("memory_pressure",)),
        "overlap lost": Planted({"reduce_us": 900, "reduce_behind": False}, ("schedule",)),
        "slow input": Planted({"loading_us": int(random.integers(700, 1_500))}, ("dataloader",)),
        "more copies": Planted({"copies": int(random.integers(12, 20))}, ("copy",)),
        "clock": Planted({"by_layer": True, "clock": float(random.uniform(1.05, 1.12))}, ("device_speed",)),
        "operator replaced": Planted(
            {"ops": {"aten::add": "", "aten::native_layer_norm": "fused::add_norm"}, "scale": {"aten::native_layer_norm": 2.5}},
            ("fused",), "fused::add_norm"),
    }  # fmt: skip


def exact(bars: Sequence[Bar], total: int) -> bool:
    """Whether bars add up to a total, at every level."""
    return sum(b.delta_ns for b in bars) == total and all(not b.parts or exact(b.parts, b.delta_ns) for b in bars)


def taken(job: Job, seed: int) -> Samples:
    """Returns the samples of a recording of a job."""
    return samples_with_path(recording(job, seed), Query())


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser("python -m benchmarks.comparisons", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--planted", type=int, default=200, metavar="N", help="changes to plant")
    parser.add_argument("--equal", type=int, default=500, metavar="N", help="pairs without a change")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unseen", action="store_true", help="leave out the call that waits for the device")
    options = parser.parse_args(arguments)
    out = console if console is not None else Console(width=150, highlight=False)
    random, began = np.random.default_rng(options.seed), time.process_time()
    base = replace(BASE, waits=not options.unseen)
    bases = [taken(base, 10_000 + i) for i in range(max(4, min(40, options.equal // 12)))]
    layered = taken(replace(base, by_layer=True), 9_999)
    reduced = taken(replace(base, reduce_us=900), 9_998)
    found: dict[str, list[bool]] = defaultdict(list)
    wrong: dict[str, list[str]] = defaultdict(list)
    broken = paths = 0
    for i in range(options.planted):
        every = planted(random)
        name = list(every)[i % len(every)]
        one = every[name]
        a = Side("A", [layered if "by_layer" in one.change else reduced if "reduce_us" in one.change else bases[i % len(bases)]])
        both = compared(a, Side("B", [taken(replace(base, **one.change), 20_000 + i)]))
        broken += not exact(both.waterfall.bars, both.waterfall.b_ns - both.waterfall.a_ns)
        paths += both.waterfall.basis == "path"
        first = both.causes[0] if both.causes else None
        right = first is not None and first.kind in one.kinds and one.of in ("", first.name)
        found[name].append(right)
        if not right:
            wrong[name].append("none" if first is None else f"{first.kind} {first.name}")
    pairs = [(i, k) for i in range(len(bases)) for k in range(len(bases)) if i != k]
    alarms = called = 0
    for i in random.choice(len(pairs), min(options.equal, len(pairs)), replace=False).tolist():
        a, b = (Side(n, [bases[k]]) for n, k in zip("AB", pairs[i], strict=True))
        verdict = check(a, b, wanted_of(["step_time"]))
        alarms += verdict.outcome == "regression"
        called += bool(verdict.causes)
    table = Table("change", "named first", "of", "in place of it")
    for name, rights in found.items():
        table.add_row(name, str(sum(rights)), str(len(rights)), ", ".join(dict.fromkeys(wrong[name])))
    out.print(table)
    total, rights_in_all = sum(map(len, found.values())), sum(map(sum, found.values()))
    count = min(options.equal, len(pairs))
    out.print(f"{rights_in_all} of {total} named first, {paths} by the critical path; {broken} waterfalls that do not add up")
    out.print(f"{alarms} alarms and {called} causes in {count} pairs without a change; {time.process_time() - began:.0f} s of a processor")
    bad = (total and rights_in_all < NAMED * total) or (count and alarms > ALARMS * count) or broken
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
