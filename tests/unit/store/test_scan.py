"""Which files become runs, workers and spans, and what is said of the others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.model.recordings import natural
from tb_sol_plugin.store import names
from tb_sol_plugin.store.names import Root, named, single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.scan import Heads, Listing, scan
from tests.support.tiny import EVENTS, trace


def look(*roots: Root, **limits: object) -> Listing:
    options = StoreOptions(**limits)  # type: ignore[arg-type]
    return scan(roots, options, Heads({}))


def seen(listing: Listing) -> dict[str, list[tuple[str, str]]]:
    return {run: [(r.worker, r.span) for r in recordings] for run, recordings in listing.runs.items()}


@pytest.mark.parametrize(
    ("file", "worker", "span"),
    [
        ("host_12.1623143089861.pt.trace.json.gz", "host_12", "1623143089861"),
        ("host_12.1623143089861.pt.trace.json", "host_12", "1623143089861"),
        ("host_12.pt.trace.json", "host_12", "default"),
        ("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", "rank-0.Apr_03_18_51_38", "1102"),
        ("rank3.json", "rank3", "default"),
        ("trace.json.gz", "trace", "default"),
        (".pt.trace.json", ".pt.trace.json", "default"),
    ],
)
def test_names_of_workers_and_spans(file: str, worker: str, span: str) -> None:
    assert names.worker_and_span(file) == (worker, span)


@pytest.mark.parametrize(
    ("worker", "rank"), [("rank3", 3), ("job-rank_12", 12), ("rank-34.Jul", 34), ("host_4711", None), ("frank3", None)]
)
def test_a_rank_stands_in_a_name_only_as_such(worker: str, rank: int | None) -> None:
    assert names.rank_in(worker) == rank


def test_runs_are_directories_with_recordings_in_natural_order(tmp_path: Path) -> None:
    # GIVEN a logdir with recordings at the top, in folders, with ranks 2 and 10 and spans 2 and 10
    root = tmp_path / "logs"
    trace(root / "w.pt.trace.json")
    for worker in ("rank10", "rank2"):
        for span in ("10", "2"):
            trace(root / "run10" / f"{worker}.{span}.pt.trace.json.gz")
    trace(root / "run2" / "deep" / "er" / "a.json")
    # WHEN it is scanned THEN runs, workers and spans come as people count
    found = seen(look(*single(str(root))))
    assert found == {
        "logs": [("w", "default")],
        "run2/deep/er": [("a", "default")],
        "run10": [("rank2", "2"), ("rank2", "10"), ("rank10", "2"), ("rank10", "10")],
    }
    assert list(found) == ["logs", "run2/deep/er", "run10"]
    assert names.labels(["10", "2"]) == {"2": "1", "10": "2"} and names.labels(["default"]) == {"default": "default"}


def test_the_root_and_a_folder_of_its_name_are_two_runs(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    trace(root / "a.json")
    trace(root / "logs" / "b.json")
    assert seen(look(*single(str(root)))) == {".": [("a", "default")], "logs": [("b", "default")]}


def test_a_packed_and_a_plain_file_of_one_name_are_two_workers(tmp_path: Path) -> None:
    trace(tmp_path / "x.json")
    trace(tmp_path / "x.json.gz")
    (found,) = seen(look(*single(str(tmp_path)))).values()
    assert found == [("x", "default"), ("x.json.gz", "default")]


def test_tokens_in_names_of_files_and_folders_are_not_shown(tmp_path: Path) -> None:
    # GIVEN two folders and two files that differ in a token alone
    tokens = ["ghp_" + "0123456789abcdefghij" + end for end in "AB"]
    for token in tokens:
        for other in tokens:
            trace(tmp_path / f"job {token}" / f"rank0_{other}.json")
        trace(tmp_path / f"{token}.json")
    (tmp_path / f"x_{tokens[0]}.json").write_text("{}")
    # WHEN the folder is scanned THEN every recording is there under a name of its own, without the token
    listing = look(*single(str(tmp_path)))
    workers = [("rank0_[redacted]", "default"), ("rank0_[redacted].json", "default")]
    assert seen(listing) == {
        tmp_path.name: [("[redacted]", "default"), ("[redacted].json", "default")],
        "job [redacted]": workers,
        "job [redacted] (2)": workers,
    }
    files = [r.file for recordings in listing.runs.values() for r in recordings] + [r.file for r in listing.rejected]
    assert len(files) == 7 and not any(token in file for file in files for token in tokens)


def test_a_device_file_in_a_run_is_rejected_with_its_kind(tmp_path: Path) -> None:
    # GIVEN the limits that a recording took from its own folder, and those of the whole logdir
    (tmp_path / "run").mkdir()
    trace(tmp_path / "run" / "a.json")
    for folder in (tmp_path, tmp_path / "run"):
        (folder / "sol_devices.json").write_text('{"devices": []}')
    # WHEN the logdir is looked through THEN the one of the run is named with what it is for, the other one is not among what was not taken
    (found,) = look(*single(str(tmp_path))).rejected
    assert (found.file, found.what) == ("run/sol_devices.json", "a device file in a run") and "hold its limits" in found.note


def test_other_files_are_classified_by_content(tmp_path: Path) -> None:
    # GIVEN JSON that is not a recording, a recording with a plain name, and files nobody looks into
    trace(tmp_path / "yes.json")
    (tmp_path / "list.json").write_text(json.dumps(EVENTS))
    (tmp_path / "timeline.raw.json").write_text("[[1, 2, 3, 4]]")
    (tmp_path / "rows.json").write_text('[["a", 1]]')
    (tmp_path / "memory.html").write_text("<html>\n<head><title>GPU Memory Timeline HTML</title></head>")
    (tmp_path / "other.pickle").write_bytes(b"\x80\x04N.")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "page.html").write_text("<html>")
    (tmp_path / "events.out.tfevents.1").write_text("x")
    (tmp_path / "folder.pt.trace.json").mkdir()
    listing = look(*single(str(tmp_path)))
    # THEN the recordings are there, each other JSON has its reason, a directory named like a trace is a directory
    (found,) = seen(listing).values()
    assert found == [("list", "default"), ("timeline", "default"), ("yes", "default")]
    assert [r.kind for r in listing.runs[next(iter(listing.runs))]] == ["kineto", "memory_timeline", "kineto"]
    notes = {r.file: r.note for r in listing.rejected}
    assert set(notes) == {"rows.json", "config.json", "empty.json", "page.html", "memory.html", "other.pickle"}
    assert "export_memory_timeline" in notes["memory.html"] and "can run code" in notes["other.pickle"]
    assert all(r.what for r in listing.rejected)
    assert (listing.files, listing.unrelated, listing.directories) == (10, 1, 2)


def test_links_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    # GIVEN a folder outside that a link leads to, a link to the root, and a link to itself
    trace(tmp_path / "elsewhere" / "job" / "a.json")
    root = tmp_path / "logs"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "again").symlink_to(root)
    (root / "again2").symlink_to(tmp_path / "elsewhere")
    (root / "self").symlink_to(root / "self")
    (root / "broken").symlink_to(root / "nothing")
    trace(root / "run" / "b.json")
    (root / "run" / "up").symlink_to(root)
    listing = look(*single(str(root)))
    # THEN what lies outside is found once, nothing is found twice, and the scan ends
    assert sorted(seen(listing)) in (["linked/job", "run"], ["again2/job", "run"])
    assert listing.stopped is None


def test_a_scan_says_when_it_stops(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"{i}.txt").write_text("")
    assert look(*single(str(tmp_path)), scan_files=10).stopped == "stopped after 10 files"
    assert "stopped after" in (look(*single(str(tmp_path)), scan_seconds=1e-9).stopped or "")


def test_a_missing_root_is_an_error_without_a_path(tmp_path: Path) -> None:
    listing = look(*single(str(tmp_path / "secret" / "nothing")))
    assert listing.runs == {} and listing.errors == ("nothing: No such file or directory",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_folder_costs_only_itself(tmp_path: Path) -> None:
    trace(tmp_path / "a" / "a.json")
    closed = tmp_path / "b"
    closed.mkdir(mode=0)
    listing = look(*single(str(tmp_path)))
    closed.chmod(0o700)
    assert list(listing.runs) == ["a"] and listing.errors == ("b: Permission denied",)


def test_ten_thousand_unrelated_files_are_counted_and_not_opened(tmp_path: Path) -> None:
    for i in range(100):
        folder = tmp_path / f"d{i}"
        folder.mkdir()
        for j in range(100):
            (folder / f"f{j}.bin").touch()
    trace(tmp_path / "d50" / "a.pt.trace.json")
    listing = look(*single(str(tmp_path)))
    assert list(listing.runs) == ["d50"] and listing.files == 10_001


def test_every_named_root_is_scanned(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        trace(tmp_path / name / "job" / "a.json")
    roots = named(f"x:{tmp_path}/one,y:{tmp_path}/two,{tmp_path}/three")
    assert list(look(*roots).runs) == ["three/job", "x/job", "y/job"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("a:/p,b:/q", [("a", "/p"), ("b", "/q")]),
        ("/p,/r/p", [("p", "/p"), ("p_2", "/r/p")]),
        ("s3://bucket/x,n:gs://b/y", [("x", "s3://bucket/x"), ("n", "gs://b/y")]),
        (" a:/p , ", [("a", "/p")]),
    ],
)
def test_the_names_of_logdir_spec_are_roots(spec: str, expected: list[tuple[str, str]]) -> None:
    assert [(r.name, r.url) for r in named(spec)] == expected


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


def test_a_remote_root_is_scanned(memory: fsspec.AbstractFileSystem) -> None:
    # GIVEN a logdir behind fsspec WHEN scanned THEN as if it were local
    body = json.dumps({"traceEvents": EVENTS}).encode()
    memory.pipe("/logs/run/rank2.json", body)
    memory.pipe("/logs/run/rank10.1.pt.trace.json", body)
    memory.pipe("/logs/config.json", b"{}")
    memory.pipe("/logs/x.bin", b"")
    listing = look(*single("memory://logs"))
    assert seen(listing) == {"run": [("rank2", "default"), ("rank10", "1")]}
    assert [r.file for r in listing.rejected] == ["config.json"]
    recording = listing.runs["run"][0]
    assert recording.file == "run/rank2.json" and recording.path.startswith("memory://") and recording.mtime > 0


def test_a_missing_driver_is_named_on_the_page() -> None:
    listing = look(Root("", "abfs://container/logs"))
    assert listing.runs == {} and len(listing.errors) == 1
    assert "install" in listing.errors[0].lower() or "adlfs" in listing.errors[0]


def test_heads_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace(tmp_path / "a.json")
    reads: list[str] = []
    from tb_sol_plugin.store import files

    original = files.head
    monkeypatch.setattr(files, "head", lambda path, options: reads.append(path) or original(path, options))
    heads = Heads({})
    for _ in range(3):
        scan(single(str(tmp_path)), StoreOptions(), heads)
    assert len(reads) == 1
    trace(tmp_path / "a.json", EVENTS + EVENTS)
    scan(single(str(tmp_path)), StoreOptions(), heads)
    assert len(reads) == 2


@given(st.lists(st.integers(0, 10**6), min_size=2))
def test_natural_order_is_numeric(numbers: list[int]) -> None:
    assert sorted((f"rank{n}" for n in numbers), key=natural) == [f"rank{n}" for n in sorted(numbers)]


def test_names_that_are_not_text_can_still_be_sent(tmp_path: Path) -> None:
    raw = os.fsencode(str(tmp_path)) + b"/caf\xe9.json"
    try:
        with open(raw, "w", encoding="ascii") as stream:
            json.dump({"traceEvents": []}, stream)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    ((recording,),) = look(*single(str(tmp_path))).runs.values()
    assert recording.file.encode() and recording.worker == "caf\ufffd"
