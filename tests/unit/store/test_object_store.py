"""A run in an object store: its ranks are read from a real S3-compatible server, and a rank that comes later is read alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tb_sol_plugin.cli import main
from tb_sol_plugin.model.answer import reducer_of
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tests.support.rank_factory import Job, simulate


def test_a_run_in_an_object_store_is_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3]' flask-cors")
    pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
    import fsspec

    # GIVEN a bucket with three of four ranks, which a server has read
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("tb_sol_plugin.cli.index._make_pages", lambda *_: None)
    made, cache, logdir = simulate(Job(dp=4, layers=1, steps=1)), tmp_path / "cache", "s3://bucket/logs"
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        bucket = fsspec.filesystem("s3", skip_instance_cache=True)
        bucket.mkdir("bucket")

        def put(rank: int) -> None:
            name = f"rank{rank}.1.pt.trace.json.gz"
            bucket.pipe(f"bucket/logs/job/{name}", made.trace(rank).write(tmp_path / name).read_bytes())
            bucket.invalidate_cache()

        for rank in range(3):
            put(rank)
        store = Store(single(logdir), StoreOptions(cache_dir=str(cache)), executor=ThreadPoolExecutor(1))
        decode = get("ranks").reduction.decode
        found = store.rank_reductions(store.recording("job"), reducer_of("ranks", {}), decode, wait=60.0)
        assert [one.rank for one in found if one.state == "read"] == [0, 1, 2]
        store.close()
        before = {p: p.stat().st_ino for p in (cache / "parts").rglob("*.part")}
        # WHEN the last one comes and the run is indexed by a process of the command line THEN that one alone is read
        put(3)
        assert main(["index", logdir, "--cache-dir", str(cache), "--workers", "1"]) == 0
        assert capsys.readouterr().out.startswith("job: 4 of 4 ranks in ")
        after = {p: p.stat().st_ino for p in (cache / "parts").rglob("*.part")}
        assert (len(before), len(after)) == (3, 4) and before.items() <= after.items()
    finally:
        server.stop()
