"""Full disks, read-only folders, killed processes, forks, threads, two trackers: training goes on, and files can be read."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin as sol
from tests.support.forked import python
from tests.support.sol_reading import only, read_file
from tests.support.training_loops import phase, run, same

torch = pytest.importorskip("torch", reason="records training loops")
X = torch.linspace(-1, 1, 8 * 16).view(8, 16)
LINEAR = 2 * 8 * 16 * 16


def regress(model: Any, optimizer: Any, tracker: Any) -> Any:
    with phase(tracker, "forward"):
        loss = model(X).square().mean()
    with phase(tracker, "backward"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def layer() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(16, 16)


def test_training_goes_on_when_the_logdir_cannot_be_made(tmp_path: Path) -> None:
    # GIVEN a logdir below something that is a file WHEN tracked THEN training is what it is untracked, with a warning at most
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    untracked = run(layer(), regress)
    assert same(run(layer(), regress, logdir=blocked / "run"), untracked)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_training_goes_on_when_the_logdir_is_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o500)
    untracked = run(layer(), regress)
    assert same(run(layer(), regress, logdir=folder), untracked)
    assert not list(folder.iterdir())


FULL = """
import resource, signal, sys
import torch
import tb_sol_plugin as sol
from tests.support.training_loops import run, same
from tests.integration.capture.test_trouble import layer, regress
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))
torch.set_num_threads(1)
from pathlib import Path
untracked = run(layer(), regress, steps=90)
assert same(run(layer(), regress, steps=90, logdir=Path(sys.argv[1]), tensorboard=False), untracked)
print("equal")
"""


def test_training_goes_on_when_the_disk_is_full(tmp_path: Path) -> None:
    # GIVEN a process whose files may not grow beyond 40 000 bytes WHEN it trains 90 tracked steps
    process = python("-c", FULL, tmp_path)
    text, _ = process.communicate(timeout=300)
    # THEN the training is as it is untracked, and says once that writing has stopped
    assert process.returncode == 0 and "equal" in text, text
    assert text.lower().count("file too large") <= 1, text
    # AND what was written can be read up to the last whole record
    recorded = only(tmp_path)
    assert recorded.steps and not recorded.closed and len(recorded.steps) < 90
    assert len(sol.open(str(tmp_path)).captures) == 1


ENDLESS = """
import sys, torch
import tb_sol_plugin as sol
from tests.integration.capture.test_trouble import layer, regress
model = layer()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
with sol.capture(sys.argv[1], model=model, every_n_steps=2, tensorboard=False) as tracker:
    while True:
        regress(model, optimizer, tracker)
        tracker.step()
"""


def test_a_killed_process_leaves_whole_steps(tmp_path: Path) -> None:
    # GIVEN a loop that records without end WHEN it is killed once its file has 50 steps
    process = python("-c", ENDLESS, tmp_path)
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end and process.poll() is None:
            files = list(tmp_path.glob("*.sol.jsonl"))
            if files and files[0].read_bytes().count(b'"kind":"step"') >= 50:
                break
            time.sleep(0.05)
    finally:
        process.kill()
    text, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, text
    # THEN the file holds every step up to the last whole record, one after the other, and the product opens it
    recorded = only(tmp_path)
    assert not recorded.closed
    numbers = [s["iteration"] for s in recorded.steps]
    assert len(numbers) >= 50 and numbers == list(range(len(numbers)))
    (capture,) = sol.open(str(tmp_path)).captures
    assert len(capture.tables["iterations"]) == len(numbers)


def test_a_loader_that_forks_writes_no_file_of_its_own(tmp_path: Path) -> None:
    # GIVEN batches from two worker processes that are forked inside a sampled step WHEN tracked
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(X.repeat(4, 1)), batch_size=8, num_workers=2, multiprocessing_context="fork", timeout=120)
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with sol.capture(str(tmp_path), model=model, every_n_steps=1) as tracker:
        for (x,) in loader:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            tracker.step()
    # THEN there is one file, of this process, with the work of this process alone
    recorded = only(tmp_path)
    assert recorded.header["pid"] == os.getpid() and recorded.closed
    assert [recorded.flop(n) for n in recorded.sampled] == [2 * LINEAR] * 4


def test_work_of_a_second_thread_has_no_phase_of_the_loop(tmp_path: Path) -> None:
    # GIVEN a second thread with phases of its own that multiplies while the first one trains
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    stop, errors = threading.Event(), []

    def beside(tracker: Any) -> None:
        try:
            while not stop.is_set():
                with tracker.phase("beside"):
                    X @ X.t()
        except BaseException as error:
            errors.append(error)
            raise

    # WHEN five steps run, all sampled
    with sol.capture(str(tmp_path), model=model, every_n_steps=1) as tracker:
        thread = threading.Thread(target=beside, args=(tracker,))
        thread.start()
        for _ in range(5):
            regress(model, optimizer, tracker)
            tracker.step()
        stop.set()
        thread.join(30)
    # THEN neither fails, and no work of the loop carries the other thread's phase
    assert not errors and not thread.is_alive()
    recorded = only(tmp_path)
    for n in recorded.sampled:
        rows = [row for row in recorded.ledgers[n] if row.module]
        assert {row.phase for row in rows} <= {"forward", "backward"}
        assert sum(row.flop or 0 for row in rows) == 2 * LINEAR


def test_a_sampled_iteration_that_another_thread_began_leaves_nothing_behind(tmp_path: Path) -> None:
    # GIVEN a loop whose iterations are ended, and so begun, by another thread, which is gone when the tracker is closed
    engine, model = torch.autograd._engine_run_backward, layer()
    with sol.capture(str(tmp_path), model=model, every_n_steps=1) as tracker:
        for end in (tracker.step, lambda: (tracker.clear(), tracker.step())):
            thread = threading.Thread(target=end)
            thread.start()
            thread.join(30)
            model(X).sum().backward()
        assert torch.autograd._engine_run_backward is not engine
    # THEN torch's function that starts backward passes is its own again, and so is all else
    assert torch.autograd._engine_run_backward is engine
    assert torch._C._len_torch_dispatch_stack() == 0 and not model._forward_hooks and not model._forward_pre_hooks


def test_a_hook_that_another_thread_takes_off_while_it_is_called_raises_nothing() -> None:
    # GIVEN the hooks of a sampled iteration on a model, and the one of others WHEN torch calls them as hooks that want no keyword arguments
    model = layer()
    with sol.capture(None, model=model, every_n_steps=3, console=False) as tracker:
        for count in (1, 3):
            while len(model._forward_pre_hooks) < count and tracker._schedule.index < 5:
                model(X)
                tracker.step()
            hooks = [(hook, (model, (X,))) for hook in model._forward_pre_hooks.values()]
            hooks += [(hook, (model, (X,), X)) for hook in model._forward_hooks.values()]
            assert hooks
            # THEN none of them raises, or changes what the model is given and returns
            assert [hook(*given) for hook, given in hooks] == [None] * len(hooks)


def test_two_trackers_at_once_count_no_work_twice(tmp_path: Path) -> None:
    # GIVEN two trackers around one loop WHEN it runs
    untracked = run(layer(), regress)
    torch.manual_seed(3)
    model = layer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    before = torch.nn.functional.linear
    with (
        sol.capture(str(tmp_path / "a"), model=model, every_n_steps=1) as one,
        sol.capture(str(tmp_path / "b"), model=model, every_n_steps=1) as two,
    ):
        for _ in range(3):
            losses.append(regress(model, optimizer, one).detach().clone())
            one.step()
            two.step()
    # THEN the numbers are the untracked ones
    assert same((losses, [t.detach().clone() for t in model.state_dict().values()]), untracked)
    # AND the second one counted nothing twice: its file has the same work, or a note that another tracker is at work
    a, b = read_file(next((tmp_path / "a").glob("*.sol.jsonl"))), read_file(next((tmp_path / "b").glob("*.sol.jsonl")))
    assert a.flop(1) == 2 * LINEAR
    assert b.notes or b.flop(1) == 2 * LINEAR
    # AND everything is put away
    assert torch.nn.functional.linear is before and not model._forward_hooks and not model._forward_pre_hooks
    assert torch._C._len_torch_dispatch_stack() == 0
