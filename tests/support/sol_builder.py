"""Makes SOL captures by hand, record by record, in the form of `tb_sol_plugin.format`; every number is known.

    b = SolBuilder()
    forward = b.phase("forward")
    layer = b.module("fc", "Linear")
    mm = b.sig("aten::mm", [[8, 16], [16, 4]], [[8, 4]], flop=1024, bytes=896)
    b.iteration(0, 0, 1_000_000, rows=[b.row(mm, module=layer, phase=forward)], phases=[b.time(forward, 0, 900_000)])
    path = b.write(tmp_path / "run" / b.name)

`b.records` is the plain list of records: change it to make odd input. Times are integer ns on the recorder's clock.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tb_sol_plugin import format as F

Json: TypeAlias = "bool | int | float | str | list[Json] | tuple[Json, ...] | dict[str, Json] | None"
Record: TypeAlias = "dict[str, Json]"
Row: TypeAlias = "list[Json]"

WALL_NS = 1_700_000_000_000_000_000
HEADER: Record = {
    "kind": "header", "format": F.FORMAT, "version": list(F.VERSION), "library": "0.1.0", "torch": "2.6.0", "cuda": None, "hip": None,
    "convention": "flop=2*mac", "rank": 0, "world_size": 1, "groups": {}, "host": "node1", "pid": 4242, "wall_ns": WALL_NS,
    "monotonic_ns": 5_000_000_000, "part": 0,
    "device": {"type": "cpu", "key": None, "name": "a CPU", "memory_bytes": None, "units": None, "limits": None, "provenance": None},
    "precision": {"matmul": "highest", "cudnn_tf32": True}, "mode": "dispatch", "every_n_steps": 100, "time_source": "cpu", "copies": False, "plan": {},
    "model": {"class": "MLP", "parameters": 680, "trainable": 680, "parameter_bytes": 2720, "modules": 3, "compiled": False},
}  # fmt: skip
CUDA: Record = {
    "type": "cuda", "key": "H100_SXM", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85_018_279_936, "units": 132,
    "limits": {
        "peak_flops": {"bf16": 989.4e12, "tf32": 494.7e12, "fp32": 66.9e12}, "peak_flops_vector": {"fp32": 66.9e12},
        "memory_bandwidth_bytes_per_sec": 3.35e12,
    },
    "provenance": {"memory_bandwidth_bytes_per_sec": "table"},
}  # fmt: skip
"""A device for `SolBuilder(device=CUDA, time_source="event")`."""


def _text(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


class SolBuilder:
    """Collects the records of one file. Keywords replace fields of the header; one of None writes null."""

    def __init__(self, *, rank: int = 0, world_size: int = 1, start_ns: int = 0, **header: Json) -> None:
        head = copy.deepcopy(HEADER) | {"rank": rank, "world_size": world_size} | header
        self.name = F.file_name(str(head["host"]), rank, int(str(head["pid"] or 0)), start_ns or WALL_NS)
        self.records: list[Record] = [head]
        self._labels = 0
        self._sigs = 0

    # -- definitions ------------------------------------------------------------------------------------------

    def label(self, what: str, name: str, *, parent: int = -1, class_name: str = "") -> int:
        """Defines a label; returns its id."""
        self._labels += 1
        own = self._labels - 1
        self.records.append({"kind": "label", "id": own, "what": what, "parent": parent, "name": name, "class": class_name})
        return own

    def phase(self, name: str, parent: int = -1) -> int:
        """A phase, as it was pushed."""
        return self.label("phase", name, parent=parent)

    def module(self, name: str, class_name: str, parent: int = -1) -> int:
        """A module by its qualified name."""
        return self.label("module", name, parent=parent, class_name=class_name)

    def function(self, name: str, parent: int = -1) -> int:
        """A patched function, as `F.linear`."""
        return self.label("function", name, parent=parent)

    def sig(
        self,
        op: str,
        shapes: Json,
        out: Json = None,
        *,
        types: Json = None,
        strides: Json = None,
        concrete: Json = None,
        flop: float | None = None,
        flop_vector: float | None = 0,
        bytes: float | None = None,
        dtype: str = "fp32",
        work: str = "gemm",
        direction: str = "fwd",
        estimated: bool = False,
        reason: str = "",
    ) -> int:
        """Defines a signature (flop and bytes of one call, None unknown); returns its id."""
        self._sigs += 1
        listed = shapes if isinstance(shapes, list) else []
        self.records.append({
            "kind": "sig", "id": self._sigs - 1, "op": op, "in": _text(shapes), "types": _text(types or ["float"] * len(listed)),
            "strides": _text(strides or []), "concrete": _text(concrete or [""] * len(listed)), "out": _text(out or []),
            "out_types": _text(["float"] * len(out if isinstance(out, list) else [])), "flop": flop, "flop_vector": flop_vector,
            "bytes": bytes, "dtype": dtype, "class": work, "direction": direction, "estimated": estimated, "reason": reason,
        })  # fmt: skip
        return self._sigs - 1

    # -- rows -------------------------------------------------------------------------------------------------

    @staticmethod
    def row(
        sig: int, *, module: int = -1, phase: int = -1, forward_phase: int = -1, function: int = -1, flags: int = 0, count: int = 1,
        time_ns: int | None = None,
    ) -> Row:  # fmt: skip
        """A row of a ledger."""
        return [sig, module, phase, forward_phase, function, flags, count, time_ns]

    @staticmethod
    def time(label: int, start_ns: int, duration_ns: int, device_ns: int | None = None, count: int = 1) -> Row:
        """A row of phase or module times."""
        return [label, start_ns, duration_ns, device_ns, count]

    def iteration(
        self,
        number: int,
        start_ns: int,
        duration_ns: int,
        *,
        rows: Sequence[Row] | None = None,
        phases: Sequence[Row] = (),
        modules: Sequence[Row] = (),
        device_ns: int | None = None,
        totals: Mapping[str, Json] | None = None,
        batch: int | None = 8,
        tokens: int | None = None,
        overhead_ns: int = 0,
        before_ns: int = 0,
        lost: Mapping[str, Json] | None = None,
        signature: str = "8x16",
    ) -> None:
        """The records of one iteration, as the capture library orders them; sampled where `rows` is given."""
        self.records.append({
            "kind": "step", "iteration": number, "start_ns": start_ns, "duration_ns": duration_ns, "device_ns": device_ns,
            "sampled": rows is not None, "signature": signature, "batch": batch, "tokens": tokens, "overhead_ns": overhead_ns,
            "before_ns": before_ns, "totals": None if totals is None else dict(totals), "lost": dict(lost or {}),
        })  # fmt: skip
        if rows is not None:
            self.records.append({"kind": "ledger", "iteration": number, "rows": list(rows)})
        if phases:
            self.records.append({"kind": "phase_time", "iteration": number, "rows": list(phases)})
        if modules:
            self.records.append({"kind": "module_time", "iteration": number, "rows": list(modules)})

    def note(self, code: str, text: str, count: int = 1) -> None:
        """A note of the recorder."""
        self.records.append({"kind": "note", "code": code, "text": text, "count": count})

    def close(self, iterations: int) -> None:
        """The last record of a recording that ended as it should."""
        self.records.append({"kind": "close", "wall_ns": WALL_NS + 10**9, "iterations": iterations})

    # -- files ------------------------------------------------------------------------------------------------

    def lines(self) -> list[bytes]:
        """One line per record, with its line feed."""
        return [F.encode(dict(record)) for record in self.records]

    def write(self, path: Path) -> Path:
        """The file; gzipped where the name says so. A path that is a folder gets the recorder's own name."""
        path = path / self.name if path.is_dir() else path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = b"".join(self.lines())
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path


def small(**header: Json) -> SolBuilder:
    """Three iterations of a perceptron (16 -> 32 -> 4, batch of 8) in two phases; 0 and 1 are sampled, 2 is not.

    Modules: `mlp` (MLP) around `mlp.fc1` and `mlp.fc2` (Linear). One call of aten::mm each, in ms and FLOP of a sampled iteration:

        iteration      0: 0-10 ms    1: 10-18 ms    2: 18-26 ms
        forward        1-4           11-13          19-21
          fc1          1.5-2.5       11.2-11.8      8x16 @ 16x32: 8 192 FLOP, 3 584 B, 0.4 ms
          fc2          3-3.5         12.2-12.6      8x32 @ 32x4: 2 048 FLOP, 1 664 B, 0.2 ms
        backward       4-9           13-17          21-25
          of fc2       8x4 @ 4x32 and 32x8 @ 8x4: 2 x 2 048 FLOP, 1 664 B, 0.3 ms each
          of fc1       16x8 @ 8x32: 8 192 FLOP, 3 584 B, 0.8 ms (its input needs no gradient)
        outside        aten::_foreach_add_ of 640 elements: 640 vector FLOP, 7 680 B, called twice, 0.1 ms in sum

    In sum 22 528 FLOP, 1 280 vector FLOP and 27 520 B in 7 calls; of iteration 2 only the times are known.
    """
    b = SolBuilder(**header)
    forward, backward = b.phase("train/forward"), b.phase("train/backward")
    root = b.module("mlp", "MLP")
    fc1, fc2 = b.module("mlp.fc1", "Linear", root), b.module("mlp.fc2", "Linear", root)
    linear = b.function("F.linear")
    f1 = b.sig("aten::mm", [[8, 16], [16, 32]], [[8, 32]], flop=8192, bytes=3584)
    f2 = b.sig("aten::mm", [[8, 32], [32, 4]], [[8, 4]], flop=2048, bytes=1664)
    b2 = b.sig("aten::mm", [[8, 4], [4, 32]], [[8, 32]], flop=2048, bytes=1664)
    w2 = b.sig("aten::mm", [[32, 8], [8, 4]], [[32, 4]], flop=2048, bytes=1664)
    w1 = b.sig("aten::mm", [[16, 8], [8, 32]], [[16, 32]], flop=8192, bytes=3584)
    add = b.sig(
        "aten::_foreach_add_", [[[512], [128]]], [], types=[["float", "float"]], flop=0, flop_vector=640, bytes=7680, work="elementwise"
    )
    back = {"phase": backward, "forward_phase": forward, "function": linear, "flags": F.BACKWARD}
    ms = 1_000_000
    totals: dict[str, Json] = {"ops": 7, "flop": 22_528, "flop_vector": 1_280, "bytes": 27_520, "sol_ns": None, "unknown": 0}

    def rows() -> list[Row]:
        return [
            b.row(f1, module=fc1, phase=forward, function=linear, time_ns=400_000),
            b.row(f2, module=fc2, phase=forward, function=linear, time_ns=200_000),
            b.row(b2, module=fc2, time_ns=300_000, **back),
            b.row(w2, module=fc2, time_ns=300_000, **back),
            b.row(w1, module=fc1, time_ns=800_000, **back),
            b.row(add, count=2, time_ns=100_000),
        ]

    b.iteration(
        0, 0, 10 * ms, rows=rows(), totals=totals, overhead_ns=2 * ms,
        phases=[b.time(forward, 1 * ms, 3 * ms), b.time(backward, 4 * ms, 5 * ms)],
        modules=[b.time(root, 1_200_000, 2_600_000), b.time(fc1, 1_500_000, 1 * ms), b.time(fc2, 3 * ms, 500_000)],
    )  # fmt: skip
    b.iteration(
        1, 10 * ms, 8 * ms, rows=rows(), totals=totals, overhead_ns=1 * ms,
        phases=[b.time(forward, 11 * ms, 2 * ms), b.time(backward, 13 * ms, 4 * ms)],
        modules=[b.time(root, 11_100_000, 1_800_000), b.time(fc1, 11_200_000, 600_000), b.time(fc2, 12_200_000, 400_000)],
    )  # fmt: skip
    b.iteration(2, 18 * ms, 8 * ms, phases=[b.time(forward, 19 * ms, 2 * ms), b.time(backward, 21 * ms, 4 * ms)], overhead_ns=20_000)
    b.close(3)
    return b
