"""Ranks read elsewhere: on a cluster whose workers have their own disks, and on a real Dask cluster whose workers are killed."""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tb_sol_plugin.cli import main
from tb_sol_plugin.errors import BadInput, BadQuery
from tb_sol_plugin.model.answer import reducer_of
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.store import cluster as clusters
from tb_sol_plugin.store import reductions
from tb_sol_plugin.store.cluster import ClusterExecutor, cluster
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tests.support.rank_factory import Job, simulate

SMALL = Job(tp=2, dp=2, layers=1, steps=1)


class Elsewhere(ThreadPoolExecutor):
    """Another machine: it has a cache of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(1)
        self.folder, self.count, self.done = folder, 2, 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.done += 1
        wanted, options = args
        return super().submit(fn, wanted, replace(options, cache_dir=str(self.folder)), **kwargs)


def read(store: Store, wait: float = 60.0) -> list[Any]:
    """Every rank of the run, read."""
    found = store.rank_reductions(store.recording("job"), reducer_of("ranks", {}), get("ranks").reduction.decode, wait=wait)
    return [one.reduced for one in found if one.state == "read"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    simulate(SMALL).write(folder / "job")
    return folder


def parts(cache: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (cache / "parts").rglob("*.part")}


def test_what_another_machine_read_is_kept_here(logs: Path, tmp_path: Path) -> None:
    # GIVEN an executor that keeps its results on its own disk WHEN a server asks THEN it has them in its cache, and asks no more
    away = Elsewhere(tmp_path / "away")
    options = StoreOptions(cache_dir=str(tmp_path / "here"))
    store = Store(single(str(logs)), options, ranks_executor=away)
    first = read(store)
    store.close()
    assert len(first) == 4 and away.done == 4 and parts(tmp_path / "here") == parts(tmp_path / "away")
    with ThreadPoolExecutor(1) as none:
        none.shutdown()
        again = Store(single(str(logs)), options, executor=none)
        assert read(again, 5.0) == first
        again.close()


def test_the_index_is_read_from_the_command_line(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a run of four ranks and a broken file THEN the broken one is named and the others are read; without it nothing is read again
    (logs / "job" / "rank4.1.pt.trace.json").write_text("{")
    command = ["index", str(logs), "--cache-dir", str(tmp_path / "here"), "--workers", "1"]
    try:
        assert main(command) == 0
    finally:
        (logs / "job" / "rank4.1.pt.trace.json").unlink()
    made = parts(tmp_path / "here")
    assert main(command) == 0 and parts(tmp_path / "here") == made
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("job: 4 of 5 ranks in") and lines[1].startswith("  rank4: ") and len(parts(tmp_path / "here")) == 4
    # AND the pages over ranks are made, of each time: a server that makes nothing has them on disk
    assert re.fullmatch(r"job: (\d) of \1 pages in .*", lines[2]) and len(list((tmp_path / "here" / "answers").rglob("*.part"))) == 2 * int(lines[2][5])
    with pytest.raises(SystemExit):
        main(["index"])
    assert main(["index", str(logs / "nothing")]) != 0 and main(["index", str(tmp_path)]) != 0 and main([*command, "--run", "x"]) != 0


def test_a_cluster_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "SECONDS", 0.2)
    with pytest.raises(BadQuery, match="no executor 'ray://a:1'"):
        cluster("ray://a:1")
    with pytest.raises(BadInput, match=r"no Dask scheduler answers|needs the package"):
        cluster("dask://127.0.0.1:1")


def test_who_waits_for_a_task_is_told_outside_of_the_thread_of_the_client() -> None:
    # GIVEN tasks that a client ends in a thread of its own THEN their callbacks run in another one, where the client may be asked
    ended: list[Future[Any]] = []

    class Client:
        def get_executor(self, **kwargs: Any) -> Any:
            return self

        def submit(self, fn: Any) -> Future[Any]:
            ended.append(Future())
            return ended[-1]

        def shutdown(self, wait: bool) -> None:
            assert wait

        def close(self) -> None:
            pass

    executor = ClusterExecutor(Client())
    told: queue.Queue[bool] = queue.Queue()
    futures = [executor.submit(int) for _ in range(4)]
    for future in futures:
        future.add_done_callback(lambda one: told.put(threading.current_thread() is not threading.main_thread()))
    ended[0].set_result(7)
    ended[1].set_exception(OSError("gone"))
    assert futures[0].result(30) == 7 and isinstance(futures[1].exception(30), OSError)
    # AND what is canceled here is canceled there, and there here; what ends after the executor was closed is told to nobody
    assert futures[2].cancel() and ended[2].cancelled()
    ended[3].cancel()
    assert isinstance(futures[3].exception(30), CancelledError)
    assert sorted(told.get(timeout=30) for _ in range(4)) == [False, True, True, True]
    late = executor.submit(int)
    executor.shutdown()
    ended[4].set_result(1)
    assert not late.done()


def test_a_scheduler_that_dies_fails_what_was_not_read_and_no_more(logs: Path, tmp_path: Path) -> None:
    # GIVEN a cluster that reads two ranks, whose scheduler then ends: its client raises whatever it is asked
    class Client:
        status, done = "running", 0

        def get_executor(self, **kwargs: Any) -> Any:
            return self

        def nthreads(self) -> dict[str, int]:
            if self.done > 1:
                raise OSError("closed")
            return {"a": 1}

        def submit(self, fn: Any, *args: Any) -> Future[Any]:
            if self.done > 1:
                raise RuntimeError("Client is closed")
            self.done += 1
            with ThreadPoolExecutor(1) as one:
                return one.submit(fn, *args)

        def shutdown(self, wait: bool) -> None:
            raise RuntimeError("Can't send cancel-keys message")

    client = Client()
    store = Store(single(str(logs)), StoreOptions(cache_dir=str(tmp_path)), ranks_executor=ClusterExecutor(client))
    found = store.rank_reductions(store.recording("job"), reducer_of("ranks", {}), get("ranks").reduction.decode, wait=60.0)
    # THEN these are read, the others say why not, and closing raises nothing
    assert sorted(one.state for one in found) == ["failed", "failed", "read", "read"] and client.done == 2
    (why,) = {(one.problem, one.hint) for one in found if one.state == "failed"}
    assert "scheduler of the Dask cluster does not answer" in why[0] and "what was read is kept" in why[1]
    client.status = "closed"  # AND it is not asked again: it would be waited for
    assert ClusterExecutor(client).count == 1 and isinstance(ClusterExecutor(client).submit(int).exception(1), BadInput)
    store.close()


@pytest.fixture
def forked() -> Iterator[None]:
    """Workers of a cluster are forked from one process that has imported everything: four starts cost one."""
    utils = pytest.importorskip("distributed.utils", reason="the extra `dask` is not installed")
    import dask

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        utils.get_mp_context().set_forkserver_preload(["distributed", "tb_sol_plugin.analyses.ranks.ranks", "tb_sol_plugin.ingest.kineto.reader"])
        yield


@pytest.mark.usefixtures("forked")
def test_nothing_is_lost_when_workers_die(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    psutil = pytest.importorskip("psutil")
    # GIVEN two worker processes of a real cluster WHEN both are killed once they read THEN all ranks are read, and the index is that made here
    monkeypatch.setattr(reductions, "FEWEST", 3)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", silence_logs=50) as made:
        executor = cluster(made.scheduler_address.replace("tcp://", "dask://"))
        assert isinstance(executor, ClusterExecutor) and executor.count == 4
        assert "a task cannot be sent to the Dask cluster (TypeError" in str(executor.submit(threading.Lock().acquire).exception(10))
        store = Store(single(str(logs)), StoreOptions(cache_dir=str(tmp_path / "there")), ranks_executor=executor)
        read(store, 0.0)
        with distributed.Client(made, set_as_default=False) as client:
            until = time.monotonic() + 30
            while time.monotonic() < until and not any(client.processing().values()):
                time.sleep(0.02)
            assert any(client.processing().values())
        for worker in made.workers.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(worker.pid).kill()
        assert len(read(store, 120.0)) == 4
        store.close()
    store = Store(single(str(logs)), StoreOptions(cache_dir=str(tmp_path / "here")), ranks_executor=ThreadPoolExecutor(1))
    assert len(read(store)) == 4
    store.close()
    there, here = ({p.relative_to(c): p.read_bytes() for p in (c / "runs").rglob("*.*")} for c in (tmp_path / "there", tmp_path / "here"))
    assert there == here and len(there) == 2 and not parts(tmp_path / "there")
