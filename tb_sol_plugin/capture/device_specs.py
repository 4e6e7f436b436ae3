"""Finds the limits of the device that a training run uses: those of `tb_sol_plugin.devices`, under the recorder's names.

`device_spec("auto")` reads the package's table of devices, loaded on first use. Without it, or for a device nobody knows, the answer is
None and `find_device` says why.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.capture.operation_registry import DataType
from tb_sol_plugin.roofline import vector_dtype

if TYPE_CHECKING:
    from tb_sol_plugin.devices.spec import DeviceBook, DeviceProps
    from tb_sol_plugin.devices.spec import DeviceSpec as Limits

PEAK_OF: Final = {
    DataType.FP64: "fp64", DataType.FP32: "fp32", DataType.TF32: "tf32", DataType.FP16: "fp16", DataType.BF16: "bf16",
    DataType.FP8_E4M3: "fp8", DataType.FP8_E5M2: "fp8", DataType.FP4_E2M1: "fp4", DataType.INT8: "int8",
}  # fmt: skip
"""Types with a peak, and what the table of devices calls it."""
VECTOR_TYPE: Final = {dtype: DataType(vector_dtype(dtype.value)) for dtype in DataType}
"""The type whose vector peak applies to a type."""


@dataclass(frozen=True)
class DeviceSpec:
    """Limits of one device as the recorder's interface names them: the figures of a `devices.spec.DeviceSpec` by `DataType`.

    FLOP/s and bytes/s, decimal; what is missing or None is unknown. It follows no rules of its own: `of` asks the one spec, and the
    figures may also be given by hand, which needs no other package.

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
        """Returns FLOP/s of products, convolutions and attention in a type; None where there is no limit."""
        found = self.peak_flops_sparse.get(dtype) if self.assume_sparsity else None
        return found if found is not None else self.peak_flops.get(dtype)

    def vector_peak(self, dtype: DataType) -> float | None:
        """Returns FLOP/s of everything else that computes."""
        return self.peak_flops_vector.get(VECTOR_TYPE[dtype])

    def is_unverified(self, dtype: DataType, *, vector: bool = False) -> bool:
        """Returns whether the peak of a type is not confirmed. vector: the peak of everything but products, convolutions and attention."""
        return VECTOR_TYPE[dtype] in self.unverified_vector if vector else dtype in self.unverified

    @classmethod
    def of(cls, limits: Limits, *, sparse: Limits | None = None, assume_sparsity: bool = False) -> DeviceSpec:
        """Makes the view of some limits. sparse: the same device with 2:4 sparse peaks, None where it has none."""
        dense, thin = ({d: of.matrix_peak(name) for d, name in PEAK_OF.items()} if of else {} for of in (limits, sparse))
        return cls(
            name=limits.key + "+sparse" * assume_sparsity,
            memory_bandwidth_bytes_per_sec=limits.memory_bandwidth,
            peak_flops=_known(dense),
            peak_flops_sparse=_known({d: peak for d, peak in thin.items() if peak != dense[d]}),
            peak_flops_vector=_known({d: limits.vector_peak(PEAK_OF[d]) for d in (DataType.FP64, DataType.FP32)}),
            peak_flops_achievable=_known({d: limits.achievable(name) for d, name in PEAK_OF.items()}),
            memory_bytes=limits.memory_bytes,
            l2_bytes=limits.l2_bytes,
            link_bytes_per_sec=limits.link_bytes_per_s,
            pcie_bytes_per_sec=limits.pcie_bytes_per_s,
            num_units=limits.units,
            provenance=dict(limits.provenance),
            vendor=limits.vendor,
            title=limits.name,
            method=limits.method,
            notes=limits.notes,
            assume_sparsity=assume_sparsity,
            unverified=frozenset(d for d, name in PEAK_OF.items() if limits.is_unverified(name)),
            unverified_vector=frozenset(d for d in (DataType.FP64, DataType.FP32) if limits.is_unverified(PEAK_OF[d], vector=True)),
        )


def _known(peaks: Mapping[DataType, float | None]) -> dict[DataType, float]:
    return {dtype: peak for dtype, peak in peaks.items() if peak is not None}


@dataclass(frozen=True)
class Found:
    """Has the answer of `find_device`: the limits, or one sentence that says why there are none. notes: what was wrong in device files."""

    spec: DeviceSpec | None
    reason: str = ""
    notes: tuple[str, ...] = ()


def device_spec(choice: str = "auto", *, assume_sparsity: bool = False, logdir: str = "", where: str = "") -> DeviceSpec | None:
    """Returns the limits of `find_device`, None where there are none."""
    return find_device(choice, assume_sparsity=assume_sparsity, logdir=logdir, where=where).spec


def preload() -> None:
    """Load the code of the table of devices, where it is installed, so that `find_device` is quick."""
    with contextlib.suppress(ImportError):
        import tb_sol_plugin.devices.expression
        import tb_sol_plugin.devices.files
        import tb_sol_plugin.devices.limits
        import tb_sol_plugin.devices.match
        import tb_sol_plugin.devices.places  # noqa: F401


def find_device(choice: str = "auto", *, assume_sparsity: bool = False, logdir: str = "", where: str = "") -> Found:
    """Finds limits by choice. Never raises.

    choice: `auto`, a key, alias or name of the table (`H100_SXM`, `A100_SXM_80@1410MHz`, `H100_SXM+sparse`), the path of a device
    file, or `PATH#KEY`. logdir: device files in it count too. where: type of the device that the model is on (`cuda`, `cpu`);
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
        reason = reason.replace(os.path.basename(path), path, 1)  # a name alone does not say where
    else:
        row, reason = _detected(book, where)
    if row is None:
        return Found(None, reason, notes)
    requested = assume_sparsity or wanted.sparse
    try:
        row = apply(row, msgspec.structs.replace(wanted, sparse=False))
    except BadQuery as error:
        notes = (*notes, str(error))
    try:
        thin = sparse(row)
    except BadQuery as error:
        thin, notes = None, (*notes, str(error)) if requested else notes
    return Found(DeviceSpec.of(row, sparse=thin, assume_sparsity=requested and thin is not None), "", notes)


def _near(key: str, keys: Sequence[str]) -> str:
    """Suggests what somebody may have meant."""
    import difflib

    by_low = {k.lower(): k for k in keys}
    near = [by_low[k] for k in difflib.get_close_matches(key.lower(), list(by_low), 4, 0.5)]
    return f"near it: {', '.join(near)}" if near else "keys are like H100_SXM, A100_SXM_80, MI300X, L4"


def _split(choice: str) -> tuple[str, str]:
    """Splits a choice into (path, expression): `auto`, an expression, `PATH` or `PATH#KEY`."""
    path, _, expression = choice.partition("#")
    if path.lower().endswith((".json", ".csv")):
        return os.path.abspath(os.path.expanduser(path)), expression
    return "", re.sub(r"^(auto|cpu)(?=$|[@+\s])", "", choice, flags=re.IGNORECASE)


# -- device files ------------------------------------------------------------------------------------------------------


def _book(chosen: str, logdir: str) -> DeviceBook:
    """Reads the rows of the user's own file, of the one adjacent to the recordings, and of the chosen one."""
    from tb_sol_plugin.devices.files import LARGEST, DeviceFile, book_of, parse
    from tb_sol_plugin.devices.spec import Place, Problem

    found: list[tuple[Place, str]] = [("user", p) for p in _own_file()] + [("logdir", p) for p in _adjacent_file(logdir)]
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


def _own_file() -> list[str]:
    from tb_sol_plugin.devices.places import user_file

    try:
        path = user_file()
    except ImportError:  # platformdirs, which knows the folder
        return []
    return [path] if os.path.isfile(path) else []


def _adjacent_file(logdir: str) -> list[str]:
    """Finds the first device file in the logdir or the two folders above, where the page looks for it too."""
    from tb_sol_plugin.devices.places import NAMES, folders_above

    if not logdir or "://" in logdir:
        return []
    paths = (os.path.join(folder, name) for folder in folders_above(logdir) for name in NAMES)
    return [path for path in paths if os.path.isfile(path)][:1]


def _of_file(path: str, book: DeviceBook, where: str) -> tuple[Limits | None, str]:
    """Chooses a row of a chosen file: one that is for this device, else the only one."""
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


def _detected(book: DeviceBook, where: str) -> tuple[Limits | None, str]:
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
    """Reads (properties, vendor) of the current GPU as a profiler trace would record them; None without one."""
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
