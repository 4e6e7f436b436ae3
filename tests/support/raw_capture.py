"""A SOL capture file read as plain JSON, and the work of its operators written once more from first principles: no product code here.

Times in ns, rates per second. Bytes: each operand read once, each result written once, a dimension of stride 0 one element wide.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from tests.support.packed_lines import records_in

SIZE = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "long int": 8, "int": 4, "bool": 1, "unsigned char": 1}
SHORT = {"float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16", "long int": "int64"}
BACKWARD, AGAIN = 1, 2


@dataclass(frozen=True)
class Limits:
    """FLOP/s by type, bytes/s."""

    matrix: dict[str, float]
    vector: dict[str, float]
    bandwidth: float

    def parts(self, flop: float, vector: float, data: float, dtype: str) -> tuple[float, float]:
        """(ns of arithmetic, ns of memory) of one call."""
        wide = self.vector.get(dtype) or self.vector["fp32"]  # vector units: FP32's where the type has none of its own
        compute = max(flop / self.matrix[dtype] if flop else 0.0, vector / wide)
        return compute * 1e9, data / self.bandwidth * 1e9

    def least(self, flop: float, vector: float, data: float, dtype: str) -> float:
        return max(self.parts(flop, vector, data, dtype))


@dataclass(frozen=True)
class Row:
    """Alike calls of one sampled iteration. phase: its levels; pushed: the name that was pushed last. flop, vector, bytes, time: of all of them; None unknown."""

    iteration: int
    op: str
    sizes: str
    dtype: str
    kind: str
    module: tuple[int, ...]
    phase: tuple[str, ...]
    pushed: str
    function: str
    backward: bool
    again: bool
    count: int
    time: int | None
    flop: int | None
    vector: int | None
    bytes: int | None
    sig: int

    @property
    def collective(self) -> bool:
        return "c10d" in self.op.split("::")[0]

    @property
    def known(self) -> bool:
        return not self.collective and (self.bytes is not None or bool(self.flop))


@dataclass
class Raw:
    """One file."""

    header: dict[str, Any] = field(default_factory=dict)
    sigs: dict[int, dict[str, Any]] = field(default_factory=dict)
    labels: dict[int, dict[str, Any]] = field(default_factory=dict)
    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    phases: dict[int, list[list[Any]]] = field(default_factory=dict)
    modules: dict[int, list[list[Any]]] = field(default_factory=dict)
    notes: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0

    @property
    def limits(self) -> Limits:
        found = self.header["device"]["limits"]
        return Limits(found["peak_flops"], found["peak_flops_vector"], found["memory_bandwidth_bytes_per_sec"])

    def path(self, label: int) -> tuple[int, ...]:
        """Ids from the outermost label down; () for -1."""
        out: list[int] = []
        while label >= 0:
            out.append(label)
            label = self.labels[label]["parent"]
        return tuple(reversed(out))

    def phase_path(self, label: int) -> tuple[str, ...]:
        """Levels of a phase: names from the outermost down, split at `/`; a level that repeats the one around it is one."""
        levels: list[str] = []
        for one in self.path(label):
            mine = self.labels[one]["name"].split("/")
            levels = mine if mine[: len(levels)] == levels else levels + mine
        return tuple(levels)

    @property
    def shown(self) -> list[int]:
        """Sampled iterations that pages look at: without the first of the recording where there are others."""
        found = [n for n, s in self.steps.items() if s["sampled"]]
        return found if len(found) == 1 else [n for n in found if n != min(self.steps)]


def read(path: Path) -> Raw:
    """The records of a file, which has one part."""
    out, ledgers = Raw(), {}
    for record in records_in(path.read_bytes()):
        kind, out.records = record["kind"], out.records + 1
        if kind == "header":
            out.header = record
        elif kind == "note":
            out.notes.append(record)
        elif kind in ("sig", "label"):
            (out.sigs if kind == "sig" else out.labels)[record["id"]] = record
        elif kind == "step":
            out.steps[record["iteration"]] = record
        elif kind in ("phase_time", "module_time"):
            (out.phases if kind == "phase_time" else out.modules)[record["iteration"]] = record["rows"]
        elif kind == "ledger":
            ledgers[record["iteration"]] = record["rows"]
    for iteration, rows in ledgers.items():
        for sig, module, phase, _, function, flags, count, time in rows:
            s = out.sigs[sig]
            flop, vector, data = (None if s[k] is None else s[k] * count for k in ("flop", "flop_vector", "bytes"))
            out.rows.append(
                Row(
                    iteration,
                    s["op"],
                    readable(s["in"]),
                    s.get("dtype", ""),
                    s.get("class", ""),
                    out.path(module),
                    out.phase_path(phase),
                    out.labels[phase]["name"] if phase >= 0 else "(no phase)",
                    out.labels[function]["name"] if function >= 0 else "",
                    bool(flags & BACKWARD),
                    bool(flags & AGAIN),
                    count,
                    time,
                    flop,
                    vector,
                    data,
                    sig,
                )
            )
    return out


def readable(shapes: list[Any]) -> str:
    """`8×16 16×4`: sizes of tensors; those without dimensions and scalars are left out. Of a list the first four, and how many there are."""
    return " ".join(_list(s) if isinstance(s[0], list) else "×".join(map(str, s)) for s in shapes if s)


def _list(shapes: list[list[int]]) -> str:
    names = ["×".join(map(str, s)) or "1" for s in shapes]
    return f"[{', '.join(names)}]" if len(names) <= 4 else f"[{', '.join(names[:4])} … {len(names)}]"


# -- the work of one call, from its sizes ---------------------------------------------------------------------------------------


def matrix_flop(sig: dict[str, Any]) -> int | None:
    """Matrix FLOP of one call by definition; None for operators that are not written down here."""
    op, shapes, out = sig["op"].removeprefix("aten::"), sig["in"], sig["out"]
    if op in ("mm", "bmm", "addmm", "baddbmm"):
        inner = shapes[1 if op.startswith(("add", "badd")) else 0][-1]
        return 2 * prod(out[0]) * inner
    if op in ("convolution", "mkldnn_convolution"):
        return 2 * prod(out[0]) * prod(shapes[1][1:])
    if op == "convolution_backward":
        grad, weight = shapes[0], shapes[2]
        asked = json.loads(sig["concrete"][-1].lower()) if isinstance(sig["concrete"][-1], str) else sig["concrete"][-1]
        return 2 * prod(grad) * prod(weight[1:]) * sum(asked[:2])
    if op.startswith("_scaled_dot_product_flash_attention_for_cpu"):
        back = op.endswith("backward")
        query, key, value = shapes[1:4] if back else shapes[:3]
        causal = str(sig["concrete"][7 if back else 4]).lower() == "true"
        b, h, rows, width = query
        columns = key[2]
        pairs = rows * columns / 2 if causal and rows == columns else rows * columns
        products = 3 * width + 2 * value[3] if back else width + value[3]
        return round(2 * b * h * pairs * products)
    return None


def plain_bytes(sig: dict[str, Any]) -> int | None:
    """Bytes of one call of an operator that reads all it is given and writes its result; None for others."""
    op = sig["op"].removeprefix("aten::")
    simple = ("mm", "bmm", "addmm", "add", "mul", "div", "sub", "neg", "exp", "relu", "gelu", "silu", "gelu_backward", "silu_backward", "sqrt",
              "rsqrt", "pow", "clone", "_to_copy", "cat", "_softmax", "_log_softmax", "threshold_backward", "mean", "sum",
              "addcdiv_", "lerp_", "add_", "mul_")  # fmt: skip
    if op not in simple or not sig["out"][0]:  # single numbers: the type of the result follows rules of its own
        return None
    read = 0
    for sizes, kind, stride in zip(sig["in"], sig["types"], sig["strides"], strict=True):
        for one, name, steps in zip(sizes, kind, stride, strict=True) if isinstance(kind, list) else [(sizes, kind, stride)]:
            if name in SIZE:
                read += prod(n if s else 1 for n, s in zip(one, steps, strict=True)) * SIZE[name]
    written = prod(sig["out"][0]) * SIZE[sig["out_types"][0]]
    return read + written


# -- sums ------------------------------------------------------------------------------------------------------------------------


@dataclass
class Sum:
    """Sums over rows. sol: ns at the limits; timed_sol, timed: of what has both; unmodeled: time of what has no cost."""

    calls: int = 0
    limited: int = 0
    flop: int = 0
    again_flop: int = 0
    backward_flop: int = 0
    vector: int = 0
    bytes: int = 0
    sol: float = 0.0
    compute: float = 0.0
    compute_bound: float = 0.0
    memory: float = 0.0
    time: int = 0
    timed: int = 0
    peak: float = 0.0
    again_peak: float = 0.0

    def add(self, row: Row, limits: Limits) -> None:
        self.calls += row.count
        self.time += row.time or 0
        if not row.known:
            return
        flop, vector, data = (row.flop or 0), (row.vector or 0), (row.bytes or 0)
        compute, memory = limits.parts(flop, vector, data, row.dtype)
        self.limited += row.count
        self.flop, self.vector, self.bytes = self.flop + flop, self.vector + vector, self.bytes + data
        # fused attention runs five products in its backward pass, of which one, a fifth where keys and values are as wide, is done again
        again = flop if row.again else flop // 5 if row.op.endswith("attention_backward") or "attention_for_cpu_backward" in row.op else 0
        self.again_flop += again
        self.backward_flop += flop if row.backward and not row.again else 0
        self.sol, self.compute, self.memory = self.sol + max(compute, memory), self.compute + compute, self.memory + memory
        self.compute_bound += compute if compute >= memory else 0.0
        self.timed += row.time or 0
        at_peak = flop / limits.matrix[row.dtype] * 1e9 if flop else 0.0
        self.peak += at_peak
        self.again_peak += at_peak * again / flop if flop else 0.0


def summed(rows: list[Row], limits: Limits, key: Any = lambda row: "") -> dict[Any, Sum]:
    """Sums by a key."""
    out: dict[Any, Sum] = defaultdict(Sum)
    for row in rows:
        out[key(row)].add(row, limits)
    return dict(out)
