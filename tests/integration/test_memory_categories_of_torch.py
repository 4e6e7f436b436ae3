"""What allocations of a trace are for: the estimate against the categories that torch finds by following every tensor, of one run on a CPU."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.attribution import TIMELINE, attribution
from tb_sol_plugin.metrics.memory.categories import NAMES, categories
from tb_sol_plugin.metrics.memory.curves import Curves, whole
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.memory_join import joined_files

torch = pytest.importorskip("torch")

MADE_INSIDE = ("grads", "optimizer", "activations", "inputs", "temporary", "autograd_detail")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of six layers with normalization, trained with Adam: trace and timeline in one folder."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    layers = [m for _ in range(6) for m in (torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True
    ) as prof:
        for _ in range(3):
            x, y = torch.randn(512, 64), torch.randint(0, 16, (512,))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            prof.step()
    prof.export_chrome_trace(str(folder / "host_1.1.pt.trace.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prof.export_memory_timeline(str(folder / "host_1.raw.json.gz"), device="cpu")
    return folder


def estimated(c: Capture, device: R.Device, place: int) -> dict[str, int]:
    """Bytes by category that live after an event, as they are estimated."""
    a, code = R.allocations(c, device), categories(c, device)["category"].to_numpy()
    first, stop, size = (a[n].to_numpy() for n in ("first", "stop", "bytes"))
    lives = (first <= place) & ((stop < 0) | (stop > place))
    return {name: int(size[lives & (code == NAMES.index(name))].sum()) for name in MADE_INSIDE}


def followed(timeline: Curves, time_ns: int) -> dict[str, int]:
    """The same as torch has them; what was there before the recording, state of the optimizer too, is none of it."""
    at = timeline.at(time_ns)
    found = {TIMELINE[name]: int(level[at]) for name, level in timeline.categories.items() if name in TIMELINE}
    return {name: found.get(name, 0) for name in MADE_INSIDE}


def test_the_estimate_agrees_with_what_torch_finds(recorded: Path) -> None:
    # GIVEN the trace alone, and its timeline
    c, t = (ingest.read(str(recorded / name)) for name in ("host_1.1.pt.trace.json", "host_1.raw.json.gz"))
    device = R.devices(c)[0]
    r, (timeline,) = R.replay(c, device), whole(t)
    shift = c.facts.origin_ns - t.facts.origin_ns
    both, most = [], []
    for place in [r.peak, *np.linspace(0, len(r.time_ns) - 1, 200).astype(int).tolist()]:
        mine, theirs = estimated(c, device, place), followed(timeline, int(r.time_ns[place]) + shift)
        both.append(sum(min(mine[n], theirs[n]) for n in MADE_INSIDE))
        most.append(max(sum(mine.values()), sum(theirs.values())))
    # WHEN held against each other THEN at the peak at least 97 % of the bytes have the same category, over all moments 90 %
    assert both[0] >= 0.97 * most[0] > 0 and sum(both) >= 0.90 * sum(most)


def test_a_timeline_beside_the_trace_takes_the_place_of_the_estimate(recorded: Path) -> None:
    # GIVEN the folder of both WHEN the trace is opened as a run's THEN categories are torch's, and none is an estimate
    run = sol.open(str(recorded), cache=False)
    c = run.open(next(r for r in run.recordings if r.kind == "kineto"))
    assert set(joined_files(c)) == {"memory_timeline"} and set(c.tables["memory_timeline"]["device"]) == {"cpu"}
    curve = next(x for x in whole(c) if x.source == "events")
    found = attribution(c, curve, "category")
    assert not found.rows["estimated"].any() and int(found.rows["bytes"].sum()) == curve.peak
    timeline = next(x for x in whole(c) if x.source == "timeline")
    named = dict(zip(found.rows["name"], found.rows["bytes"].tolist(), strict=True))
    assert {n: named.get(n, 0) for n in ("activations", "grads", "autograd_detail")} == {
        n: size for n, size in followed(timeline, curve.peak_ns).items() if n in ("activations", "grads", "autograd_detail")
    }
