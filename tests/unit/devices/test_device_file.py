"""Device files: good rows, wrong rows with their place and remedy, and files that mean harm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.devices import catalog as device_table
from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.devices.files import LARGEST, book_of, known_columns, parse
from tb_sol_plugin.devices.limits import choices, device_for, host_of, why_no_limits
from tb_sol_plugin.devices.rates import figures
from tb_sol_plugin.devices.spec import DeviceBook, DeviceProps, Place
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

GIB = 2**30
H100 = DeviceProps(0, "NVIDIA H100 80GB HBM3", 80 * GIB, "9.0", 132)
H800 = DeviceProps(0, "NVIDIA H800", 80 * GIB, "9.0", 132)
MI300 = DeviceProps(0, "AMD Instinct MI300X", 192 * GIB, "9.4", 304, 64)


def rows(*items: object) -> bytes:
    return json.dumps(list(items)).encode()


def book(content: bytes, file: str = "sol_devices.json", place: Place = "logdir", default: str = "") -> DeviceBook:
    return book_of([(place, parse(content, file))], default)


def capture(devices: DeviceBook, *props: DeviceProps, file: str = "x.json", host: str = "", device: bool | None = None) -> Capture:
    frame = S.DEVICE.frame({"device": [0], "duration_ns": [10]})
    has = bool(props) if device is None else device
    return Capture(Facts("torch", file, 1, devices=props, host_name=host), {"device": frame} if has else {}, devices=devices)


# -- good rows -------------------------------------------------------------------------------------------------------


def test_one_figure_of_a_row_of_the_table_changes_and_says_so() -> None:
    # GIVEN a file that changes the bandwidth of the H100 alone
    own = book(rows({"key": "H100_SXM", "mem_bw_gb_per_s": 3000}))
    spec = device_for(capture(own, H100))
    # THEN the device is still found by its name, and only that figure is the user's
    assert spec is not None and (spec.key, spec.method, spec.source) == ("H100_SXM", "exact", "sol_devices.json")
    assert spec.memory_bandwidth == 3000e9 and spec.matrix == table()["H100_SXM"].matrix
    assert (spec.provenance["mem_bw_gb_per_s"], spec.provenance["bf16_tensor_tflops"]) == ("user", "derived")
    (bandwidth,) = [f for f in figures(spec) if f.name == "mem_bw_gb_per_s"]
    assert (bandwidth.provenance, bandwidth.source) == ("user", "sol_devices.json")
    # and another device is not touched by it
    other = device_for(capture(own, MI300))
    assert other is not None and other.key == "MI300X" and own.notes() == []


def test_the_only_new_row_of_a_logdir_applies_to_every_gpu() -> None:
    own = book(rows({"key": "H800_here", "inherits": "H100_SXM", "link_bidir_gb_per_s": 400}))
    for props in (H800, H100, MI300, DeviceProps(0)):
        spec = device_for(capture(own, props))
        assert spec is not None and (spec.key, spec.method, spec.link_bytes_per_s) == ("H800_here", "file", 200e9)
    assert device_for(capture(own)) is None  # a CPU recording is not a GPU
    assert choices(own)[0] == "H800_here"


def test_a_row_that_only_inherits_is_called_after_its_base() -> None:
    spec = device_for(capture(book(b'{"inherits": "H100", "bf16_tensor_tflops": 700}'), H800))
    assert spec is not None and (spec.key, spec.matrix["bf16"]) == ("H100_SXM_user", 700e12)
    assert spec.units == 132


def test_two_rows_apply_to_the_devices_they_name() -> None:
    own = book(
        rows(
            {"key": "H800", "inherits": "H100_SXM", "device_names": ["NVIDIA H800"], "link_bidir_gb_per_s": 400},
            {"key": "mine", "bf16_tensor_tflops": 100, "device_names": "Some Accelerator;Other Accelerator"},
        )
    )
    found = [device_for(capture(own, DeviceProps(0, name))) for name in ("nvidia h800", "Other Accelerator", "NVIDIA B200")]
    assert [spec.key if spec else None for spec in found] == ["H800", "mine", "B200"]
    assert found[1] is not None and found[1].matrix == {"bf16": 100e12} and found[1].memory_bandwidth is None


def test_a_new_row_in_the_users_own_file_waits_to_be_chosen() -> None:
    own = book(rows({"key": "mine", "inherits": "H100_SXM"}), place="user")
    spec = device_for(capture(own, H800))
    assert spec is not None and spec.key == "unknown"
    chosen = device_for(capture(own, H800), "mine@915MHz")
    assert chosen is not None and (chosen.method, chosen.matrix["bf16"]) == ("override", pytest.approx(494.7e12))


def test_csv_and_json_say_the_same() -> None:
    as_csv = b'key,inherits,mem_bw_gb_per_s,device_names,notes\nmine,H100_SXM,3000,NVIDIA H800,"a, b"\n# a remark\n\n'
    as_json = rows({"key": "mine", "inherits": "H100_SXM", "mem_bw_gb_per_s": 3000, "device_names": "NVIDIA H800", "notes": "a, b"})
    first, second = (book(c, f"d.{e}").specs["mine"] for c, e in ((as_csv, "csv"), (as_json, "json")))
    assert {**first.__class__(key="", name="").provenance, **first.provenance} == second.provenance
    assert (first.memory_bandwidth, first.notes, first.matrix) == (second.memory_bandwidth, second.notes, second.matrix)


def test_the_whole_table_is_a_valid_device_file_but_for_its_provenance() -> None:
    text = Path(device_table.__file__).with_name("devices.csv").read_text(encoding="utf-8")
    found = parse(text.encode(), "devices.csv")
    assert {p.place.rpartition(" ")[2] for p in found.problems} == {"provenance"}


def test_null_makes_a_figure_unknown() -> None:
    spec = book(rows({"key": "H100_SXM", "fp8_tensor_tflops": None})).specs["H100_SXM"]
    assert spec.matrix_peak("fp8") is None and spec.matrix_peak("bf16") == 989.4e12


def test_columns_beyond_the_table() -> None:
    spec = book(
        rows({"key": "H100_SXM", "achievable_fp8_tflops": 1500, "l2_bw_gb_per_s": 5500, "name": "Our H100", "pcie_x16_bidir_gb_per_s": 64})
    ).specs["H100_SXM"]
    assert (spec.achievable("fp8"), spec.achievable("bf16"), spec.l2_bytes_per_s, spec.name) == (1500e12, 794e12, 5500e9, "Our H100")
    assert spec.pcie_bytes_per_s == 32e9
    names = {f.name: f.provenance for f in figures(spec)}
    assert names["l2_bw_gb_per_s"] == names["achievable_fp8_tflops"] == names["pcie_x16_bidir_gb_per_s"] == "user"


def test_rows_may_inherit_from_each_other_in_any_order_and_from_lower_files() -> None:
    first = parse(rows({"key": "b", "inherits": "a", "mem_gb": 70}, {"key": "a", "inherits": "H100_SXM", "mem_gb": 60}), "one.json")
    second = parse(rows({"key": "c", "inherits": "b", "mem_bw_gb_per_s": 1000}, {"key": "a", "mem_gb": 50}), "two.json")
    found = book_of([("user", first), ("logdir", second)])
    assert {k: (s.memory_bytes or 0) / GIB for k, s in found.specs.items()} == {"a": 50, "b": 70, "c": 70}
    assert found.specs["c"].matrix["bf16"] == 989.4e12 and found.notes() == []


def test_the_highest_file_wins() -> None:
    files = [
        (place, parse(rows({"key": place, "inherits": "H100_SXM", "device_names": "NVIDIA H800"}), f"{place}.json"))
        for place in ("user", "logdir", "chosen")
    ]
    for count, key in ((1, "user"), (2, "logdir"), (3, "chosen")):
        spec = device_for(capture(book_of(files[:count]), H800))  # type: ignore[arg-type]
        assert spec is not None and spec.key == key
    # what a reader asks for wins over all files
    spec = device_for(capture(book_of(files), H800), "A100")  # type: ignore[arg-type]
    assert spec is not None and spec.key == "A100_SXM_80"


def test_the_only_row_of_a_chosen_file_applies_whatever_it_is_called() -> None:
    own = book(rows({"key": "H100_SXM", "mem_bw_gb_per_s": 3000, "device_names": "x"}), place="chosen")
    spec = device_for(capture(own, MI300))
    assert spec is not None and (spec.key, spec.memory_bandwidth) == ("H100_SXM", 3000e9)


def test_the_default_of_a_server_holds_for_recordings_of_its_kind() -> None:
    own = book(rows({"key": "cpu_a", "vendor": "cpu", "fp32_vector_tflops": 1}), place="user", default="A100@705MHz")
    gpu, cpu = device_for(capture(own, H100)), device_for(capture(own))
    assert gpu is not None and (gpu.key, gpu.matrix["bf16"]) == ("A100_SXM_80@705MHz", 156e12) and cpu is None
    named = book(rows({"key": "cpu_a", "vendor": "cpu", "fp32_vector_tflops": 1}), place="user", default="cpu_a")
    gpu, cpu = device_for(capture(named, H100)), device_for(capture(named))
    assert gpu is not None and gpu.key == "H100_SXM" and cpu is not None and cpu.key == "cpu_a"
    both = device_for(capture(own, H100), "+sparse")
    assert both is not None and both.key == "A100_SXM_80@705MHz+sparse"


# -- CPUs ------------------------------------------------------------------------------------------------------------

CPU = {"key": "cpu_box", "vendor": "cpu", "provenance": "measured", "fp32_vector_tflops": 0.4, "mem_bw_gb_per_s": 30}


def test_a_cpu_recording_uses_the_row_of_its_machine() -> None:
    own = book(rows({**CPU, "device_names": "box"}), place="user")
    for c in (
        capture(own, host="BOX"),
        capture(own, file="run/box_4711.1700000000000.pt.trace.json.gz"),
        capture(own, file="box_4711.1623143089861.pt.trace.json"),
    ):
        spec = device_for(c)
        assert spec is not None and (spec.key, spec.vendor, spec.method) == ("cpu_box", "cpu", "measured")
        assert spec.provenance["fp32_vector_tflops"] == "measured" and spec.matrix_peak("fp32") == 0.4e12
    for other in (capture(own, host="other"), capture(own, file="other_1.2.pt.trace.json"), capture(own)):
        assert device_for(other) is None and "doctor --measure" in why_no_limits(other)
    assert device_for(capture(own, host="other"), "cpu_box") is not None
    gpu = device_for(capture(own, H100, host="box"))
    assert gpu is not None and gpu.key == "H100_SXM"


def test_the_only_cpu_row_of_a_logdir_applies_to_its_cpu_recordings() -> None:
    own = book(rows(CPU, {"key": "H100_SXM", "mem_gb": 70}))
    spec = device_for(capture(own, host="anything"))
    assert spec is not None and spec.key == "cpu_box"
    gpu = device_for(capture(own, H100))
    assert gpu is not None and gpu.key == "H100_SXM"


def test_a_recording_that_lists_a_gpu_without_activity_gets_no_limits_of_a_cpu() -> None:
    c = capture(book(rows(CPU)), H100, device=False)
    assert device_for(c) is None and "H100" in why_no_limits(c)


def test_hosts_in_file_names() -> None:
    names = {
        "a/b/host-1.local_99.1700000000000.pt.trace.json": "host-1.local", "rank0.1700000000000.pt.trace.json": "", "x.json": "",
        "my_host_12.1700000000000000000.pt.trace.json.gz": "my_host", "rank-34.Jul_15_10_52_41.74364.pt.trace.json": "",
    }  # fmt: skip
    for name, host in names.items():
        assert host_of(capture(DeviceBook(), file=name)) == host


# -- wrong rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "place", "words"),
    [
        ({"key": "a", "bf16_tflops": 1}, "row 1 (a), field bf16_tflops", "did you mean"),
        ({"key": "a", "mem_gb": -3}, "row 1 (a), field mem_gb", "-3 is not a positive number (give GB, as 80)"),
        ({"key": "a", "mem_gb": 0}, "row 1 (a), field mem_gb", "not a positive number"),
        ({"key": "a", "mem_gb": "eighty"}, "row 1 (a), field mem_gb", "eighty is not a positive number"),
        ({"key": "a", "mem_gb": True}, "row 1 (a), field mem_gb", "True is not a value"),
        ({"key": "a", "mem_gb": [80]}, "row 1 (a), field mem_gb", "not a value"),
        ({"key": "a", "mem_gb": 1e300}, "row 1 (a), field mem_gb", "not a positive number"),
        ({"key": "a", "bf16_tensor_tflops": 989.4e12}, "row 1 (a), field bf16_tensor_tflops", "1e12 per second, as 989.4"),
        ({"key": "a", "units_count": 13.5}, "row 1 (a), field units_count", "whole number"),
        ({"key": "a", "pcie_gen": 7}, "row 1 (a), field pcie_gen", "no generation of PCIe"),
        ({"key": "a", "inherits": "H999"}, "row 1 (a)", "inherits H999, which is not known"),
        ({"key": "a b"}, "row 1 (a b), field key", "cannot be a key"),
        ({"key": "a@b"}, "row 1 (a@b), field key", "cannot be a key"),
        ({"key": "a", "provenance": "datasheet"}, "row 1 (a), field provenance", "user or measured"),
        ({"mem_gb": 3}, "row 1", "neither key nor inherits"),
        ({"key": "a", "notes": {"x": 1}}, "row 1 (a), field notes", "not a value"),
        ("text", "row 1", "not an object"),
    ],
)
def test_a_wrong_row_says_where_and_what_to_do_and_hides_no_good_one(row: object, place: str, words: str) -> None:
    own = book(rows(row, {"key": "good", "inherits": "H100_SXM"}))
    assert list(own.specs) == ["good"]
    (problem,) = own.problems
    assert (problem.severity, problem.file, problem.place) == ("error", "sol_devices.json", place)
    assert words in problem.line() and problem.hint


def test_wrong_cells_of_a_csv_say_line_and_column() -> None:
    own = book(b"key,mem_gb,notes\r\ngood,80,\r\nbad,much,\r\nworse,1,a,b\r\n", "d.csv")
    assert list(own.specs) == ["good"]
    assert [p.line() for p in own.problems] == [
        "d.csv, line 3, column mem_gb: much is not a positive number (give GB, as 80)",
        "d.csv, line 4, column 4: 4 cells under 3 columns (quote cells that hold a comma)",
    ]
    (head,) = book(b"key,mem\na,80\n", "d.csv").problems
    assert (head.place, head.hint) == ("line 1, column 2", "did you mean mem_gb?")


def test_keys_and_names_stand_once() -> None:
    own = book(
        rows(
            {"key": "a", "device_names": "X"},
            {"key": "A", "mem_gb": 1},
            {"key": "b", "device_names": "x"},
            {"key": "c", "aliases": "a"},
            {"key": "H100", "mem_gb": 70},
            {"key": "h100_sxm", "mem_gb": 60},
        )
    )
    assert list(own.specs) == ["a", "H100_SXM"] and own.specs["H100_SXM"].memory_bytes == 70 * GIB
    assert [p.place.split()[1] for p in own.problems] == ["2", "3", "4", "6"]


def test_rows_that_inherit_each_other_end() -> None:
    own = book(rows({"key": "a", "inherits": "b"}, {"key": "b", "inherits": "a"}, {"key": "c", "inherits": "c"}))
    assert own.specs == {} and len(own.problems) == 3


@pytest.mark.parametrize(("given", "warned"), [(1978.8, True), (2000, True), (1940, True), (1900, False), (989.4, False), (1100, False)])
def test_a_sparse_figure_by_mistake_is_warned_of_and_taken(given: float, warned: bool) -> None:
    # GIVEN twice the dense 989.4 of the H100, within 2 % (1939.2 to 2018.4)
    own = book(rows({"key": "H100_SXM", "bf16_tensor_tflops": given}))
    assert own.specs["H100_SXM"].matrix["bf16"] == given * 1e12
    assert [p.severity for p in own.problems] == ["warning"] * warned
    if warned:
        assert "twice the dense 989.4" in own.notes()[0] and "+sparse" in own.notes()[0]
    named = book(rows({"key": "new", "device_names": "NVIDIA H100 80GB HBM3", "bf16_tensor_tflops": given}))
    assert bool(named.problems) is warned


# -- hostile files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "file", "words"),
    [
        (b"", "d.json", "not JSON"),
        (b"[{]", "d.json", "line 1, column 3"),
        (b'[\n {"key": "a"},\n {"key" "b"}\n]', "d.json", "line 3"),
        (b"12", "d.json", "neither a list"),
        (b'{"devices": 3}', "d.json", "neither a list"),
        (b"[NaN]", "d.json", "not JSON"),
        (b"[" * 100_000, "d.json", "not JSON"),
        (b'{"a":' * 50_000, "d.json", "not JSON"),
        (b"\xff\xfe\x00", "d.json", "not UTF-8"),
        (b"[" + b" " * LARGEST + b"]", "d.json", "more than 1,000,000 bytes"),
        (b"", "d.csv", "empty"),
        (b'key\n"a', "d.csv", ""),
        (b"key,key\n1,2\n", "d.csv", "stands twice"),
        (b"\x00\x00", "d.csv", ""),
        (b"key\n" + b"x" * 200_000, "d.csv", "line"),
    ],
)
def test_files_that_are_none(content: bytes, file: str, words: str) -> None:
    found = parse(content, file)
    assert words in "\n".join(p.line() for p in found.problems)
    book_of([("logdir", found)])


def test_many_rows_and_many_faults_are_bounded() -> None:
    found = parse(rows(*({"key": f"k{i}", "wrong": 1} for i in range(5000))), "d.json")
    assert len(found.problems) <= 51 and found.rows == ()
    assert len(parse(rows(*({"key": f"k{i}"} for i in range(5000))), "d.json").rows) == 500


def test_text_from_a_file_is_cleaned() -> None:
    own = book(rows({"key": "a", "name": "x", "notes": "password=hunter2hunter2"}, {"key": "b", "\x1b[31m\u202e": 1}))
    assert "hunter2" not in own.specs["a"].notes
    assert "\x1b" not in own.notes()[0] and "\u202e" not in own.notes()[0]


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.text(max_size=5), max_size=3)
names = st.sampled_from([*known_columns(), "x", ""])


@given(st.lists(st.dictionaries(names, values, max_size=6) | values, max_size=6))
def test_any_json_gives_rows_or_problems_and_never_a_figure_that_is_no_number(content: list[object]) -> None:
    found = book(json.dumps(content).encode())
    for spec in found.specs.values():
        assert all(0 < f.value < float("inf") for f in figures(spec))
        device_for(capture(found, H100), spec.key)
    assert len(found.fingerprint) == 16


@given(st.binary(max_size=300), st.sampled_from(["d.json", "d.csv"]))
def test_any_bytes_give_rows_or_problems(content: bytes, file: str) -> None:
    book_of([("chosen", parse(content, file))])
