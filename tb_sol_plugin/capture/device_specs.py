"""The limits of the device that a training run uses, as the capture library and its reports need them.

`device_spec("auto")` reads the package's table of devices (loaded on first use). Without it, or for a device nobody knows,
the answer is None and `find_device` says why.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.capture.operation_registry import DataType

if TYPE_CHECKING:
    from tb_sol_plugin.devices.spec import DeviceBook, DeviceProps
    from tb_sol_plugin.devices.spec import DeviceSpec as Row

PEAK_OF: Final = {
    DataType.FP64: "fp64", DataType.FP32: "fp32", DataType.TF32: "tf32", DataType.FP16: "fp16", DataType.BF16: "bf16",
    DataType.FP8_E4M3: "fp8", DataType.FP8_E5M2: "fp8", DataType.FP4_E2M1: "fp4", DataType.INT8: "int8",
}  # fmt: skip
"""Types with a peak, and what the table of devices calls it."""
ENVIRONMENT: Final = "TB_SOL_DEVICES"
NAMES: Final = ("sol_devices.json", "sol_devices.csv")
"""A device file of these names beside the recordings holds for them, as it does on the page."""


@dataclass(frozen=True)
class DeviceSpec:
    """Limits of one device. FLOP/s and bytes/s, decimal; what is missing or None is unknown.

    name: key of the table, with `@1410MHz` or `+sparse` where asked for. peak_flops: dense matrix peaks; a type without matrix
    units has its vector peak. peak_flops_sparse: with 2:4 sparsity, used only with assume_sparsity. peak_flops_vector: FP64 and
    FP32; every other type computes at the FP32 rate. peak_flops_achievable: what a good matrix product reaches.
    link_bytes_per_sec, pcie_bytes_per_sec: one direction. provenance: column of the table to derived, third_party, unverified,
    measured, user. unverified: types whose peak is not confirmed (`unverified_vector`: of the vector peaks).
    method: how it was found (exact, token, memory, units, derived, override, file, measured).
    """

    name: str
    memory_bandwidth_bytes_per_sec: float | None
    peak_flops: dict[DataType, float]
    peak_flops_sparse: dict[DataType, float] = field(default_factory=dict)
    peak_flops_vector: dict[DataType, float] = field(default_factory=dict)
    peak_flops_achievable: dict[DataType, float] = field(default_factory=dict)
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    link_bytes_per_sec: float | None = None
    pcie_bytes_per_sec: float | None = None
    num_units: int | None = None
    provenance: dict[str, str] = field(default_factory=dict)
    vendor: str = ""
    title: str = ""
    method: str = "table"
    notes: str = ""
    assume_sparsity: bool = False
    unverified: frozenset[DataType] = frozenset()
    unverified_vector: frozenset[DataType] = frozenset()

    def matrix_peak(self, dtype: DataType) -> float | None:
        """FLOP/s of products, convolutions and attention in a type; None where there is no limit."""
        found = self.peak_flops_sparse.get(dtype) if self.assume_sparsity else None
        return found if found is not None else self.peak_flops.get(dtype)

    def vector_peak(self, dtype: DataType) -> float | None:
        """FLOP/s of everything else that computes."""
        return self.peak_flops_vector.get(vector_type(dtype))


def vector_type(dtype: DataType) -> DataType:
    """The type whose vector peak holds: FP64 has its own, all else computes at the rate of FP32."""
    return DataType.FP64 if dtype is DataType.FP64 else DataType.FP32


@dataclass(frozen=True)
class Found:
    """An answer of `find_device`: the limits, or one sentence that says why there are none. notes: what was wrong in device files."""

    spec: DeviceSpec | None
    reason: str = ""
    notes: tuple[str, ...] = ()


def device_spec(choice: str = "auto", *, assume_sparsity: bool = False, logdir: str = "", where: str = "") -> DeviceSpec | None:
    """The limits of `find_device`, None where there are none."""
    return find_device(choice, assume_sparsity=assume_sparsity, logdir=logdir, where=where).spec


def preload() -> None:
    """Load the code of the table of devices, where it is installed, so that `find_device` is quick."""
    with contextlib.suppress(ImportError):
        import tb_sol_plugin.devices.expression
        import tb_sol_plugin.devices.files
        import tb_sol_plugin.devices.limits
        import tb_sol_plugin.devices.match  # noqa: F401


def find_device(choice: str = "auto", *, assume_sparsity: bool = False, logdir: str = "", where: str = "") -> Found:
    """Limits by choice. Never raises.

    choice: `auto`, a key, alias or name of the table (`H100_SXM`, `A100_SXM_80@1410MHz`, `H100_SXM+sparse`), the path of a device
    file, or `PATH#KEY`. logdir: device files beside it count too. where: type of the device that the model is on (`cuda`, `cpu`);
    "" takes the GPU where there is one. A CPU has limits only where a device file holds measured ones for this host.
    """
    try:
        return _find(choice.strip() or "auto", assume_sparsity, logdir, where)
    except ImportError as error:
        return Found(None, f"the table of devices needs {error.name or 'a package'}, which is not installed")
    except Exception as error:  # limits are for the report only: training goes on without them
        hint = getattr(error, "hint", "")
        return Found(None, f"{error}{'; ' + hint if hint else ''}"[:300] or type(error).__name__)


def _find(choice: str, assume_sparsity: bool, logdir: str, where: str) -> Found:
    import msgspec

    from tb_sol_plugin.devices.expression import apply, parse, sparse
    from tb_sol_plugin.devices.limits import choices, overridden
    from tb_sol_plugin.errors import BadQuery

    path, expression = _split(choice)
    where = "cpu" if choice.lower() == "cpu" else where
    book = _book(path, logdir)
    notes = tuple(book.notes())
    wanted = parse(expression)
    row, reason = None, ""
    if wanted.base:
        try:
            row = overridden(wanted.base, book)
        except BadQuery as error:
            return Found(None, f"{error.message}; {_near(wanted.base, choices(book))}", notes)
    elif path:
        row, reason = _of_file(path, book, where)
        reason = reason.replace(os.path.basename(path), path, 1)  # here, a name alone would not say where was looked
    else:
        row, reason = _detected(book, where)
    if row is None:
        return Found(None, reason, notes)
    asked = assume_sparsity or wanted.sparse
    try:
        row = apply(row, msgspec.structs.replace(wanted, sparse=False))
    except BadQuery as error:
        notes = (*notes, str(error))
    try:
        thin = sparse(row)
    except BadQuery as error:
        thin, notes = None, (*notes, str(error)) if asked else notes
    return Found(_converted(row, thin, asked and thin is not None), "", notes)


def _near(key: str, keys: Sequence[str]) -> str:
    """What somebody may have meant."""
    import difflib

    by_low = {k.lower(): k for k in keys}
    near = [by_low[k] for k in difflib.get_close_matches(key.lower(), list(by_low), 4, 0.5)]
    return f"near it: {', '.join(near)}" if near else "keys are like H100_SXM, A100_SXM_80, MI300X, L4"


def _split(choice: str) -> tuple[str, str]:
    """(path, expression) of `auto`, an expression, `PATH` or `PATH#KEY`."""
    path, _, expression = choice.partition("#")
    if path.lower().endswith((".json", ".csv")):
        return os.path.abspath(os.path.expanduser(path)), expression
    return "", re.sub(r"^(auto|cpu)(?=$|[@+\s])", "", choice, flags=re.IGNORECASE)


# -- device files ------------------------------------------------------------------------------------------------------


def _book(chosen: str, logdir: str) -> DeviceBook:
    """Rows of the user's own file, of the one beside the recordings, and of the chosen one."""
    from tb_sol_plugin.devices.files import LARGEST, DeviceFile, book_of, parse
    from tb_sol_plugin.devices.spec import Place, Problem

    found: list[tuple[Place, str]] = [("user", p) for p in _own_files()] + [("logdir", p) for p in _beside(logdir)]
    if chosen:
        found.append(("chosen", chosen))
    read: list[tuple[Place, DeviceFile]] = []
    for place, path in found:
        name = os.path.basename(path)
        try:
            with open(path, "rb") as stream:
                read.append((place, parse(stream.read(LARGEST + 1), name)))
        except OSError as error:
            why = f"cannot be read: {error.strerror or type(error).__name__}"
            read.append((place, DeviceFile(name, (), (Problem("error", name, "", why, "check its path and permissions"),))))
    return book_of(read)


def _own_files() -> Iterator[str]:
    given = os.environ.get(ENVIRONMENT)
    if given is not None:
        if given and os.path.isfile(os.path.expanduser(given)):
            yield os.path.abspath(os.path.expanduser(given))
        return
    try:
        import platformdirs
    except ImportError:
        return
    folder = platformdirs.user_config_dir("tb-sol", appauthor=False)
    yield from [p for p in (os.path.join(folder, n) for n in ("devices.json", "devices.csv")) if os.path.isfile(p)][:1]


def _beside(logdir: str) -> Iterator[str]:
    """The first device file in the logdir or the two folders above, where the page looks for it too."""
    if not logdir or "://" in logdir:
        return
    folder = os.path.abspath(os.path.expanduser(logdir))
    for _ in range(3):
        for name in NAMES:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path
                return
        folder = os.path.dirname(folder)


def _of_file(path: str, book: DeviceBook, where: str) -> tuple[Row | None, str]:
    """The row of a chosen file: one that holds for this device, else the only one it has."""
    layer = book.layers[-1]
    if not layer.rows:
        return None, layer.problems[0].line() if layer.problems else f"{os.path.basename(path)} holds no rows"
    row, reason = _detected(book, where)
    if (row is None or row.key not in layer.rows) and len(layer.rows) == 1:
        return book.specs[layer.rows[0]], ""
    if row is None:
        return None, f"{reason}; name a row: {os.path.basename(path)}#{layer.rows[0]}"
    return row, ""


# -- the device of this process ----------------------------------------------------------------------------------------


def _detected(book: DeviceBook, where: str) -> tuple[Row | None, str]:
    props, vendor = (None, "") if where == "cpu" else _gpu()
    if props is None:
        from tb_sol_plugin.devices.limits import cpu_limits

        if where not in ("", "cpu"):
            return None, f"the device of type {where} does not tell its name: choose its limits"
        host = socket.gethostname()
        return cpu_limits(book, host), f"a CPU has no fixed peak; measure {host} once with tb-sol doctor --measure, or name a device"
    from tb_sol_plugin.devices.match import match

    return match(props, vendor=vendor, book=book), f"{props.name or 'the device'} is not in the table of devices: choose its limits"


def _gpu() -> tuple[DeviceProps | None, str]:
    """(properties, vendor) of the current GPU as a profiler trace would record them; None without one."""
    import torch

    from tb_sol_plugin.devices.spec import DeviceProps

    if not torch.cuda.is_available():
        return None, ""
    at = torch.cuda.current_device()
    found = torch.cuda.get_device_properties(at)
    props = DeviceProps(
        id=at,
        name=found.name,
        memory_bytes=int(found.total_memory),
        compute_capability=f"{found.major}.{found.minor}",
        units=int(found.multi_processor_count),
        warp_size=int(getattr(found, "warp_size", 0)),
    )
    return props, "amd" if getattr(torch.version, "hip", None) else "nvidia"


def _converted(row: Row, thin: Row | None, assume_sparsity: bool) -> DeviceSpec:
    def peaks(of: Row) -> dict[DataType, float]:
        return {dtype: peak for dtype, name in PEAK_OF.items() if (peak := of.matrix_peak(name)) is not None}

    dense = peaks(row)
    return DeviceSpec(
        name=row.key + "+sparse" * assume_sparsity,
        memory_bandwidth_bytes_per_sec=row.memory_bandwidth,
        peak_flops=dense,
        peak_flops_sparse={} if thin is None else {d: p for d, p in peaks(thin).items() if p != dense.get(d)},
        peak_flops_vector={d: p for d in (DataType.FP64, DataType.FP32) if (p := row.vector_peak(PEAK_OF[d])) is not None},
        peak_flops_achievable={d: p for d, name in PEAK_OF.items() if (p := row.achievable(name)) is not None},
        memory_bytes=row.memory_bytes,
        l2_bytes=row.l2_bytes,
        link_bytes_per_sec=row.link_bytes_per_s,
        pcie_bytes_per_sec=row.pcie_bytes_per_s,
        num_units=row.units,
        provenance=dict(row.provenance),
        vendor=row.vendor,
        title=row.name,
        method=row.method,
        notes=row.notes,
        assume_sparsity=assume_sparsity,
        unverified=frozenset(d for d, name in PEAK_OF.items() if row.is_unverified(name)),
        unverified_vector=frozenset(d for d in (DataType.FP64, DataType.FP32) if row.is_unverified(PEAK_OF[d], vector=True)),
    )
