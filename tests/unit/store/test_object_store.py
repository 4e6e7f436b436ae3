"""A run in an object store: its ranks are read from a real S3-compatible server, and a rank that comes later is read alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.cli import main
from tests.support.rank_factory import Job, simulate


def test_a_run_in_an_object_store_is_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3]' flask-cors")
    pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
    import fsspec

    # GIVEN three of four ranks in a bucket
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    made, command = simulate(Job(dp=4, layers=1, steps=1)), ["index", "s3://bucket/logs", "--cache-dir", str(tmp_path / "cache"), "--workers", "1"]
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        store = fsspec.filesystem("s3", skip_instance_cache=True)
        store.mkdir("bucket")
        for rank in range(4):
            name = f"rank{rank}.1.pt.trace.json.gz"
            store.pipe(f"bucket/logs/job/{name}", made.trace(rank).write(tmp_path / name).read_bytes())
            if rank < 2:
                continue
            # WHEN they are indexed THEN all are read, those that were read before from the cache
            before = {p: p.stat().st_ino for p in (tmp_path / "cache" / "parts").rglob("*.part")}
            store.invalidate_cache()
            assert main(command) == 0
            assert capsys.readouterr().out.startswith(f"job: {rank + 1} of {rank + 1} ranks in ")
            after = {p: p.stat().st_ino for p in (tmp_path / "cache" / "parts").rglob("*.part")}
            assert len(after) == rank + 1 and before.items() <= after.items()
    finally:
        server.stop()
