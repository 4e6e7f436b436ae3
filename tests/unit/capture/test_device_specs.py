"""Limits by key, expression, file, and as this process finds them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tb_sol_plugin.capture.device_specs import PEAK_OF, DeviceSpec, device_spec, find_device
from tb_sol_plugin.capture.operation_registry import DataType
from tb_sol_plugin.devices.catalog import known_keys
from tb_sol_plugin.devices.limits import overridden

MINE = {
    "key": "MY_CPU",
    "vendor": "cpu",
    "fp32_matrix_tflops": 0.2,
    "fp32_vector_tflops": 0.1,
    "mem_bw_gb_per_s": 20,
    "provenance": "measured",
}


@pytest.fixture(autouse=True)
def no_file_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_SOL_DEVICES", "")


def found(choice: str, **given: object) -> DeviceSpec:
    spec = device_spec(choice, **given)  # type: ignore[arg-type]
    assert spec is not None, find_device(choice, **given).reason  # type: ignore[arg-type]
    return spec


def write(path: Path, *rows: dict[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(rows)), encoding="utf-8")
    return str(path)


# -- by key ------------------------------------------------------------------------------------------------------------


def test_dense_peaks_by_key() -> None:
    # H100 SXM, data sheet: 989.4 TFLOP/s BF16 dense (1978.9 sparse), 66.9 FP32, 3.35 TB/s, 80 GB, 132 SM, NVLink 900 GB/s both ways
    h100 = found("H100_SXM")

    assert (h100.name, h100.vendor, h100.num_units, h100.memory_bytes) == ("H100_SXM", "nvidia", 132, 80 << 30)
    assert h100.peak_flops[DataType.BF16] == h100.matrix_peak(DataType.FP16) == 989.4e12
    assert h100.peak_flops[DataType.FP8_E4M3] == h100.peak_flops[DataType.FP8_E5M2] == 1978.9e12
    assert h100.peak_flops[DataType.TF32] == 494.7e12
    assert h100.peak_flops[DataType.FP32] == h100.vector_peak(DataType.BF16) == 66.9e12  # no matrix units for FP32
    assert h100.memory_bandwidth_bytes_per_sec == 3.35e12
    assert h100.link_bytes_per_sec == 450e9
    assert h100.peak_flops_achievable[DataType.BF16] == 794e12 < h100.peak_flops[DataType.BF16]
    assert set(h100.provenance.values()) <= {"derived", "third_party", "unverified"}
    assert (h100.matrix_peak(DataType.INT64), h100.matrix_peak(DataType.FP4_E2M1)) == (None, None)


@pytest.mark.parametrize("choice", ["h100_sxm", "H100_SXM ", "NVIDIA H100 80GB HBM3"])
def test_keys_in_any_case_and_names(choice: str) -> None:
    assert found(choice).name == "H100_SXM"


def test_another_clock_scales_the_peaks_but_not_the_memory() -> None:
    slow, full = found("A100_SXM_80@705MHz"), found("A100_SXM_80")  # half of 1410 MHz
    assert slow.name == "A100_SXM_80@705MHz"
    assert slow.peak_flops[DataType.BF16] == pytest.approx(full.peak_flops[DataType.BF16] / 2)
    assert slow.memory_bandwidth_bytes_per_sec == full.memory_bandwidth_bytes_per_sec


@pytest.mark.parametrize(("choice", "assume"), [("H100_SXM+sparse", False), ("H100_SXM", True), ("H100_SXM+sparse", True)])
def test_sparse_peaks_stand_apart_and_count_only_where_asked_for(choice: str, assume: bool) -> None:
    dense, sparse = found("H100_SXM"), found(choice, assume_sparsity=assume)

    assert dense.peak_flops == sparse.peak_flops
    assert dense.matrix_peak(DataType.BF16) == 989.4e12
    assert sparse.matrix_peak(DataType.BF16) == sparse.peak_flops_sparse[DataType.BF16] == pytest.approx(2 * 989.4e12)
    assert sparse.matrix_peak(DataType.FP32) == 66.9e12
    assert (sparse.name, sparse.assume_sparsity, dense.assume_sparsity) == ("H100_SXM+sparse", True, False)


def test_a_device_without_sparse_peaks_says_so_and_stays_dense() -> None:
    answer = find_device("V100", assume_sparsity=True)
    assert answer.spec is not None and not answer.spec.assume_sparsity
    assert any("no sparse peaks" in note for note in answer.notes)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("H900", "no device 'H900' in the table"),
        ("H100_SXM@fast", "no clock"),
        ("H100_SXM+sparse+sparse", "twice"),
        ("x" * 300, "200 characters"),
    ],
)
def test_what_cannot_be_read_is_a_reason(choice: str, words: str) -> None:
    answer = find_device(choice)
    assert answer.spec is None and words in answer.reason


# -- a CPU -------------------------------------------------------------------------------------------------------------


def test_a_cpu_has_no_limits_until_they_are_measured() -> None:
    for choice in ("auto", "", "cpu", "CPU"):
        answer = find_device(choice, where="cpu")
        assert answer.spec is None and "measure" in answer.reason and socket.gethostname() in answer.reason


@pytest.mark.parametrize("above", [0, 1, 2])
def test_measured_limits_are_found_in_the_logdir_and_above(tmp_path: Path, above: int) -> None:
    # GIVEN a file that names this host, in the logdir or up to two folders above
    logdir = tmp_path / "runs" / "today"
    write([logdir, logdir.parent, tmp_path][above] / "sol_devices.json", {**MINE, "device_names": socket.gethostname()})

    spec = found("auto", logdir=str(logdir), where="cpu")

    assert (spec.name, spec.vendor, spec.method) == ("MY_CPU", "cpu", "measured")
    assert spec.peak_flops[DataType.FP32] == 0.2e12
    assert (spec.vector_peak(DataType.FP32), spec.memory_bandwidth_bytes_per_sec) == (0.1e12, 20e9)


def test_limits_of_another_host_are_not_those_of_this_one(tmp_path: Path) -> None:
    write(tmp_path / "sol_devices.json", {**MINE, "device_names": "another-host"})
    assert device_spec("auto", logdir=str(tmp_path), where="cpu") is None
    write(tmp_path / "sol_devices.json", MINE)
    assert found("auto", logdir=str(tmp_path), where="cpu").name == "MY_CPU"


def test_the_users_device_file_names_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_SOL_DEVICES", write(tmp_path / "mine.json", {**MINE, "device_names": socket.gethostname()}))
    assert found("auto", where="cpu").name == "MY_CPU"
    monkeypatch.setenv("TB_SOL_DEVICES", str(tmp_path / "gone.json"))
    assert device_spec("auto", where="cpu") is None


# -- device files ------------------------------------------------------------------------------------------------------


def test_a_chosen_file_of_one_row_gives_that_row(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.json", {"key": "LAB_H100", "inherits": "H100_SXM", "bf16_tensor_tflops": 900})
    spec = found(path)
    assert (spec.name, spec.peak_flops[DataType.BF16], spec.memory_bandwidth_bytes_per_sec) == ("LAB_H100", 900e12, 3.35e12)


def test_a_row_of_a_chosen_file_is_named_after_a_number_sign(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.json", {"key": "ONE", "inherits": "H100_SXM"}, {"key": "TWO", "inherits": "A100_SXM_80"})
    assert found(f"{path}#TWO").peak_flops[DataType.BF16] == 312e12
    assert found(f"{path}#TWO@705MHz").name == "TWO@705MHz"
    answer = find_device(path, where="cpu")
    assert answer.spec is None and "mine.json#ONE" in answer.reason


def test_a_device_file_may_be_csv(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("key,vendor,bf16_tensor_tflops,mem_bw_gb_per_s\nNEW,nvidia,1500,4000\n", encoding="utf-8")
    assert found(str(path)).peak_flops == {DataType.BF16: 1500e12}


@pytest.mark.parametrize("content", ["", "[{", '[{"key": "A", "bf16_tensor_tflops": -1}]', "[]"])
def test_broken_files_are_a_reason(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(content, encoding="utf-8")
    answer = find_device(str(path))
    assert answer.spec is None and "mine.json" in answer.reason


def test_a_file_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    answer = find_device(str(tmp_path / "gone.json"))
    assert answer.spec is None and "cannot be read" in answer.reason


def test_a_bad_row_beside_a_good_one_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.json", {"key": "GOOD", "inherits": "H100_SXM"}, {"key": "BAD", "bf16_tensor_tflops": "fast"})
    answer = find_device(path)
    assert answer.spec is not None and answer.spec.name == "GOOD"
    assert any("BAD" in note for note in answer.notes)


# -- a GPU -------------------------------------------------------------------------------------------------------------


def with_gpu(
    monkeypatch: pytest.MonkeyPatch, name: str, gigabytes: float, units: int, capability: tuple[int, int], hip: str | None = None
) -> None:
    torch = pytest.importorskip("torch")
    properties = SimpleNamespace(
        name=name, total_memory=int(gigabytes * 2**30), multi_processor_count=units, major=capability[0], minor=capability[1], warp_size=32
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.version, "hip", hip)


@pytest.mark.parametrize(
    ("name", "gigabytes", "units", "capability", "hip", "key"),
    [
        ("NVIDIA H100 80GB HBM3", 79.1, 132, (9, 0), None, "H100_SXM"),
        ("NVIDIA H200", 139.8, 132, (9, 0), None, "H200"),
        ("NVIDIA A100-SXM4-40GB", 39.4, 108, (8, 0), None, "A100_SXM_40"),
        ("AMD Instinct MI300X", 191.5, 304, (9, 4), "6.2", "MI300X"),
    ],
)
def test_the_gpu_in_use(
    monkeypatch: pytest.MonkeyPatch, name: str, gigabytes: float, units: int, capability: tuple[int, int], hip: str | None, key: str
) -> None:
    with_gpu(monkeypatch, name, gigabytes, units, capability, hip)
    assert found("auto").name == found("auto", where="cuda").name == key
    assert device_spec("auto", where="cpu") is None  # a model on the CPU of the same machine


def test_the_gpu_in_use_at_another_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, "NVIDIA H100 80GB HBM3", 79.1, 132, (9, 0))
    assert found("auto@915MHz").peak_flops[DataType.BF16] == pytest.approx(989.4e12 / 2)  # boost 1830 MHz


def test_a_gpu_that_nobody_knows_has_derived_peaks_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, "NVIDIA X9", 64.0, 100, (9, 0))
    spec = found("auto")
    # 100 SM x 4096 FLOP per clock x 1620 MHz, the lowest boost of the generation; bandwidth unknown
    assert spec.peak_flops[DataType.BF16] == pytest.approx(100 * 4096 * 1620e6)
    assert (spec.method, spec.memory_bandwidth_bytes_per_sec) == ("derived", None)
    with_gpu(monkeypatch, "Strange", 64.0, 100, (3, 0))
    answer = find_device("auto")
    assert answer.spec is None and "Strange" in answer.reason


def test_a_device_of_another_type_has_a_reason() -> None:
    answer = find_device("auto", where="xpu")
    assert answer.spec is None and "xpu" in answer.reason


# -- torch alone -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["pandas", "numpy"])
def test_limits_are_found_without_numpy_and_pandas(missing: str) -> None:
    # GIVEN a training environment without one of them WHEN a device is named THEN its limits are there: the table needs none
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from tb_sol_plugin.capture.device_specs import find_device\n"
        "print(find_device('H100_SXM').spec.name, {'numpy', 'pandas'} & {name for name, it in sys.modules.items() if it})"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout == "H100_SXM set()\n"
    )


def test_without_the_packages_of_the_table_there_are_no_limits_and_no_error() -> None:
    # GIVEN no msgspec WHEN a device is named THEN a reason is given, and limits written by hand work
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from tb_sol_plugin.capture.device_specs import DeviceSpec, find_device\n"
        "from tb_sol_plugin.capture.operation_registry import DataType\n"
        "found = find_device('H100_SXM')\n"
        "print(found.spec, found.reason, DeviceSpec('MINE', 1e12, {DataType.BF16: 1e14}).matrix_peak(DataType.BF16))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert out.startswith("None ") and "msgspec" in out and "not installed" in out and out.endswith(" 100000000000000.0\n")


@pytest.mark.parametrize("key", known_keys())
def test_every_device_answers_as_its_row_of_the_table(key: str) -> None:
    # GIVEN a row WHEN its limits are asked for by the recorder's names THEN each figure is what the row answers
    row, view = overridden(key), found(key)
    for dtype, name in PEAK_OF.items():
        assert (view.matrix_peak(dtype), view.vector_peak(dtype)) == (row.matrix_peak(name), row.vector_peak(name))
        assert view.is_unverified(dtype) == row.is_unverified(name)
        assert view.peak_flops_achievable.get(dtype) == row.achievable(name)
    assert list(view.peak_flops_vector) == [d for d in (DataType.FP64, DataType.FP32) if d in view.peak_flops_vector]
    assert (view.name, view.title, view.memory_bandwidth_bytes_per_sec) == (row.key, row.name, row.memory_bandwidth)


def test_a_wrong_key_is_answered_with_near_ones() -> None:
    # GIVEN a key with a slip of the pen, and one like none WHEN limits are asked THEN one short sentence helps, nothing raises
    near = find_device("h100_sxn")
    assert near.spec is None and near.reason.startswith("no device 'h100_sxn' in the table; near it: H100_SXM")
    assert find_device("zzz").reason == "no device 'zzz' in the table; keys are like H100_SXM, A100_SXM_80, MI300X, L4"


def test_a_device_file_that_is_not_there_is_named_with_its_folder(tmp_path: Path) -> None:
    # GIVEN the path of no file WHEN limits are asked THEN the reason says where was looked
    path = tmp_path / "none.json"
    assert find_device(str(path)).reason.startswith(f"{path}: cannot be read")
