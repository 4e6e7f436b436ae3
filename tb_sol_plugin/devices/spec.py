"""Defines the peaks of one device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.roofline import vector_dtype

MATRIX_COLUMNS: Final = {
    "fp64": "fp64_tensor_tflops", "fp32": "fp32_matrix_tflops", "tf32": "tf32_tensor_tflops", "fp16": "fp16_tensor_tflops",
    "bf16": "bf16_tensor_tflops", "fp8": "fp8_tensor_tflops", "fp4": "fp4_tensor_tflops", "int8": "int8_tops",
}  # fmt: skip
"""dtype to the column of its matrix-unit peak (GEMM, convolution, attention)."""
VECTOR_COLUMNS: Final = {"fp64": "fp64_vector_tflops", "fp32": "fp32_vector_tflops"}
"""dtype to the column of its vector peak (elementwise, norms, reductions)."""
ACHIEVABLE_COLUMNS: Final = {dtype: f"achievable_{dtype}_tflops" for dtype in MATRIX_COLUMNS}
"""dtype to the column of the rate a good GEMM reaches; the package table has the one of bf16."""

PCIE_BYTES_PER_S: Final = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}
"""Usable peak of an x16 link in one direction, by generation."""
PCIE_LANES: Final = (1, 2, 4, 8, 16)
XGMI_LINKS: Final = {"cdna3": 7, "cdna4": 7}
"""Links of a board, one to each other board of its node; a copy to one peer uses one of them."""


class DeviceSpec(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Ceilings of one device as a framework sees it.

    matrix, vector: FLOP/s by dtype (fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8). memory_bandwidth, l2_bytes_per_s: bytes/s.
    link_bytes_per_s, c2c_bytes_per_s, pcie_bytes_per_s: one direction. c2c: the link between GPU and CPU of one package, which copies
    between them use in place of PCIe. pcie_gen, pcie_lanes: what pcie_bytes_per_s follows from; 0 where it was given as a rate.
    achievable_bf16, achievable_rates: FLOP/s a good GEMM reaches (second ceiling). boost_tensor_mhz, boost_vector_mhz: the
    clocks that the peaks hold at. sparse: matrix peaks with 2:4 sparsity, asked for by a reader; dense otherwise.
    provenance: column of the table to derived, third_party, unverified, measured or user. unverified: columns not confirmed.
    method: how the spec was found (override, exact, token, memory, units, derived, table, file: a device file names it).
    source: where the row stands: "table", or the name of a device file. sources: letters of the table's list of sources.
    """

    key: str
    name: str
    vendor: str = ""
    arch: str = ""
    compute_capability: str = ""
    unit_kind: str = ""
    units: int | None = None
    boost_vector_mhz: float | None = None
    boost_tensor_mhz: float | None = None
    matrix: dict[str, float] = {}
    vector: dict[str, float] = {}
    memory_bandwidth: float | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    l2_bytes_per_s: float | None = None
    link_kind: str = ""
    link_bytes_per_s: float | None = None
    c2c_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    pcie_gen: int = 0
    pcie_lanes: int = 0
    achievable_bf16: float | None = None
    achievable_rates: dict[str, float] = {}
    sparse_factor: float | None = None
    sparse: bool = False
    unsupported: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    provenance: dict[str, str] = {}
    sources: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    method: str = "table"
    source: str = "table"
    notes: str = ""

    @property
    def density(self) -> str:
        """What the matrix peaks assume of the operands: `dense`, or `2:4 sparse`."""
        return "2:4 sparse" if self.sparse else "dense"

    @property
    def peer_bytes_per_s(self) -> float | None:
        """Bytes/s of a copy to one other device: over xGMI one link of several, else all of them."""
        links = XGMI_LINKS.get(self.arch, 1) if self.link_kind == "xgmi" else 1
        return self.link_bytes_per_s / links if self.link_bytes_per_s is not None else None

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything here: equal for equal content, whichever object holds it."""
        content = json.dumps(msgspec.to_builtins(self), sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    def matrix_peak(self, dtype: str) -> float | None:
        """Returns FLOP/s of the matrix class in `dtype`; None where there is no ceiling.

        Without a matrix rate FP64 and FP32 run on the vector units, and TF32 as FP32.
        """
        if dtype in self.matrix:
            return self.matrix[dtype]
        if dtype == "tf32":
            return self.matrix_peak("fp32")
        return self.vector.get(dtype)

    def vector_peak(self, dtype: str) -> float | None:
        """Returns FLOP/s of the vector class: FP64 has its own rate, every other dtype counts at the FP32 rate."""
        return self.vector.get(vector_dtype(dtype))

    def achievable(self, dtype: str) -> float | None:
        """Returns FLOP/s that a good GEMM in `dtype` reaches; None where nobody measured it.

        BF16 and FP16 run at one rate on every matrix unit of the table, so the BF16 figure stands for both.
        """
        if dtype in self.achievable_rates:
            return self.achievable_rates[dtype]
        same = dtype == "bf16" or (dtype == "fp16" and self.matrix.get("fp16") == self.matrix.get("bf16"))
        return self.achievable_bf16 if same else None

    def is_unverified(self, dtype: str, *, vector: bool = False) -> bool:
        """Whether the peak that `matrix_peak` or `vector_peak` gives for `dtype` is not confirmed."""
        column = (VECTOR_COLUMNS if vector or dtype not in self.matrix else MATRIX_COLUMNS).get(dtype, "")
        return column in self.unverified


# -- Device limits that users add to the package's table -------------------------------------------------------------


Place: TypeAlias = Literal["user", "logdir", "chosen"]
"""user: the reader's own file; logdir: a file beside the recordings; chosen: named on the command line."""


class Problem(msgspec.Struct, frozen=True):
    """What is wrong in a device file. severity: an error keeps a row out, a warning does not. place: row and field, or line and column."""

    severity: Literal["error", "warning"]
    file: str
    place: str
    message: str
    hint: str = ""

    def line(self) -> str:
        """Returns one line for a page or a terminal."""
        where = f"{self.file}, {self.place}" if self.place else self.file
        return f"{where}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Layer(msgspec.Struct, frozen=True):
    """What one device file says. file: its name, never its folder.

    named: lower-case device name (or, for a CPU, host name) to the key of the row that names it.
    every_gpu, every_cpu: key of the only row of its kind, which applies to all recordings of that kind; "" without.
    """

    file: str
    place: Place
    rows: tuple[str, ...] = ()
    named: dict[str, str] = {}
    every_gpu: str = ""
    every_cpu: str = ""
    problems: tuple[Problem, ...] = ()


class DeviceBook(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Rows of device files over the package's table. Empty by default.

    specs: by key, later files over earlier ones; a key of the table stands for that row with some figures changed.
    layers: the files, lowest first. default: the expression used where a query names no limits ("" as recorded).
    """

    specs: dict[str, DeviceSpec] = {}
    layers: tuple[Layer, ...] = ()
    default: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything here; "" for an empty book."""
        if not self.layers and not self.default:
            return ""
        content = json.dumps(msgspec.to_builtins(self), sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """Lower-case key or alias to key."""
        out: dict[str, str] = {}
        for key, spec in self.specs.items():
            for name in (key, *spec.aliases):
                out[name.lower()] = key
        return out

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong in the files, lowest file first."""
        return tuple(problem for layer in self.layers for problem in layer.problems)

    def notes(self) -> list[str]:
        """Returns the problems in words."""
        return [problem.line() for problem in self.problems]


EMPTY: DeviceBook = DeviceBook()


class DeviceProps(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of `deviceProperties`. Zero or "" where the recorder left it out."""

    id: int
    name: str = ""
    memory_bytes: int = 0
    compute_capability: str = ""
    units: int = 0
    warp_size: int = 0
    max_threads_per_unit: int = 0
    registers_per_block: int = 0
    shared_memory_per_block: int = 0
