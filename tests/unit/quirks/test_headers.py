"""Headers that say odd things: numbers as text, numbers no integer holds, secrets in every field that is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.cli import main
from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import encode
from tests.support.check_capture import check_capture
from tests.support.trace_builder import Json, Raw, TraceBuilder

TOKEN = "hf_AbCdEfGhIjKlMnOp1234"
HIDDEN = (TOKEN, "hunter2", "wJalrXUtnFEMI", "0123456789abcdef01234567", "alice")


def some(**header: Json) -> TraceBuilder:
    t = TraceBuilder(header=header)
    t.op("aten::mm", 0, 1_000, shapes=[[8, 4], [4, 2]], types=["float", "float"])
    t.launch("gemm", at=100, start=400, duration=40)
    return t


RANKS = [
    ({"rank": "3", "world_size": "8"}, (3, 8)), ({"rank": 3.0, "world_size": 8.0}, (3, 8)), ({"rank": None}, (None, None)),
    ({"rank": True, "world_size": True}, (None, None)), ({"rank": -1, "world_size": 0}, (None, None)), ([1], (None, None)),
    ({"rank": 10**30, "world_size": 10**30}, (None, None)), ("x", (None, None)), ({"rank": [], "backend": {}}, (None, None)),
]  # fmt: skip
DEVICES = [
    ([{}], [(0, "", 0)]), ([{"id": "3", "name": None, "numSms": "108"}], [(3, "", 108)]), ("x", []), ({"id": 0}, []), ([None, 5], []),
    ([{"id": 5, "name": "NVIDIA A100-SXM4-80GB"}, {"id": 3}], [(5, "NVIDIA A100-SXM4-80GB", 0), (3, "", 0)]),
    ([{"id": 0, "name": "X", "numSms": 10**30, "totalGlobalMem": 10**30, "computeMajor": [], "computeMinor": {}}], [(0, "X", 0)]),
]  # fmt: skip


@pytest.mark.parametrize(("info", "rank"), RANKS)
def test_odd_ranks_and_world_sizes_are_numbers_or_unknown(tmp_path: Path, info: Json, rank: tuple[int | None, int | None]) -> None:
    facts = read(str(some(distributedInfo=info).write(tmp_path / "w.1.pt.trace.json"))).facts
    assert (facts.rank, facts.world_size) == rank and (facts.rank is None or type(facts.rank) is int)


GROUPS = [
    ([{"pg_name": "3", "pg_desc": "mesh_tp", "pg_size": 2, "ranks": [0, 8]}], [("3", "mesh_tp", "0:8:2", 2)]),
    ([{"pg_name": None, "pg_size": "x", "ranks": "0"}, 7, {"ranks": [0, -1]}, {"ranks": [2**40]}], [("None", "", "", -1), *[("", "", "", -1)] * 2]),
    ("hunter2", []), ({"pg_name": "0"}, []), ([], []),
]  # fmt: skip


@pytest.mark.parametrize(("config", "groups"), GROUPS)
def test_odd_process_groups_are_groups_or_nothing(tmp_path: Path, config: Json, groups: list[tuple[str, str, str, int]]) -> None:
    table = read(str(some(distributedInfo={"rank": 0, "pg_config": config}).write(tmp_path / "w.1.pt.trace.json"))).tables["process_groups"]
    assert list(table.astype(dict.fromkeys(("name", "description", "ranks"), str)).itertuples(index=False, name=None)) == groups


@pytest.mark.parametrize(("properties", "devices"), DEVICES)
def test_odd_device_properties_are_devices_or_nothing(tmp_path: Path, properties: Json, devices: list[tuple[int, str, int]]) -> None:
    facts = read(str(some(deviceProperties=properties).write(tmp_path / "w.1.pt.trace.json"))).facts
    assert [(d.id, d.name, d.units) for d in facts.devices] == devices


@pytest.mark.parametrize("at", [1, 5, 6])
def test_every_analysis_answers_with_odd_headers(tmp_path: Path, at: int) -> None:
    # GIVEN numbers as text, two devices, or numbers that no integer holds, in both parts of the header
    header = {"distributedInfo": RANKS[at][0], "deviceProperties": DEVICES[at][0]}
    check_capture(some(**header).write(tmp_path / "w.1.pt.trace.json"), tmp_path / "c")


@pytest.mark.parametrize("name", [b'"caf\xe9"', b'"C:\\new \\q"', b"NaN", b'"\x07"'])
def test_a_damaged_value_does_not_lose_the_header(tmp_path: Path, name: bytes) -> None:
    # GIVEN a header value that is no UTF-8, has a bad escape, is no JSON or holds a control character
    data = some(traceName=Raw("@")).data().replace(b"@", name, 1)
    path = tmp_path / "w.1.pt.trace.json"
    path.write_bytes(data)
    # WHEN read THEN the device is still known
    assert [d.name for d in read(str(path)).facts.devices] == ["NVIDIA H100 80GB HBM3"]


def test_secrets_in_any_field_reach_no_surface(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN tokens, passwords and user names in every part of the header, and code in the recorded arguments
    marker = tmp_path / "executed"
    t = some(
        metadata={
            "HF_TOKEN": TOKEN, "model_name": f"bert {TOKEN}", "nested": {"deep": [{"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG"}]},
            "password": "hunter2", "env": {"USER": "alice", "PATH": "/home/alice/bin"},
        },
        WANDB_API_KEY="0123456789abcdef0123456789abcdef01234567", username="alice", traceName="/home/alice/x.json",
        ERROR=[f"failed with token={TOKEN}", "PASSWORD: hunter2"], WARNING=[f"https://alice:hunter2@host/{TOKEN}"],
        distributedInfo={"backend": TOKEN, "rank": 0, "world_size": 2, "pg_config": "hunter2"},
        deviceProperties=[{"id": 0, "name": f"NVIDIA H100 80GB HBM3 {TOKEN}", "password": "hunter2"}],
        host_name=TOKEN, torch_version=TOKEN,
    )  # fmt: skip
    t.op("aten::add", 2_000, 10, concrete=[f"__import__('pathlib').Path({str(marker)!r}).touch()"], shapes=[[2]], types=["float"])
    path = t.write(tmp_path / "run" / "w.1.pt.trace.json")
    # WHEN it is read, analyzed, cached and printed
    c = check_capture(path, tmp_path / "cache")
    texts = {name: encode(c.analyze(name)) for name in registry()}
    texts |= {str(p): p.read_bytes() for p in (tmp_path / "cache").rglob("*") if p.is_file()}
    for command in (["report", str(path)], ["doctor", str(tmp_path / "run")]):
        main(command)
        printed = capsys.readouterr()
        texts[command[0]] = (printed.out + printed.err).encode()
    # THEN none of them is anywhere, and nothing was executed
    assert len(texts["report"]) > 500 and len(texts) > len(registry()) + 3
    found = [(where, word) for where, text in texts.items() for word in HIDDEN if word.encode() in text]
    assert found == [] and not marker.exists()
