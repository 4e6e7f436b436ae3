"""Memory timelines as torch itself writes them, of a run on the CPU: both forms agree, and parameters are what the model has."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.memory.curves import curves

torch = pytest.importorskip("torch")


def test_both_forms_hold_the_parameters_of_the_model(tmp_path: Path) -> None:
    # GIVEN two linear layers of 256 x 512 and 512 x 256 in FP32, trained for two steps with momentum
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True
    ) as prof:
        for _ in range(2):
            model(torch.rand(32, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    names = ("memory.json", "memory.raw.json.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends the snapshot, which a CPU does not have
        for name in names:
            prof.export_memory_timeline(str(tmp_path / name), device="cpu")
    # WHEN both are read
    rows, raw = (ingest.read(str(tmp_path / name)) for name in names)
    assert rows.facts.metadata["form"] == "rows" and raw.facts.metadata["form"] == "raw"
    bytes_of_parameters = 4 * (256 * 512 + 512 + 512 * 256 + 256)
    for c in (rows, raw):
        t = c.tables["memory_timeline"]
        last = t.drop_duplicates("category", keep="last").set_index("category")["bytes"]
        # THEN the column of parameters holds the model, state of the optimizer one momentum each, and nothing ever falls below 0
        assert int(last["parameter"]) == bytes_of_parameters == int(last["optimizer_state"])
        assert int(t["bytes"].min()) >= 0
    # AND both end alike; the raw form, of finer times, peaks no lower
    (a,), (b,) = curves(rows), curves(raw)
    assert a.allocated is not None and b.allocated is not None and int(a.allocated[-1]) == int(b.allocated[-1]) and b.peak >= a.peak > 0
