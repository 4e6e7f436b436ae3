"""Counting of steps on a clock that stands still, the state across restarts, and what a fit makes of it."""

from __future__ import annotations

import io
import json
import logging

import pytest

from tb_sol_plugin.capture.goodput import steps as G
from tb_sol_plugin.capture.goodput.state import Counts, Key, MetricsState
from tb_sol_plugin.capture.goodput.steps import StepRecorder
from tb_sol_plugin.format import PROFILE_ROW
from tests.conftest import ROOT

P1 = (0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def step(recorder, clock, size, seconds, sync=None, accumulation=False):
    recorder.start(size)
    if sync is not None:
        recorder.sync(sync)
    clock.now += seconds
    recorder.commit(accumulation)


def made(clock, **options):
    return StepRecorder(clock=clock, **options)


def test_sums_and_means_by_hand(clock):
    r = made(clock)
    r.set_replicas(2, 8)
    # GIVEN two micro-steps of 3 s that accumulate, then one of 5 s of which 1.5 s were waiting, twice
    for _ in range(2):
        step(r, clock, 32, 3.0, accumulation=True)
        step(r, clock, 32, 3.0, accumulation=True)
        r.start(32)
        r.sync(1.0)
        r.sync(0.5)
        clock.now += 5.0
        r.commit()
    # THEN sums and means: T_accum = (12 + 10 - 3) / 6, T_optim = 5
    counts = r.state.profile[Key(2, 8, 32)]
    assert counts == Counts(12.0, 4, 10.0, 3.0, 2, 2, 10.0) and counts.times() == (19 / 6, 5.0)
    assert r.state.points() == ([2], [8], [32], [19 / 6], [5.0])
    # AND three micro-steps of 32 samples on 8 replicas made one batch
    assert r.global_batch_size == 3 * 32 * 8


def test_steps_without_a_measured_wait_for_gradients_are_not_fitted(clock):
    r = made(clock)
    r.set_replicas(1, 4)
    step(r, clock, 16, 2.0)
    assert r.state.points()[0] == [] and not r.fit()
    # AND with steps that accumulate the compute time is theirs; on one replica there is nothing to wait for
    step(r, clock, 16, 1.0, accumulation=True)
    assert r.state.points() == ([1], [4], [16], [1.0], [2.0])
    r.set_replicas(1, 1)
    step(r, clock, 16, 2.0)
    assert r.state.profile[1, 1, 16].times() == (2.0, 2.0)
    # AND of steps of which some told theirs, these alone count; keys without an update are left out
    r.set_replicas(1, 2)
    step(r, clock, 8, 2.0, sync=0.5)
    step(r, clock, 8, 2.0)
    step(r, clock, 4, 2.0, accumulation=True)
    assert r.state.profile[1, 2, 8].times() == (1.5, 2.0) and r.state.profile[1, 2, 4].times() is None


def test_a_wait_that_a_device_reports_late_is_added_to_its_step(clock):
    r = made(clock)
    r.set_replicas(1, 2)
    step(r, clock, 8, 2.0)
    r.waited(Key(1, 2, 8), 0.5, r.took)
    r.waited(Key(1, 2, 8), 9.0, 2.0)  # there is no step left that it could be of
    r.waited(Key(9, 9, 9), 1.0, 2.0)
    assert r.state.profile == {Key(1, 2, 8): Counts(0.0, 0, 2.0, 0.5, 1, 1, 2.0)}


def test_waits_of_a_slow_start_stand_for_no_later_step(clock):
    # GIVEN ten steps of 1 s that waited for 0.9 s, then a hundred of 0.1 s whose waits nobody measured
    r = made(clock)
    r.set_replicas(1, 2)
    for _ in range(10):
        step(r, clock, 8, 1.0, sync=0.9)
    for _ in range(100):
        step(r, clock, 8, 0.1)
    # WHEN times are asked for THEN they are of the measured steps, computing 0.1 s, and the fit takes them
    assert r.state.profile[1, 2, 8].times() == pytest.approx((0.1, 1.0)) and r.fit()
    # AND the file has the measured steps and the others apart
    rows = r.record()["rows"]
    assert rows == [[1, 2, 8, 0, 0, 10, 10_000_000_000, 9_000_000_000], [1, 2, 8, 0, 0, 100, pytest.approx(10_000_000_000), None]]


def test_a_saved_state_without_times_of_measured_steps(clock):
    # GIVEN states that were saved before these were kept WHEN loaded THEN waits count where every step has one
    for measured, waited in ((2, 1.0), (1, 0.0)):
        text = json.dumps({
            "format": "tb-sol-metrics", "version": 1,
            "profile": [{"num_nodes": 1, "num_replicas": 2, "atomic_bsz": 8, "optim_step_time": 4.0, "optim_count": 2,
                         "optim_sync_time": 1.0, "sync_count": measured}],
        })  # fmt: skip
        state = MetricsState()
        state.load(io.StringIO(text))
        counts = state.profile[1, 2, 8]
        assert counts.optim_sync_time == waited and counts.sync_step_time == 4.0 * waited


def test_wrong_calls_warn_once_and_count_nothing(clock, caplog):
    r = made(clock)
    r.set_replicas(1, 1)
    with caplog.at_level(logging.WARNING):
        r.commit()
        r.commit()
        for size in (0, -3, None, "many", float("nan")):
            step(r, clock, size, 1.0)
        r.start(4)
        for wait in (-1, float("nan"), float("inf"), "long", None):
            r.sync(wait)
        clock.now += 1.0
        r.commit()
    assert r.state.profile == {Key(1, 1, 4): Counts(0.0, 0, 1.0, 0.0, 1, 1, 1.0)}
    assert [w.message for w in caplog.records if "without profile_step_start" in w.message] == [
        "goodput: profile_step_commit without profile_step_start: this step is not counted"
    ]
    assert len(caplog.records) == 3
    # a wait longer than its step is all of it, and that is said
    r.set_replicas(1, 2)
    step(r, clock, 4, 1.0, sync=3.0)
    assert r.state.profile[1, 2, 4].optim_sync_time == 1.0 and "a wait for gradients of 3 s in a step of 1 s" in caplog.text
    for nodes, replicas in ((0, 1), (3, 2)):
        with pytest.raises(ValueError, match="1 <= num_nodes <= num_replicas"):
            r.set_replicas(nodes, replicas)
    for sizes in ((0,), (8, 4), (8, 16, (9, 3)), (8, 16, (0, 3))):
        with pytest.raises(ValueError):
            r.set_batch_sizes(*sizes)


def test_nodes_and_replicas_of_the_environment(monkeypatch):
    for name in ("ADAPTDL_NUM_NODES", "ADAPTDL_NUM_REPLICAS", "GROUP_WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "WORLD_SIZE", "SLURM_NNODES"):
        monkeypatch.delenv(name, raising=False)
    assert G.replicas_found() == (1, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert G.replicas_found() == (2, 16)
    monkeypatch.setenv("GROUP_WORLD_SIZE", "4")
    assert G.replicas_found() == (4, 16)
    monkeypatch.setenv("ADAPTDL_NUM_NODES", "3")
    monkeypatch.setenv("ADAPTDL_NUM_REPLICAS", "6")
    assert G.replicas_found() == (3, 6)


def optim(n, r, b):
    accum = P1[0] + P1[1] * b
    net = (P1[2] + P1[3] * max(r - 2, 0)) if n > 1 else (P1[4] + P1[5] * max(r - 2, 0)) if r > 1 else 1e-8
    return accum, (accum**1.8 + net**1.8) ** (1 / 1.8)


def test_counted_steps_give_the_parameters_they_were_made_of(clock):
    r = made(clock)
    assert r.goodput_fn() is None
    # GIVEN steps of 12 configurations on the model's own times WHEN fitted THEN its parameters come back, and the goodput of them
    for n, replicas in ((1, 1), (1, 2), (1, 4), (2, 8), (2, 4), (4, 16)):
        for b in (16, 64):
            r.set_replicas(n, replicas)
            compute, whole = optim(n, replicas, b)
            for _ in range(3):
                step(r, clock, b, compute, accumulation=True)
                step(r, clock, b, whole, sync=whole - compute)
    assert r.fit() and r.state.perf_params == pytest.approx(P1, rel=1e-3)
    assert r.goodput_fn() is None  # no statistics of gradients yet
    r.set_batch_sizes(128, 8192, (16, 256), True)
    r.set_grad_params(1.0, 2000.0)
    fn = r.goodput_fn()
    assert fn(4, 32, 64, 0) == pytest.approx(1592.752, rel=1e-3)
    hints = r.hints()
    assert (
        hints["maxProfiledReplicas"] == 16
        and hints["gradParams"] == {"norm": 1.0, "var": 2000.0}
        and hints["globalBatchSize"] == 16 * 64 * 2
    )
    assert list(hints["perfParams"].values()) == list(r.state.perf_params)


def test_a_fit_runs_on_a_thread_every_30_seconds_of_rank_0(clock, monkeypatch):
    r = made(clock)
    r.set_replicas(1, 1)
    asked = []
    monkeypatch.setattr(r, "report", lambda: asked.append(clock.now))
    for _ in range(20):
        step(r, clock, 16, 2.0, accumulation=True)
        step(r, clock, 16, 2.0)
    assert asked == [32.0, 64.0]  # after more than 30 s, at the end of an update
    monkeypatch.setattr(G, "rank_of", lambda: (1, 2))
    for _ in range(20):
        step(r, clock, 16, 4.0)
    assert len(asked) == 2


def test_the_report_fits_posts_and_never_raises(clock, caplog):
    class Broken:
        def post(self, hints, *, wait):
            self.hints = hints
            raise OSError("no network")

    r = made(clock)
    r.set_replicas(1, 1)
    r.supervisor = Broken()
    step(r, clock, 16, 1.0)
    step(r, clock, 32, 2.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            thread = r.report()
            thread.join(30)
    assert r.state.perf_params[1] == pytest.approx(1 / 16, rel=1e-3) and r.supervisor.hints["perfParams"]["gamma"] >= 1
    assert len([w for w in caplog.records if "no network" in w.message]) == 1


def test_a_state_goes_through_its_file_and_counters_go_on_with_other_replicas(tmp_path, clock):
    r = made(clock)
    r.set_replicas(1, 2)
    r.set_batch_sizes(64, 512, (8, 64), True)
    r.set_grad_params(-0.25, 3.5, biased=True)
    r.state.noise = {"sqr": [1.0], "var": [2.0], "weight": 0.5}
    step(r, clock, 8, 2.0, sync=0.5)
    r.fit()
    path = tmp_path / "metrics.json"
    r.state.save_file(path)
    # WHEN another process, with other replicas, takes it up THEN all is there, and new steps add to it
    again = made(clock)
    assert again.state.load_file(path) and not MetricsState().load_file(tmp_path / "none")
    again.loaded()
    assert vars(again.state) == vars(r.state) and again.state.perf_params == r.state.perf_params
    again.set_replicas(1, 4)
    step(again, clock, 8, 3.0, sync=0.25)
    again.set_replicas(1, 2)
    step(again, clock, 8, 2.0, sync=0.5)
    assert again.state.profile == {
        Key(1, 2, 8): Counts(0.0, 0, 4.0, 1.0, 2, 2, 4.0),
        Key(1, 4, 8): Counts(0.0, 0, 3.0, 0.25, 1, 1, 3.0),
    }
    # AND a capture file has only what this process counted
    assert again.record()["rows"] == [[1, 2, 8, 0, 0, 1, 2_000_000_000, 500_000_000], [1, 4, 8, 0, 0, 1, 3_000_000_000, 250_000_000]]
    assert r.record()["rows"] == [[1, 2, 8, 0, 0, 1, 2_000_000_000, 500_000_000]] and len(PROFILE_ROW) == 8
    # AND once a file is closed, the next one begins anew
    assert again.record(last=True) is not None and again.record() is None
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


def test_a_state_goes_through_files_of_text_and_of_bytes(clock):
    r = made(clock)
    r.set_replicas(1, 1)
    step(r, clock, 8, 2.0)
    for file in (io.StringIO(), io.BytesIO()):
        r.state.save(file)
        file.seek(0)
        new = MetricsState()
        new.load(file)
        assert new == r.state


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "[" * 100_000, '{"format": "tb-sol-metrics", "version": 99}', '{"format": "tb-sol-metrics", "version": 1, "profile": 3}',
        '{"format": "tb-sol-metrics", "version": 1, "profile": [{"num_nodes": 2, "num_replicas": 1, "atomic_bsz": 1}]}',
        '{"format": "tb-sol-metrics", "version": 1, "profile": [{"num_nodes": 1, "num_replicas": 1, "atomic_bsz": 1, "optim_count": -1}]}',
        '{"format": "tb-sol-metrics", "version": 1, "profile": [{"num_nodes": 1, "num_replicas": 1, "atomic_bsz": 1, "optim_step_time": NaN}]}',
        '{"format": "tb-sol-metrics", "version": 1, "perf_params": {"alpha_c": 1}}', '{"format": "tb-sol-metrics", "version": 1, "init_batch_size": "8"}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_saved_state_is_refused_and_changes_nothing(text):
    state = MetricsState({Key(1, 1, 8): Counts(optim_count=1)}, init_batch_size=4)
    with pytest.raises(ValueError, match="saved state"):
        state.load(io.StringIO(text))
    assert state == MetricsState({Key(1, 1, 8): Counts(optim_count=1)}, init_batch_size=4)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, clock):
    path = tmp_path / "metrics.json"
    MetricsState(init_batch_size=7).save_file(path)
    bad = MetricsState(init_batch_size=8, grad_sqr=float("nan"), grad_var=1.0)
    with pytest.raises(ValueError):
        bad.save_file(path)
    assert json.loads(path.read_text())["init_batch_size"] == 7 and [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


def test_the_functions_use_the_recorder_of_the_process(clock, tmp_path):
    old = G.use_recorder(made(clock))
    try:
        G.set_replicas(1, 1)
        G.set_batch_sizes(8)
        G.set_grad_params(1.0, 2.0)
        for size, seconds in ((8, 1.0), (16, 1.5)):
            G.profile_step_start(size)
            G.profile_sync_time(0.0)
            clock.now += seconds
            G.profile_step_commit()
        assert G.get_goodput_fn() is None and G.profile_record()["rows"][0][2] == 8
        G.recorder().fit()
        assert G.get_goodput_fn()(1, 1, 16) == pytest.approx(16 / 1.5 * 3 / (2 + 2), rel=1e-3)
        G.save_metrics(tmp_path / "m")
        G.use_recorder(made(clock))
        assert G.load_metrics(tmp_path / "m") and G.get_goodput_fn() is not None and G.profile_record() is None
    finally:
        G.use_recorder(old)


@pytest.mark.parametrize("content", ["", '{"format": "tb-sol-', "[]", '{"format": "another", "version": 1}'])
def test_a_cut_file_of_counters_is_none_and_a_warning(tmp_path, content):
    # GIVEN a file that ends early, or is another WHEN it is to be taken up THEN training goes on without it, and is told
    (tmp_path / "m").write_text(content)
    old = G.recorder()
    try:
        G.use_recorder(made(Clock()))
        with pytest.warns(UserWarning, match="no counters of an earlier start"):
            assert G.load_metrics(tmp_path / "m") is None
        assert G.load_metrics(tmp_path / "absent") is False
    finally:
        G.use_recorder(old)


def test_every_public_name_is_in_the_library_and_on_its_page():

    from tb_sol_plugin import capture
    from tb_sol_plugin.capture.goodput.hints import JOB, TOKEN, URL

    names = {
        "Accumulator", "AdaptiveBatchSize", "ElasticSampler", "get_goodput_fn", "load_metrics", "post_sched_hints", "profile_step_commit", "profile_step_start", "profile_sync_time",
        "save_metrics", "set_batch_sizes", "set_grad_params", "set_replicas", "set_supervisor", "watch_gradients",
    }  # fmt: skip
    text = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    assert names <= set(capture.__all__) and all(name in text for name in (*names, JOB, TOKEN, URL))
    assert capture.profile_step_start is G.profile_step_start
