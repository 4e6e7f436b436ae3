"""Small files beside recordings: which are found, which are refused and why, and scalars out of TensorBoard's event files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import fsspec
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from tb_sol_plugin.model.recordings import Sidecar
from tb_sol_plugin.store import sidecars
from tb_sol_plugin.store.sidecars import LARGEST, SidecarFiles

NAMES = ("a.json", "a.csv")


def found(folder: Path, *names: str) -> list[Sidecar]:
    return SidecarFiles().texts([("run", str(folder))], names or NAMES)


def test_files_are_found_by_name_and_nothing_else_is(tmp_path: Path) -> None:
    # GIVEN one of two names, with a mark of its byte order, and another file WHEN looked for THEN that one, without the mark
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfx\n1\n")
    (tmp_path / "b.json").write_text("{}")
    assert found(tmp_path) == [Sidecar("run", "run/a.csv", "x\n1\n")]
    assert found(tmp_path / "none") == []


def test_a_file_that_is_no_small_text_has_a_problem(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as stream:
        stream.truncate(LARGEST + 1)
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00")
    assert [(f.text, f.problem) for f in found(tmp_path)] == [("", "larger than 4 MiB"), ("", "no text in UTF-8")]


def test_folders_pipes_and_links_to_nothing_are_passed_over(tmp_path: Path) -> None:
    # GIVEN a directory of that name, and a pipe that would block a reader WHEN looked for THEN neither is read
    (tmp_path / "a.json").mkdir()
    os.mkfifo(tmp_path / "a.csv")
    (tmp_path / "b.json").symlink_to(tmp_path / "nowhere")
    assert found(tmp_path, "a.json", "a.csv", "b.json") == []


def test_a_link_may_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    # GIVEN one name that links to a file elsewhere on the machine, and one that links to its neighbor WHEN looked for THEN the first is
    # refused with the reason, the second read
    folder = tmp_path / "logs"
    folder.mkdir()
    (tmp_path / "secret").write_text("{}")
    (folder / "points").write_text("{}")
    (folder / "a.json").symlink_to(tmp_path / "secret")
    (folder / "a.csv").symlink_to("points")
    assert [(f.text, f.problem) for f in found(folder)] == [("", "a link that leads out of the folder"), ("{}", "")]


def test_files_in_a_remote_logdir_are_found() -> None:
    with fsspec.open("memory://beside_files/logs/a.json", "wb") as stream:
        stream.write(b"{}")
    with fsspec.open("memory://beside_files/logs/a.csv", "wb") as stream:
        stream.write(b"\xff\xfe\x00")
    files = SidecarFiles().texts([("", "memory://beside_files/logs")], (*NAMES, "b.json", "scalar:x"))
    assert files == [Sidecar("", "a.json", "{}"), Sidecar("", "a.csv", "", "no text in UTF-8")]


# -- scalars of event files ------------------------------------------------------------------------------------------


def write_events(folder: Path, rows: list[tuple[int, str, float]], tensor: bool = False) -> Path:
    writer = EventFileWriter(str(folder))
    for step, tag, value in rows:
        one = Summary.Value(tag=tag, tensor=make_tensor_proto(value)) if tensor else Summary.Value(tag=tag, simple_value=value)
        writer.add_event(Event(step=step, summary=Summary(value=[one])))
    writer.close()
    return next(p for p in folder.iterdir() if "tfevents" in p.name)


def values(folder: Path, *tags: str) -> dict[str, float]:
    files = found(folder, *(f"scalar:{t}" for t in tags))
    return json.loads(files[0].text)["scalars"] if files else {}  # type: ignore[no-any-return]


@pytest.mark.parametrize("tensor", [False, True])
def test_the_last_step_of_a_scalar_counts(tmp_path: Path, tensor: bool) -> None:
    # GIVEN values at steps 1, 5 and 3, and one that is not a number after them WHEN asked THEN that of step 5
    write_events(tmp_path, [(1, "g/sqr", 1.0), (5, "g/sqr", 2.5), (3, "g/sqr", 9.0), (7, "g/sqr", float("nan")), (2, "loss", 4.0)], tensor)
    assert values(tmp_path, "g/sqr", "g/var") == {"g/sqr": 2.5}
    assert found(tmp_path, "scalar:g/sqr")[0].file == "run/event files"
    assert values(tmp_path, "g/nothing") == {}


def test_an_event_file_that_is_cut_off_or_none_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write_events(tmp_path, [(1, "g", 1.0), (2, "g", 2.0)])
    path.write_bytes(path.read_bytes()[:-7])
    assert values(tmp_path, "g") == {"g": 1.0}
    path.write_bytes(b"g" * 1000)
    assert values(tmp_path, "g") == {}
    # AND a length that is larger than the file, and a tensor whose bytes do not fit its shape
    path.write_bytes(b"\xff" * 16 + b"g")
    assert values(tmp_path, "g") == {}


def test_tensors_that_are_no_number_are_passed_over(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    broken = TensorProto(dtype=1, tensor_content=b"abc")
    broken.tensor_shape.dim.add(size=7)
    for tensor in (broken, make_tensor_proto([1.0, 2.0]), make_tensor_proto("text"), TensorProto(dtype=250)):
        writer.add_event(Event(step=1, summary=Summary(value=[Summary.Value(tag="g", tensor=tensor)])))
    writer.close()
    assert values(tmp_path, "g") == {}


def test_event_files_are_read_anew_when_they_grow_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, reads = SidecarFiles(), list[str]()
    real = sidecars._read

    def read(path: str, tags: tuple[str, ...]) -> sidecars.Values:
        reads.append(path)
        return real(path, tags)

    monkeypatch.setattr(sidecars, "_read", read)
    path = write_events(tmp_path, [(1, "g", 1.0)])
    for _ in range(2):
        assert json.loads(beside.texts([("", str(tmp_path))], ("scalar:g",))[0].text) == {"scalars": {"g": 1.0}}
    assert len(reads) == 1
    other = write_events(tmp_path / "more", [(4, "g", 4.0)])
    path.write_bytes(path.read_bytes() + other.read_bytes())
    assert json.loads(beside.texts([("", str(tmp_path))], ("scalar:g",))[0].text) == {"scalars": {"g": 4.0}} and len(reads) == 2


def test_sidecar_files_are_not_listed_as_rejected_recordings(tmp_path: Path) -> None:
    # GIVEN files of points in a logdir and in a run WHEN scanned THEN they are neither recordings nor refused ones, and the names are those
    # that analyses ask for
    from tb_sol_plugin.model.registry import registry
    from tb_sol_plugin.store import names
    from tb_sol_plugin.store.names import single
    from tb_sol_plugin.store.options import StoreOptions
    from tb_sol_plugin.store.scan import Heads, scan

    (tmp_path / "run").mkdir()
    for folder in (tmp_path, tmp_path / "run"):
        for name in names.BESIDE:
            (folder / name).write_text("{}")
    listing = scan(single(str(tmp_path)), StoreOptions(), Heads({}))
    assert (listing.runs, listing.rejected, listing.unrelated) == ({}, (), 0)
    asked = {f for item in registry().values() if item.scope == "runs" for f in item.reduction.files if not f.startswith("scalar:")}
    assert asked == set(names.BESIDE)
