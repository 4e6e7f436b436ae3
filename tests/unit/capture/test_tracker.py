"""The tracker: which iterations are sampled, what is on the model meanwhile, what is kept, written and reported."""

from __future__ import annotations

import io
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.capture.loop.schedule import InputSignatures, Schedule
from tests.support.sol_reading import only
from tests.support.toy import FORWARD, fused_qkv, some_tokens

torch = pytest.importorskip("torch", reason="tracks training loops")
from tb_sol_plugin.capture.hooks.inputs import InputWatch  # noqa: E402  (needs torch)
from tb_sol_plugin.capture.loop import header  # noqa: E402  (needs torch)
from tb_sol_plugin.capture.loop.timing import EventPool  # noqa: E402
from tb_sol_plugin.capture.report import output  # noqa: E402
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402
from tests.support.stopped_clock import stop_clock  # noqa: E402
from tests.unit.capture.loop.test_timing import Device  # noqa: E402

QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}


def layer() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(16, 16)


X = torch.linspace(-1, 1, 8 * 16).view(8, 16)
LINEAR = 2 * 8 * 16 * 16
"""Matrix FLOP of a forward pass of `layer` on X; its backward pass has one product of that size, for X needs no gradient."""


def put_on(model: Any) -> tuple[bool, bool, bool]:
    """Whether there is anything of ours on the model but the one hook that looks at its inputs, on torch's functions, and on the modes."""
    hooks = [hook for m in model.modules() for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]
    assert sum(isinstance(hook, InputWatch) for hook in hooks) <= 1
    hooks = any(not isinstance(hook, InputWatch) for hook in hooks)
    return hooks, hasattr(torch.nn.functional.linear, "_sol_patch"), torch._C._len_torch_dispatch_stack() > 0


ALL, NOTHING = (True, True, True), (False, False, False)


# --- The schedule ---


def test_the_first_two_iterations_and_every_nth_are_sampled() -> None:
    schedule, sampled, traced = Schedule(4, report=100, traces=2), [], []
    for index in range(14):
        due = schedule.samples()
        sampled += [index] * due
        if not due and schedule.traced():
            traced.append(index)
            schedule.traces -= 1
        schedule.ended(sampled=due)
    assert sampled == [0, 1, 4, 8, 12] and traced == [2, 5]


def test_a_sample_that_could_not_be_had_is_made_up_for() -> None:
    schedule = Schedule(5, report=5)
    due = []
    for index in range(12):
        due.append(schedule.samples())
        schedule.owed = due[-1] and index in (5, 6)  # could not be had in 5 and 6
        schedule.ended(sampled=due[-1] and not schedule.owed)
    assert [k for k, d in enumerate(due) if d] == [0, 1, 5, 6, 7, 10]


def test_after_an_evaluation_samples_lie_elsewhere_on_all_ranks_alike() -> None:
    # GIVEN two ranks that evaluate each tenth iteration, which is also each tenth that is sampled
    ranks = []
    for _ in range(2):
        schedule, due = Schedule(10, report=100), []
        for index in range(61):
            due += [index] * (sampled := schedule.samples())
            schedule.owed = False
            if sampled:
                schedule.evaluated(index % 10 == 0)
            schedule.ended(sampled=sampled)
        ranks.append(due)
    # THEN the one after an evaluation is sampled, and none that evaluates any more, the same ones on both ranks
    assert ranks[0] == ranks[1] and ranks[0][:4] == [0, 1, 10, 11]
    later = ranks[0][4:]
    assert len(later) == 5 and {at % 10 for at in later} == {later[0] % 10} and later[0] % 10 != 0


def test_an_interval_of_0_samples_nothing() -> None:
    schedule = Schedule(0, report=1)
    assert not schedule.samples() and not schedule.traced()


def test_the_iteration_that_compiles_is_not_traced() -> None:
    # GIVEN a compiled model, whose iterations 0 and 1 are sampled, and run eagerly WHEN traces are due THEN iteration 3 is the first
    schedule = Schedule(4, report=1, traces=3)
    found = []
    for index in range(14):
        sampled = schedule.samples()
        found += [index] if not sampled and schedule.traced(compiled=True) else []
        schedule.ended(sampled=sampled)
    assert found == [3, 5, 9, 13]


def test_reports_come_by_index_or_by_number() -> None:
    schedule = Schedule(10, report=10)
    assert schedule.reported(5000, sampled=True)  # index 0
    schedule.index = 3
    assert not schedule.reported(5003, sampled=True) and schedule.reported(5010, sampled=True)
    assert not schedule.reported(5010, sampled=False)
    schedule.index = 20
    assert schedule.reported(77, sampled=False)


def test_iterations_are_alike_by_what_the_script_says() -> None:
    alike = InputSignatures()
    alike.add("long", given=(8, 512), sizes=(8, 512))
    alike.add("short", given=(8, 256), sizes=(8, 256))
    assert alike.guess((8, 512)) == ("long", 8, 512) and alike.guess((8, 256)) == ("short", 8, 256)
    assert alike.guess((8, 128)) == ("", 8, 128)
    # AND numbers that stood for two signatures say nothing any more
    alike.add("other", given=(8, 512), sizes=(8, 512))
    alike.add("other", given=(8, 512), sizes=(8, 512))
    assert alike.guess((8, 512)) == ("", 8, 512)


def test_iterations_are_alike_if_the_last_two_samples_were() -> None:
    alike = InputSignatures()
    alike.add("a", given=(None, None), sizes=(2, 128))
    assert alike.guess((None, None)) == ("", None, None)
    alike.add("a", given=(None, None), sizes=(2, 128))
    assert alike.guess((None, None)) == ("a", 2, 128)
    alike.add("b", given=(None, None), sizes=(2, 64))
    assert alike.guess((None, None)) == ("", None, None)


# --- On and off ---


def test_there_is_nothing_of_ours_outside_of_sampled_iterations() -> None:
    # GIVEN a model, and every third iteration sampled WHEN six iterations run
    model, before = layer(), torch.nn.functional.linear
    tracker = SOLTracker(every_n_steps=3, **QUIET)
    seen = []
    tracker.initialize(model)
    for _ in range(6):
        seen.append(put_on(model))
        model(X).sum().backward()
        tracker.step()
    tracker.close()
    # THEN hooks, functions and mode are there in iterations 0, 1 and 3, and in no other
    assert seen == [ALL, ALL, NOTHING, ALL, NOTHING, NOTHING]
    assert put_on(model) == NOTHING and torch.nn.functional.linear is before and not model._forward_pre_hooks


def test_a_second_initialize_adds_nothing() -> None:
    # GIVEN a model in a list, tracked WHEN it is tracked again THEN it has the same hooks, and the same counts
    model = layer()
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize([model])
        hooks = len(model._forward_pre_hooks), len(model._forward_hooks)
        model(X)
        tracker.initialize([model])
        tracker.initialize(model)
        assert (len(model._forward_pre_hooks), len(model._forward_hooks)) == hooks
        model(X)
        assert sum(r.flops for r in tracker.records) == 2 * LINEAR


def test_another_model_takes_the_place_of_the_first(tmp_path: Path) -> None:
    first, second = layer(), layer()
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(first)
        first(X)
        tracker.initialize(second)
        assert not put_on(first)[0] and put_on(second) == ALL
        second(X)
        tracker.step()
    recorded = only(tmp_path)
    assert recorded.flop(0) == LINEAR and recorded.notes["model"] == 1


def test_several_models_or_none_can_be_tracked(tmp_path: Path) -> None:
    # GIVEN an actor and a critic WHEN both are tracked THEN the work of both has their names
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize({"actor": layer(), "critic": layer()})
        for model in tracker.models:
            model(X)
        assert {r.module_context for r in tracker.records if r.flops} == {"actor", "critic"}
        assert sum(r.flops for r in tracker.records if r.flops) == 2 * LINEAR
    # AND without a model the work is counted too
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(None)
        for _ in range(3):
            X @ X.t()
            tracker.step()
    recorded = only(tmp_path)
    assert recorded.flop(1) == 2 * 8 * 8 * 16
    assert recorded.steps[0]["signature"] == recorded.steps[2]["signature"] != ""


def test_clear_begins_the_iteration_anew(tmp_path: Path) -> None:
    # GIVEN work before `clear` WHEN the iteration ends THEN only work after it counts, in ledger and time
    model = layer()
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(model)
        with tracker.phase("before"):
            for _ in range(50):
                model(X)
        tracker.clear()
        assert tracker.records == [] and put_on(model) == ALL
        with tracker.phase("after"):
            model(X)
        tracker.log_analysis(41)
    recorded = only(tmp_path)
    (step,) = recorded.steps
    assert recorded.flop(41) == LINEAR and [name for name, *_ in recorded.phase_times[41]] == ["after"]
    (_, start, duration) = recorded.phase_times[41][0]
    assert step["start_ns"] <= start and start + duration <= step["start_ns"] + step["duration_ns"]


def test_detach_takes_all_off_and_initialize_starts_again() -> None:
    model = layer()
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize(model)
        tracker.detach()
        assert put_on(model) == NOTHING
        tracker.step()
        tracker.initialize(model)
        assert put_on(model) == ALL
    assert put_on(model) == NOTHING


def test_a_closed_tracker_ignores_all_calls(tmp_path: Path) -> None:
    model = layer()
    tracker = SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET)
    tracker.initialize(model)
    tracker.step()
    tracker.close()
    tracker.close()
    tracker.initialize(model)
    with tracker.phase("late"):
        tracker.step()
    tracker.clear()
    tracker.push_phase("x")
    tracker.pop_phase()
    assert put_on(model) == NOTHING and tracker.records == []
    assert len(only(tmp_path).steps) == 1


# --- Records ---


def test_records_of_the_running_iteration_and_what_clear_keeps() -> None:
    model = layer()
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize(model)
        model(X).sum().backward()
        (ops,) = [[op for op in tracker.captured_ops if op.direction == "fwd"]]
        assert [(op.layer_type, op.flops) for op in ops] == [("Linear", LINEAR)]
        assert [op.flops for op in tracker.captured_functional_ops if op.direction == "fwd" and op.func_name == "F.linear"] == [LINEAR]
        tracker.log_analysis(0, False)
        assert sum(r.flops or 0 for r in tracker.records) == 2 * LINEAR
        tracker.clear()
        assert tracker.records == []
        model(X)
        tracker.log_analysis(1, True)
        assert tracker.records == []
        assert tracker.analysis is not None and tracker.analysis.iteration == 1 and tracker.analysis.total.flops == LINEAR


# --- From the loop to the file ---


def test_a_whole_loop_of_the_toy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN the toy transformer WHEN it trains 7 iterations with every second one sampled
    model, tokens = fused_qkv(), some_tokens()
    optimizer = torch.optim.AdamW(model.parameters())
    import tb_sol_plugin as sol

    with sol.capture(str(tmp_path), model=model, every_n_steps=2, tensorboard=False, wandb=False) as tracker:
        for _ in range(7):
            with tracker.phase("train"):
                with tracker.phase("train/forward"):
                    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
                with tracker.phase("train/backward"):
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tracker.step(loss)
    # THEN iterations 0, 1, 2, 4, 6 have the closed form's FLOP, forward and three times that with backward
    recorded = only(tmp_path)
    assert recorded.closed and recorded.sampled == [0, 1, 2, 4, 6] and [s["iteration"] for s in recorded.steps] == list(range(7))
    for n in recorded.sampled:
        assert recorded.flop(n, backward=False) == FORWARD and recorded.flop(n) == 3 * FORWARD
        assert recorded.steps[n]["totals"]["flop"] == 3 * FORWARD
    # AND phases of all iterations lie in each other and in their iteration
    for step in recorded.steps:
        times = {name: (start, start + duration) for name, start, duration in recorded.phase_times[step["iteration"]]}
        assert set(times) == {"train", "train/forward", "train/backward"}
        (start, end), whole = times["train"], (step["start_ns"], step["start_ns"] + step["duration_ns"])
        assert whole[0] <= start and end <= whole[1]
        assert all(start <= times[f"train/{part}"][0] <= times[f"train/{part}"][1] <= end for part in ("forward", "backward"))
    # AND one iteration follows the other
    for one, two in zip(recorded.steps, recorded.steps[1:], strict=False):
        assert two["start_ns"] >= one["start_ns"] + one["duration_ns"]
    # AND all are of one signature, with 2 samples of 64 tokens
    assert len({s["signature"] for s in recorded.steps}) == 1
    assert {(s["batch"], s["tokens"]) for s in recorded.steps} == {(2, 128)}
    # AND the console has reports of iterations 0 and, at the end, 6
    text = capsys.readouterr().out
    assert text.count("SOL (Speed of Light) Analysis") == 2 and "By Phase:" in text and "train/forward" in text
    # AND the product reads it
    (capture,) = sol.open(str(tmp_path)).captures
    assert len(capture.tables["iterations"]) == 7


def test_metrics_are_carried_over_unsampled_iterations() -> None:
    # GIVEN iterations 0, 1 and 5 sampled WHEN all have inputs of one size THEN those between have the work of the last sample, with its age
    model = layer()
    ages = []
    with SOLTracker(every_n_steps=5, **QUIET) as tracker:
        tracker.initialize(model)
        for _ in range(6):
            model(X)
            tracker.step()
            ages.append((tracker.analysis.iteration, tracker.analysis.age))
    assert ages == [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (5, 0)]


@pytest.mark.parametrize(
    ("ending", "reports"), [("close", 2), ("exception", 1), ("only the first", 1), ("another rank", 0), ("without", 0)]
)
def test_the_last_sampled_iteration_is_reported_at_the_end(ending: str, reports: int, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a short run, iterations 0 and 1 sampled, a report due in 0 WHEN it ends THEN 1 is reported too, unless it ends in an error
    options: dict[str, Any] = {**QUIET, "console": ending != "without", "rank": 1 if ending == "another rank" else 0}
    try:
        with SOLTracker(**options) as tracker:
            tracker.initialize(layer())
            for _ in range(1 if ending == "only the first" else 4):
                tracker.step()
            if ending == "exception":
                raise KeyError
    except KeyError:
        pass
    assert capsys.readouterr().out.count("SOL (Speed of Light) Analysis") == reports


def test_metrics_are_not_carried_to_another_model() -> None:
    # GIVEN a model whose iterations were sampled WHEN another one is tracked that no iteration was sampled of THEN nothing is known of it
    with SOLTracker(every_n_steps=100, **QUIET) as tracker:
        first, second = layer(), layer()
        tracker.initialize(first)
        for _ in range(2):
            first(X)
            tracker.step()
        assert tracker.analysis is not None
        tracker.initialize(second)
        second(X)
        tracker.step()
        assert tracker.analysis is None


def test_metrics_are_not_carried_to_other_sizes() -> None:
    # GIVEN iterations of 8 and 4 samples, as the script says WHEN only those of 8 were sampled THEN those of 4 have no analysis
    model = layer()
    found = []
    with SOLTracker(every_n_steps=10, **QUIET) as tracker:
        tracker.initialize(model)
        for size in (8, 8, 4, 8):
            model(X[:size])
            tracker.step(batch=size)
            found.append(tracker.analysis.iteration)
    assert found == [0, 1, 1, 3]


def test_sizes_by_functions_and_numbers(tmp_path: Path) -> None:
    sizes = iter([10, 20, 30])
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), batch=lambda: next(sizes), tokens=7, **QUIET) as tracker:
        tracker.initialize(layer())
        for _ in range(4):  # the function fails in the last one
            tracker.step()
    assert [(s.get("batch"), s["tokens"]) for s in only(tmp_path).steps] == [(10, 7), (20, 7), (30, 7), (None, 7)]


def test_numbers_of_iterations_are_those_of_the_script(tmp_path: Path) -> None:
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), first_iteration=100, **QUIET) as tracker:
        tracker.initialize(layer())
        tracker.step()
        tracker.log_analysis(110)
        tracker.log_analysis(120)
        tracker.step()
        tracker.start_step(7)
        tracker.step()
    assert [s["iteration"] for s in only(tmp_path).steps] == [100, 110, 120, 130, 7]


def test_own_work_is_in_the_time_of_no_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN iterations of 10 ms, whose scalars take 50 ms to log, and a terminal that takes 30 ms for each report
    clock = stop_clock(monkeypatch)

    class Board:
        logged: set[int | None] = set()

        def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
            clock.pass_(0 if global_step in self.logged else 50_000_000)
            self.logged.add(global_step)

    class Terminal(io.StringIO):
        def write(self, text: str) -> int:
            clock.pass_(30_000_000 * text.count("SOL (Speed of Light) Analysis"))
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", Terminal())
    model = layer()
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), tensorboard=Board(), wandb=False) as tracker:
        tracker.initialize(model)
        for _ in range(4):
            model(X)
            clock.pass_(10_000_000)
            tracker.step()
    # THEN each lasts its 10 ms and begins where the one before ended, and the work after one, a report too, stands before the next
    steps = only(tmp_path).steps
    assert [(s["start_ns"], s["duration_ns"], s["before_ns"]) for s in steps] == [
        (0, 10_000_000, 0), (10_000_000, 10_000_000, 80_000_000), (20_000_000, 10_000_000, 50_000_000), (30_000_000, 10_000_000, 50_000_000),
    ]  # fmt: skip
    # AND the end of the file has the work after the last one, with the report at the end
    last = json.loads(next(tmp_path.glob("*.sol.jsonl")).read_text().splitlines()[-1])
    assert last["kind"] == "close" and last["before_ns"] == 80_000_000


def test_the_end_of_an_unsampled_iteration_does_little() -> None:
    # GIVEN an unsampled iteration WHEN it ends THEN that is few calls of functions
    model = layer()
    calls: list[str] = []
    with SOLTracker(every_n_steps=1000, **QUIET) as tracker:
        tracker.initialize(model)
        for _ in range(50):
            model(X)
            calls.clear()
            sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
            tracker.step()
            sys.setprofile(None)
    assert 0 < len(calls) < 60, calls


def test_a_torch_without_the_private_names_falls_back_to_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a torch that does not tell which node of autograd is at work WHEN the mode is auto THEN hooks count, and the file says so
    from tb_sol_plugin.capture.hooks import instrument

    monkeypatch.setattr(instrument.attribution, "available", lambda: False)
    model = layer()
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(model)
        assert torch._C._len_torch_dispatch_stack() == 0
        model(X).sum().backward()
        tracker.step()
    recorded = only(tmp_path)
    assert recorded.header["mode"] == "hooks" and recorded.notes["mode"] == 1
    assert recorded.flop(0, backward=False) == LINEAR


def test_timing_log_level_0_in_the_arguments_tracks_nothing() -> None:
    model = layer()
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize(model, {"timing_log_level": 0})
        assert put_on(model) == NOTHING
        tracker.step()
    assert tracker.analysis is None


def test_scalars_need_no_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), console=False) as tracker:
        tracker.initialize(layer())
        for _ in range(5):
            tracker.step()
    recorded = only(tmp_path)
    assert len(recorded.steps) == 5 and not recorded.notes
    (path,) = tmp_path.glob("events.out.tfevents.*")
    assert path.read_bytes().count(b"sol/step_time_ms") == 5


def test_scalars_of_every_iteration_and_groups_of_sampled_ones(tmp_path: Path) -> None:
    # GIVEN a summary writer of the script WHEN iterations 0, 1 and 4 of five are sampled
    class Board:
        def __init__(self) -> None:
            self.values: dict[int, dict[str, float]] = {}

        def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
            assert global_step is not None
            self.values.setdefault(global_step, {})[tag] = scalar_value

    board, model = Board(), layer()
    with SOLTracker(every_n_steps=4, report_interval=100, tensorboard=board, console=False, device="H100_SXM") as tracker:
        tracker.initialize(model)
        for _ in range(5):
            with tracker.phase("forward"):
                model(X)
            tracker.step()
    # THEN all have the totals, those of unsampled ones with their age, and the sampled ones have groups
    assert [values["sol/total_tflops"] for values in board.values.values()] == [LINEAR / 1e12] * 5
    assert [values["sol/capture_age_iters"] for values in board.values.values()] == [0, 0, 1, 2, 0]
    assert ["sol_phase/forward/count" in board.values[k] for k in range(5)] == [True, True, False, False, True]
    # AND a rank that is not the first logs nothing
    other = Board()
    with SOLTracker(every_n_steps=1, tensorboard=other, console=False, rank=1) as tracker:
        tracker.initialize(model)
        model(X)
        tracker.step()
    assert other.values == {}


def test_modes_and_profiles_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="mode is"):
        SOLTracker(mode="guess")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="profile is"):
        SOLTracker(profile="always")  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"every_n_steps": -5}, {"report_interval": -1}])
def test_a_number_of_iterations_below_0_is_noted(options: dict[str, int], tmp_path: Path) -> None:
    # GIVEN an interval below 0, from wherever it comes WHEN two iterations run THEN they are sampled as by default, and the file says why
    model = layer()
    with SOLTracker(logdir=str(tmp_path), **options, **QUIET) as tracker:
        tracker.initialize(model)
        for _ in range(3):
            model(X)
            tracker.step()
    recorded = only(tmp_path)
    assert recorded.sampled == [0, 1] and recorded.notes["interval"] >= 1
    assert f"{next(iter(options))} is {next(iter(options.values()))}" in recorded.note_texts[0]


# --- Device events, with a device of our own ---


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device of the tracked models with events of its own."""
    made = Device()
    monkeypatch.setattr(header, "event_pool", lambda kind, index=None: EventPool(made.event))
    return made


def test_iterations_wait_for_the_device_and_are_written_in_order(tmp_path: Path, device: Device) -> None:
    # GIVEN a device that is one iteration behind the host
    tracker = SOLTracker(every_n_steps=2, logdir=str(tmp_path), **QUIET)
    model = layer()
    tracker.initialize(model)
    written = []
    for _ in range(4):
        with tracker.phase("forward"):
            model(X)
            device.now_ms += 3
        device.now_ms += 1
        behind = list(device.made)
        tracker.step()
        written.append(tracker.output.iterations)
        for event in behind:
            event.passed = event.at is not None
    # THEN none is written before its events are passed, and at the end all are
    assert tracker.analysis is not None
    assert written == [0, 1, 2, 3] or written == [0, 0, 1, 2]
    device.catch_up()
    tracker.close()
    recorded = only(tmp_path)
    assert [s["iteration"] for s in recorded.steps] == [0, 1, 2, 3]
    # AND each has 4 ms on the device; the layer, which is on the host in truth, is not taken for work of the device
    assert [s["device_ns"] for s in recorded.steps] == [4_000_000] * 4
    assert recorded.sampled == [0, 1, 2] and all(recorded.steps[n]["lost"] for n in recorded.sampled)


@pytest.mark.parametrize(("own_ns", "noted"), [(1_000_000, True), (10_000, False)])
def test_the_report_says_when_the_device_waited_for_the_recorder(device: Device, own_ns: int, noted: bool) -> None:
    # GIVEN an iteration of 3 ms on the device, in which the recorder worked for 1 ms, or hardly WHEN it is analyzed
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize(layer())
        device.now_ms += 3
        tracker.clock.own_ns += own_ns
        tracker.step()
        device.catch_up()
        tracker.step()
        # THEN the report says so where that is much
        assert tracker.analysis is not None
        assert any("33 %" in text for text in tracker.analysis.notes) is noted


def test_a_traced_model_is_traced_without_warnings() -> None:
    import warnings

    with SOLTracker(every_n_steps=1, **QUIET) as tracker, warnings.catch_warnings():
        warnings.filterwarnings("error", category=torch.jit.TracerWarning)
        model = layer()
        tracker.initialize(model)
        assert torch.equal(torch.jit.trace(model, X)(X), model(X))


def test_a_device_that_never_answers_does_not_hold_up_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    # GIVEN a device that passes no event, and no patience WHEN six iterations run THEN all are written, their times unknown
    monkeypatch.setattr(output, "PATIENCE", 0.0)
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(layer())
        for _ in range(6):
            tracker.step()
    steps = only(tmp_path).steps
    assert len(steps) == 6 and all(s.get("device_ns") is None for s in steps)
    assert any("event not completed" in s.get("lost", {}) for s in steps)


def test_a_step_that_ends_on_another_thread(tmp_path: Path) -> None:
    # GIVEN a tracker that was started on the main thread WHEN a loop on another thread uses it
    model = layer()
    tracker = SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET)
    tracker.initialize(model)

    def loop() -> None:
        for _ in range(3):
            model(X)
            tracker.step()

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join(30)
    tracker.detach()
    # THEN the work of later iterations is counted there, this is noted, and nothing stays on either thread
    tracker.close()
    assert put_on(model) == NOTHING
    recorded = only(tmp_path)
    assert recorded.flop(1) == recorded.flop(2) == LINEAR and recorded.notes["threads"] >= 1


@pytest.mark.parametrize(("first", "said"), [(500, True), (20, False)])
def test_a_short_run_whose_start_up_dominates_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, first: int, said: bool
) -> None:
    import tb_sol_plugin as sol

    # GIVEN a run of eight iterations of 10 ms each, but for the first
    clock, model = stop_clock(monkeypatch), layer()
    with sol.capture(str(tmp_path), model=model, every_n_steps=4, report_interval=1000, **{**QUIET, "console": True}) as tracker:
        for i in range(8):
            model(X)
            clock.pass_((first if i == 0 else 10) * 1_000_000)
            tracker.step()
    # THEN the report at its end says what the first iterations took beyond usual ones
    out = " ".join(capsys.readouterr().out.split())
    assert ("tart-up dominates: its first iterations took 0.49 of the 0.57 s of this run" in out) is said
