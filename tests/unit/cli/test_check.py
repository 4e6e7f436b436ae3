"""`tb-sol check`: every exit status, every format read back, and nothing that a hostile name can do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tb_sol_plugin.cli.command import main
from tests.conftest import ROOT
from tests.support.compared import Job, trace

NAME = "worker0.1700000000000000000.pt.trace.json.gz"
HOSTILE = "evil|`<script>alert(1)</script>`\x1b[31m[x](http://x) @all"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs a and a2 of one job, b with a kernel that takes twice as long, c a little slower, few of two steps, evil with a hostile name.

    shapes: with shapes recorded, so that cost models know the work; shapes_slow, shapes_sync: slower, and waiting for the device.
    """
    folder = tmp_path_factory.mktemp("runs")
    slow = {"aten::gelu": 2.0}
    jobs = {
        "a": Job(), "a2": Job(), "b": Job(scale=slow), "c": Job(clock=1.03), "few": Job(steps=2),
        "evil": Job(scale=slow, kernels={"aten::gelu": HOSTILE}),
        "shapes": Job(batch=1), "shapes_slow": Job(batch=1, scale={"aten::gelu": 3.0}), "shapes_sync": Job(batch=1, syncs=3, mallocs=2),
    }  # fmt: skip
    for seed, (name, job) in enumerate(jobs.items()):
        trace(job, seed).write(folder / name / NAME)
    return folder


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    try:
        status = main(["check", *map(str, arguments)])
    except SystemExit as error:
        status = int(str(error.code))
    out = capsys.readouterr()
    return status, out.out, out.err


def test_a_regression_fails_with_its_cause_in_the_first_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = check(capsys, runs / "a", runs / "b")
    first = out.splitlines()[0]
    assert status == 4 and first.startswith("Step REGRESSION: +") and "limit 3%; cause: aten::gelu" in first and "interval" in first
    assert len(out.splitlines()) <= 25
    # AND the same input gives the same output
    assert check(capsys, runs / "a", runs / "b")[1] == out


def test_the_statuses(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = runs / "a", runs / "b"
    assert check(capsys, a, a)[0] == 0
    assert check(capsys, b, a)[0] == 0  # better
    assert check(capsys, a, b, "--max-regression", "20%")[0] == 0
    assert check(capsys, a, b, "--max-regression", "1ms")[0] == 0 and check(capsys, a, b, "--max-regression", "10us")[0] == 4
    status, out, _ = check(capsys, a, runs / "c")
    assert status == 5 and "INCONCLUSIVE" in out.splitlines()[0]
    assert check(capsys, a, runs / "c", "--inconclusive", "pass")[0] == 0 and check(capsys, a, runs / "c", "--inconclusive", "fail")[0] == 4
    status, out, _ = check(capsys, a, b, "--metric", "peak_memory")
    assert status == 3 and "profile_memory=True" in out
    assert check(capsys, a, b, "--metric", "peak_memory", "--metric", "step_time")[0] == 4  # the worst counts
    assert check(capsys, a, b, "--metric", "nonsense")[0] == 2 and check(capsys, a, b, "--metric", "step_time=lots")[0] == 2
    assert check(capsys, a, b, "--metric", "launches=5ms")[0] == 2 and check(capsys, a)[0] == 2
    assert check(capsys, a, runs / "missing")[0] == 1


def test_counts_and_rows_are_metrics(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = check(capsys, runs / "a", runs / "b", "--metric", "launches", "--metric", "operator:aten::mm")
    assert status == 0, out
    assert check(capsys, runs / "a", runs / "b", "--metric", "operator:aten::gelu=50%")[0] == 4
    status, out, _ = check(capsys, runs / "a", runs / "b", "--metric", "module:Nothing")
    assert status == 3 and "with_stack=True" in out


def test_efficiency_is_a_metric_that_must_not_fall(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tb_sol_plugin as sol

    # GIVEN a job of the same work whose gelu takes three times as long WHEN it is checked by its efficiency and MFU
    names = "--metric", "efficiency", "--metric", "mfu"
    status, out, _ = check(capsys, runs / "shapes", runs / "shapes_slow", *names, "--format", "json")
    found = json.loads(out)
    # THEN both fall by what the step got longer, over sums of all steps, as the page of steps has them (limits of 3 and 5 us, kept in ns)
    assert status == 4 and [m["unit"] for m in found["metrics"]] == ["ratio", "ratio"]
    for name, run in (("a", "shapes"), ("b", "shapes_slow")):
        page = sol.open(str(runs), run=run).analyze("steps", step="2-12")
        assert [m[name] for m in found["metrics"]] == pytest.approx([page.facts["sol_ratio"], page.facts["mfu"]], rel=1e-3)  # type: ignore[union-attr]
    assert found["metrics"][0]["high"] < -0.1 and found["causes"][0]["name"] == "aten::gelu"
    # AND the other way round they got better; without shapes they are unavailable, and what to record is said
    assert check(capsys, runs / "shapes_slow", runs / "shapes", *names)[0] == 0
    status, out, _ = check(capsys, runs / "a", runs / "b", *names)
    assert status == 3 and "record_shapes=True" in out
    # AND a budget of it is written in percent, and holds for the limits of the device that it was written for
    file = tmp_path / "budgets.json"
    assert check(capsys, file, runs / "shapes", "--update", *names)[0] == 0
    assert all(re.fullmatch(r"0\.\d+%", text) for text in json.loads(file.read_text())["budgets"].values())
    assert check(capsys, file, runs / "shapes")[0] == 0 and check(capsys, file, runs / "shapes_slow")[0] == 4
    assert check(capsys, file, runs / "shapes", "--device", "A100_SXM_80")[0] == 0  # of lower limits, so nearer to them


def test_findings_are_counted_and_new_ones_named(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a job that newly waits for the device WHEN findings are a metric THEN there are more, and the new one is named in the first line
    status, out, _ = check(capsys, runs / "shapes", runs / "shapes_sync", "--metric", "findings")
    first = out.splitlines()[0]
    assert status == 4 and first.startswith("Findings REGRESSION: +33.3 % (3 → 4), limit 0%; new: device_allocation")
    assert check(capsys, runs / "shapes_sync", runs / "shapes", "--metric", "findings")[0] == 0
    # AND a baseline has them, as have budgets
    base, file = tmp_path / "base.json", tmp_path / "budgets.json"
    check(capsys, runs / "shapes", "--save-baseline", base)
    assert check(capsys, base, runs / "shapes_sync", "--metric", "findings")[0] == 4
    check(capsys, file, runs / "shapes", "--update", "--metric", "findings")
    status, out, _ = check(capsys, file, runs / "shapes_sync")
    assert status == 4 and re.search(r"; found: .*\bdevice_allocation\b", out.splitlines()[0])
    # AND what one saves is a number of its own, of which an amount may pass
    wait = "finding:host_wait"
    status, out, _ = check(capsys, base, runs / "shapes_sync", "--metric", f"{wait}=10us")
    assert status == 4 and out.startswith("finding:host_wait REGRESSION: +")
    assert check(capsys, base, runs / "shapes_sync", "--metric", f"{wait}=2ms")[0] == 0
    status, _, err = check(capsys, base, runs / "shapes_sync", "--metric", "finding:nonsense")
    assert status == 2 and "device_allocation" in err
    # AND one that was stored without them says what to do
    bare = json.loads(base.read_text())
    del bare["runs"][0]["findings"]
    base.write_text(json.dumps(bare, separators=(",", ":")))
    status, out, _ = check(capsys, base, runs / "shapes", "--metric", "findings")
    assert status == 3 and "store a baseline again with --save-baseline" in out


def test_several_runs_are_one_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = check(capsys, f"{runs / 'a'},{runs / 'a2'}", runs / "b", "--format", "json")
    found = json.loads(out)
    assert status == 4 and found["base"] == "2 runs" and found["metrics"][0]["samples"] == [22, 11] and found["metrics"][0]["runs"] == [2, 1]


def test_json_has_what_the_page_has(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tb_sol_plugin as sol

    _, out, _ = check(capsys, runs / "a", runs / "b", "--format", "json")
    found = json.loads(out)
    page = sol.open(str(runs), run="a", cache=False).analyze("compare", other_run="b")
    step = found["metrics"][0]
    assert (found["check"], found["verdict"], found["status"], step["name"]) == (1, "regression", 4, "step_time")
    assert step["change"] == page.facts["change"] and (step["low"], step["high"]) == (page.facts["low"], page.facts["high"])  # type: ignore[union-attr]
    falls = found["waterfall"]
    assert sum(b["delta_ns"] for b in falls["bars"]) == falls["b_ns"] - falls["a_ns"]
    assert found["causes"][0]["kind"] == "slower_same_kernel" and found["causes"][0]["evidence"][0]["analysis"] == "compare"


def test_junit(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = check(capsys, runs / "a", runs / "b", "--metric", "step_time", "--metric", "peak_memory", "--metric", "launches", "--format", "junit")
    suite = ElementTree.fromstring(out).find("testsuite")
    assert suite is not None
    assert [suite.get(n) for n in ("name", "tests", "failures", "errors", "skipped")] == ["tb-sol", "3", "1", "1", "0"]
    failure = suite.find("testcase[@name='step_time']/failure")
    assert failure is not None and "aten::gelu" in str(failure.get("message")) and "kernels" in str(failure.text)
    _, out, _ = check(capsys, runs / "a", runs / "c", "--format", "junit")
    assert ElementTree.fromstring(out).get("skipped") == "1"
    _, out, _ = check(capsys, runs / "a", runs / "c", "--format", "junit", "--inconclusive", "fail")
    assert ElementTree.fromstring(out).get("failures") == "1"


def test_hostile_names_are_text(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = check(capsys, runs / "a", runs / "evil", "--metric", "kernel:gelu_kernel", "--metric", "step_time", "--format", "markdown")
    assert len(out.splitlines()) <= 40 and "<script>" not in out and "\x1b" not in out and "[x](http" not in out and "@all" not in out
    for kind in ("text", "json", "junit"):
        _, out, _ = check(capsys, runs / "a", runs / "evil", "--format", kind)
        assert "\x1b" not in out
    ElementTree.fromstring(check(capsys, runs / "a", runs / "evil", "--format", "junit")[1])


def test_a_baseline_is_stored_and_checked_against(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = tmp_path / "base.json"
    assert check(capsys, runs / "a", "--save-baseline", stored)[0] == 0 and stored.stat().st_size < 1 << 20
    assert str(runs) not in stored.read_text() and "worker0" not in stored.read_text()
    with_file, with_run = (check(capsys, base, runs / "b", "--format", "json")[1] for base in (stored, runs / "a"))
    left, right = json.loads(with_file), json.loads(with_run)
    assert left["metrics"] == right["metrics"] and left["causes"] == right["causes"] and left["waterfall"] == right["waterfall"]
    # AND a damaged one is said, with what to do
    whole = json.loads(stored.read_text())
    for damage in (lambda b: b["runs"][0]["values"].update(step_time=[1]), lambda b: b["runs"].clear(),
                   lambda b: b["runs"][0]["groupings"]["kernel"].update(device=""), lambda b: b["runs"][0].update(row_steps=[99]),
                   lambda b: b["runs"][0].update(tree={"step": 1, "names": [], "nodes": {"count": 1 << 40, "columns": {}}}),
                   lambda b: b["runs"][0]["path"]["parts"].update({"path:kernel_ns": [1]}),
                   lambda b: b["runs"][0]["path"]["items"].update(calls=""),
                   lambda b: b["runs"][0]["parts"].update(kernel_ns=[1 << 62] * len(b["runs"][0]["steps"]))):  # fmt: skip
        bad = json.loads(json.dumps(whole))
        damage(bad)
        (tmp_path / "bad.json").write_text(json.dumps(bad, separators=(",", ":")))
        status, _, err = check(capsys, tmp_path / "bad.json", runs / "b")
        assert status == 1 and "--save-baseline" in err, err
    (tmp_path / "cut.json").write_text(stored.read_text()[:500])
    assert check(capsys, tmp_path / "cut.json", runs / "b")[0] == 1


def test_budgets_are_written_and_checked_against(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN no file yet WHEN it is updated from a run THEN it has what that took, and the run passes
    file, a, b = tmp_path / "budgets.json", runs / "a", runs / "b"
    metrics = [word for name in ("step_time", "launches", "operator:aten::gelu") for word in ("--metric", name)]
    assert check(capsys, file, a, "--update", *metrics)[0] == 0
    found = json.loads(file.read_text())
    assert found["tb_sol_budgets"] == 1 and found["budgets"]["launches"] == "32"
    assert re.fullmatch(r"4\.\d+ms", found["budgets"]["step_time"]) and re.fullmatch(r"0\.3[56]\d*ms", found["budgets"]["operator:aten::gelu"])
    assert check(capsys, file, a)[0] == 0
    # AND a slower one fails, unless a budget allows as much; a metric without a budget is said, as is one that does not fit
    status, out, _ = check(capsys, file, b)
    assert status == 4 and out.splitlines()[0].startswith("Step REGRESSION: +") and "budgets → b" in out and "operator:aten::gelu REGRESSION" in out
    found["budgets"] = {n: f"{v} +120%" if n != "launches" else v for n, v in found["budgets"].items()}
    file.write_text(json.dumps(found))
    assert check(capsys, file, b)[0] == 0
    status, out, _ = check(capsys, file, b, "--metric", "device_busy")
    assert status == 3 and "no budget for it; --update writes one" in out
    # AND an update keeps what is allowed, and what it does not measure
    assert check(capsys, file, b, "--update", "--metric", "step_time")[0] == 0
    kept = json.loads(file.read_text())["budgets"]
    assert kept["step_time"].endswith("ms +120%") and kept["step_time"] != found["budgets"]["step_time"] and kept["launches"] == "32"
    for bad in ({"step_time": "soon"}, {"step_time": "3%"}, {"nonsense": "1ms"}, {"launches": "4ms"}, {"step_time": 4}):
        file.write_text(json.dumps({"tb_sol_budgets": 1, "budgets": bad}))
        status, _, err = check(capsys, file, a)
        assert status == 1 and "damaged budgets" in err, err
    # AND a baseline is replaced by the samples of the candidate, a recording by nothing
    base = tmp_path / "base.json"
    check(capsys, a, "--save-baseline", base)
    assert check(capsys, base, b)[0] == 4 and check(capsys, base, b, "--update")[0] == 0 and check(capsys, base, b)[0] == 0
    assert check(capsys, a, b, "--update")[0] == 2


def test_a_history_says_how_much_runs_differ(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN earlier runs of one state that differ by 3 % THEN 8 % are no regression any more, and the limit is called too low
    for seed in range(4):
        trace(Job(steps=8, clock=1 + 0.03 * (seed - 2)), seed).write(tmp_path / "one" / f"run{seed}" / NAME)
    status, out, _ = check(capsys, runs / "a", runs / "b", "--history", tmp_path / "one")
    assert status == 5 and "the limit is below the noise of earlier runs; use " in out
    assert re.search(r"earlier runs differ by \d\.\d % .*; at this limit \d\.\d % of unchanged ones fail", out)
    # AND where they lie around two levels it is the noise within one, so that 8 % are a regression again
    for seed in range(4, 8):
        trace(Job(steps=8, clock=1.5 + 0.002 * seed, noise=0.001), seed).write(tmp_path / "two" / f"run{seed}" / NAME)
        trace(Job(steps=8, clock=1 + 0.002 * seed, noise=0.001), seed).write(tmp_path / "two" / f"run{seed}b" / NAME)
    status, out, _ = check(capsys, runs / "a", runs / "b", "--history", tmp_path / "two")
    assert status == 4 and "step_time: earlier runs have two levels, 4.6" in out
    # AND a history of less than three shows nothing
    status, _, err = check(capsys, runs / "a", runs / "b", "--history", f"{runs / 'a'},{runs / 'a2'}")
    assert status == 2 and "a history of 2 runs" in err


def test_several_workers_are_as_long_as_the_slowest(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a run of two ranks of which one is slower THEN it fails for that one, and is said
    for rank, job in enumerate((Job(), Job(scale={"aten::gelu": 2.0}))):
        trace(job, rank).write(tmp_path / "two" / f"rank{rank}.1700000000000000000.pt.trace.json.gz")
    status, out, err = check(capsys, runs / "a", tmp_path / "two")
    assert status == 4 and "aten::gelu" in out.splitlines()[0] and "of each step the slowest of 2 workers, mostly rank1" in err
    status, _, err = check(capsys, tmp_path / "two", tmp_path / "two", "--worker", "rank0")
    assert status == 0 and "slowest" not in err
    # AND a worker that one side lacks is said, with those that it has and what to do
    status, _, err = check(capsys, runs / "a", tmp_path / "two", "--worker", "rank0")
    assert status == 1 and "BASE 'a' has no worker 'rank0'" in err and "there is: worker0" in err and "leave --worker out" in err


def test_few_steps_lower_trust(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = check(capsys, runs / "few", runs / "few")
    assert "few: 2 steps are fewer than 5" in out


def test_a_job_of_github_gets_a_summary_and_an_annotation(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    status, _, err = check(capsys, runs / "a", runs / "b", "--output", tmp_path / "out.txt")
    assert status == 4 and "::error title=tb-sol check::Step REGRESSION: +" in err and "%25" in err
    assert summary.read_text().startswith("### ❌ Regression: `a` → `b`") and (tmp_path / "out.txt").read_text().startswith("Step REGRESSION")


def test_the_workflow_of_the_docs_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN the workflow of the docs, a stored baseline, and a training script that leaves a recording behind
    text = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    block = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    assert block.startswith("name: performance\non: pull_request\njobs:\n")
    lines = re.findall(r"- run: (.*)", block)
    for seed, (name, job) in enumerate({"main": Job(peak_mb=64), "same": Job(peak_mb=64), "slow": Job(peak_mb=64, scale={"aten::gelu": 2.0})}.items()):
        trace(job, seed).write(tmp_path / "recorded" / name / NAME)
    (tmp_path / "perf").mkdir()
    assert check(capsys, tmp_path / "recorded" / "main", "--save-baseline", tmp_path / "perf" / "base.json")[0] == 0
    (tmp_path / "train.py").write_text(
        "import os, shutil, sys\nassert sys.argv[1:] == ['--steps', '40', '--profile', 'logs/branch']\n"
        "shutil.copytree(os.environ['RECORDED'], 'logs/branch')\n"
    )
    commands = {"pip": 'test "$*" = "install tb-sol-plugin"', "python": f'exec {sys.executable} "$@"',
                "tb-sol": f'exec {sys.executable} -c "import sys; from tb_sol_plugin.cli.command import main; sys.exit(main())" "$@"'}  # fmt: skip
    (tmp_path / "bin").mkdir()
    for name, line in commands.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    # WHEN its lines run as plain processes THEN a branch that is as fast passes, and a slower one fails with its cause, summed up for the job
    for name, status, word in (("same", 0, "Passed"), ("slow", 4, "Regression")):
        shutil.rmtree(tmp_path / "logs", ignore_errors=True)
        env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "true",
               "TB_SOL_CACHE_DIR": "", "GITHUB_STEP_SUMMARY": str(tmp_path / f"{name}.md"), "RECORDED": str(tmp_path / "recorded" / name)}  # fmt: skip
        done = [subprocess.run(["bash", "-ec", line], cwd=tmp_path, env=env, capture_output=True, text=True, check=False) for line in lines]
        assert [d.returncode for d in done] == [0, 0, status], done[-1].stderr
        assert word in (tmp_path / f"{name}.md").read_text() and ("::error title=tb-sol check::" in done[-1].stderr) is (status == 4)
    assert "cause: aten::gelu" in done[-1].stdout.splitlines()[0]
