"""Device files where they lie: found, read when they change, and harmless."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import platformdirs
import pytest

from tb_sol_plugin.devices.files import LARGEST
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.devices.places import ENVIRONMENT, user_file
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.store import sidecars
from tb_sol_plugin.store.names import roots_of
from tb_sol_plugin.store.open import open_run
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.sidecars import DeviceFiles, check_choice, folders_above, split_choice
from tb_sol_plugin.store.store import Store
from tests.support.trace_builder import TraceBuilder


def rows(path: Path, *items: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(items))
    return path


def recording(path: Path) -> Path:
    """A recording of one matrix product on an H100."""
    t = TraceBuilder()
    t.op("aten::mm", 0, 900, shapes=[[1024, 1024], [1024, 1024]], types=["c10::BFloat16", "c10::BFloat16"])
    t.launch("gemm", at=100, start=2000, duration=10_000)
    return t.write(path)


def test_the_device_file_of_the_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN no variable THEN it lies in the user's configuration; an empty variable switches it off, a path names it
    monkeypatch.delenv(ENVIRONMENT)
    assert user_file() == str(Path(platformdirs.user_config_dir("tb-sol", appauthor=False)) / "devices.json")
    monkeypatch.setenv(ENVIRONMENT, "")
    assert user_file() == "" and DeviceFiles().book().layers == ()
    own = rows(tmp_path / "mine.json", {"key": "mine", "mem_gb": 1})
    monkeypatch.setenv(ENVIRONMENT, str(own))
    assert list(DeviceFiles().book().specs) == ["mine"]


def test_a_file_is_read_again_when_it_changes_and_forgotten_when_it_goes(tmp_path: Path) -> None:
    files, path = DeviceFiles(), tmp_path / "sol_devices.json"
    assert files.book(str(tmp_path)).fingerprint == ""
    rows(path, {"key": "a", "mem_gb": 1})
    first = files.book(str(tmp_path))
    assert list(first.specs) == ["a"] and files.book(str(tmp_path)) is first
    rows(path, {"key": "b", "mem_gb": 1})
    os.utime(path, ns=(1, 1))
    second = files.book(str(tmp_path))
    assert list(second.specs) == ["b"] and second.fingerprint != first.fingerprint
    path.unlink()
    assert files.book(str(tmp_path)).specs == {}


def test_json_comes_before_csv_and_nothing_but_plain_small_files_is_opened(tmp_path: Path) -> None:
    (tmp_path / "sol_devices.csv").write_text("key,mem_gb\nfrom_csv,1\n")
    assert list(DeviceFiles().book(str(tmp_path)).specs) == ["from_csv"]
    path = rows(tmp_path / "sol_devices.json", {"key": "from_json", "mem_gb": 1})
    assert list(DeviceFiles().book(str(tmp_path)).specs) == ["from_json"]
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever
    assert list(DeviceFiles().book(str(tmp_path)).specs) == ["from_csv"]
    path.unlink()
    path.mkdir()
    assert list(DeviceFiles().book(str(tmp_path)).specs) == ["from_csv"]
    path.rmdir()
    with path.open("wb") as stream:
        stream.truncate(LARGEST * 1000)
    (problem,) = DeviceFiles().book(str(tmp_path)).problems
    assert "more than 1,000,000 bytes" in problem.line()
    assert str(tmp_path) not in problem.line()


def test_a_device_file_in_a_remote_folder_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/devices/logs/sol_devices.json", b'[{"key": "far", "mem_gb": 1}]')
    try:
        files = DeviceFiles()
        assert list(files.book("memory://devices/logs").specs) == ["far"]
        fs.pipe("/devices/logs/sol_devices.json", b'[{"key": "farther", "mem_gb": 1}]')
        assert list(files.book("memory://devices/logs").specs) == ["far"]  # one look holds for a while
        monkeypatch.setattr(sidecars, "REMOTE_DEVICE_FILE_SECONDS", 0.0)
        assert list(files.book("memory://devices/logs").specs) == ["farther"]
    finally:
        fs.store.clear()


def test_a_choice_of_the_command_line_is_split_into_file_and_key(tmp_path: Path) -> None:
    assert split_choice("H100_SXM@1410MHz+sparse") == ("", "H100_SXM@1410MHz+sparse")
    assert split_choice("my.json") == ("my.json", "") and split_choice("a/my.CSV#k+sparse") == ("a/my.CSV", "k+sparse")
    assert split_choice("s3://bucket/d.json#k") == ("s3://bucket/d.json", "k") and split_choice("") == ("", "")
    path = rows(tmp_path / "d.json", {"key": "a", "inherits": "H100_SXM"}, {"key": "b", "inherits": "H200"})
    book = DeviceFiles(f"{path}#b@915MHz").book()
    assert book.default == "b@915MHz" and list(book.specs) == ["a", "b"]
    with pytest.raises(BadInput, match="no such device file"):
        check_choice(str(tmp_path / "none.json"))
    check_choice("nonsense")  # a key is looked at where it is used
    (problem,) = DeviceFiles(str(tmp_path / "none.json")).book().problems
    assert "no such file" in problem.message


def test_a_device_file_counts_in_its_folder_and_two_below() -> None:
    assert folders_above("/a/b/c/d.json", file=True) == ("/a/b/c", "/a/b", "/a")
    assert folders_above("/a", file=False) == ("/a", "/")
    assert folders_above("s3://bucket/x/y.json", file=True) == ("s3://bucket/x", "s3://bucket")
    assert folders_above("s3://bucket/x", file=False) == ("s3://bucket/x", "s3://bucket")


def test_opening_a_run_or_a_file_finds_the_file_of_its_logdir(tmp_path: Path) -> None:
    trace = recording(tmp_path / "logs" / "job" / "w.json")
    rows(tmp_path / "logs" / "sol_devices.json", {"key": "ours", "inherits": "H100_SXM", "bf16_tensor_tflops": 500})
    for path in (tmp_path / "logs", trace.parent, trace):
        run, _ = open_run(str(path))
        spec = device_for(run.captures[0])
        assert spec is not None and (spec.key, spec.matrix["bf16"]) == ("ours", 500e12)
    run, _ = open_run(str(trace), device="A100@705MHz")
    spec = device_for(run.captures[0])
    assert spec is not None and spec.key == "A100_SXM_80@705MHz"


def test_a_store_gives_each_logdir_its_own_rows_and_changes_them_with_the_file(tmp_path: Path) -> None:
    # GIVEN two named logdirs, one of them with a device file
    for name in ("one", "two"):
        recording(tmp_path / name / "job" / "w.json")
    path = rows(tmp_path / "one" / "sol_devices.json", {"key": "ours", "inherits": "H100_SXM", "bf16_tensor_tflops": 500})
    with ThreadPoolExecutor(1) as pool:
        store = Store(
            roots_of("", f"one:{tmp_path / 'one'},two:{tmp_path / 'two'}"), StoreOptions(cache_dir=str(tmp_path / "cache")), executor=pool
        )

        def key(run: str) -> str:
            spec = device_for(store.capture(store.recording(run), 20))
            return spec.key if spec is not None else ""

        assert (key("one/job"), key("two/job")) == ("ours", "H100_SXM")
        first = store.capture(store.recording("one/job"))
        assert store.capture(store.recording("one/job")) is first
        # WHEN it changes THEN new captures have the new rows, those handed out keep theirs
        rows(path, {"key": "theirs", "inherits": "H200"})
        os.utime(path, ns=(1, 1))
        assert key("one/job") == "theirs" and list(first.devices.specs) == ["ours"]
        assert store.capture(store.recording("one/job")).device is first.device
        # and the file itself is no recording and no fault of the listing
        _, listing = store.listing(5)
        assert listing.rejected == () and set(listing.runs) == {"one/job", "two/job"}
        path.write_text("[{]")
        assert any("sol_devices.json, line 1" in note for note in store.device_notes())
        assert key("one/job") == "H100_SXM"


def test_a_file_that_could_not_be_read_is_tried_again_after_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file that fails once, and does not change
    rows(tmp_path / "sol_devices.json", {"key": "a", "mem_gb": 1})
    store = Store(roots_of(str(tmp_path)), StoreOptions(cache_dir=""))
    with monkeypatch.context() as patched:

        def refuse(*_: object) -> object:
            raise PermissionError(13, "Permission denied")

        patched.setattr(sidecars.files, "opener", lambda *_: refuse)
        assert store.device_notes() == ["sol_devices.json: cannot be read: Permission denied (check its permissions)"]
    assert store.device_notes() != []
    # WHEN the reader asks for a new scan THEN it is read
    store.rescan()
    assert store.device_notes() == [] and list(store.devices.book(str(tmp_path)).specs) == ["a"]
