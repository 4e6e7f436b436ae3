"""Reads SOL capture files the plain way, line by line with `json`, for tests that record real loops. Knows only the documented format."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tb_sol_plugin.format import BACKWARD, LEDGER_ROW, RECOMPUTE
from tests.support.packed_lines import records_in

Json = dict[str, "int | float | str | bool | list[object] | dict[str, object] | None"]


@dataclass
class Row:
    """One row of a ledger with its names in place of ids."""

    op: str
    module: tuple[str, ...]
    phase: str
    forward_phase: str
    function: str
    flags: int
    count: int
    time_ns: int | None
    sig: Json

    @property
    def flop(self) -> int | None:
        """Of all calls; None unknown."""
        flop = self.sig["flop"]
        return None if flop is None else int(flop) * self.count  # type: ignore[arg-type]

    @property
    def backward(self) -> bool:
        return bool(self.flags & BACKWARD)

    @property
    def recompute(self) -> bool:
        return bool(self.flags & RECOMPUTE)


@dataclass
class Recorded:
    """One file: its header, its iterations in order, the ledger of each sampled one, notes, and whether it was closed."""

    header: Json
    steps: list[Json] = field(default_factory=list)
    ledgers: dict[int, list[Row]] = field(default_factory=dict)
    phase_times: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    note_texts: list[str] = field(default_factory=list)
    closed: bool = False
    cut: bool = False

    @property
    def sampled(self) -> list[int]:
        return [int(s["iteration"]) for s in self.steps if s["sampled"]]  # type: ignore[arg-type]

    def flop(self, iteration: int, *, backward: bool | None = None, recompute: bool | None = None, module: str | None = None) -> int:
        """Matrix FLOP of an iteration; module: of the modules whose qualified name begins with it, "" for work outside modules."""
        return sum(
            row.flop or 0
            for row in self.ledgers[iteration]
            if (backward is None or row.backward == backward)
            and (recompute is None or row.recompute == recompute)
            and (module is None or (row.module and row.module[-1].startswith(module) if module else not row.module))
        )

    def calls(self, iteration: int) -> Counter[str]:
        """Calls by operator."""
        out: Counter[str] = Counter()
        for row in self.ledgers[iteration]:
            out[row.op] += row.count
        return out


def read_file(path: Path) -> Recorded:
    """The records of a capture file; a last line without its line feed is left out and noted as `cut`."""
    text = path.read_text(encoding="utf-8")
    whole, _, rest = text.rpartition("\n")
    header, *records = records_in(whole)
    assert header["kind"] == "header"
    out = Recorded(header, cut=bool(rest))
    labels: dict[int, Json] = {}
    sigs: dict[int, Json] = {}

    def path_of(label: int) -> tuple[str, ...]:
        names: list[str] = []
        while label >= 0:
            names.append(str(labels[label]["name"]))
            label = int(labels[label]["parent"])  # type: ignore[arg-type]
        return tuple(reversed(names))

    def last(label: int) -> str:
        return str(labels[label]["name"]) if label >= 0 else ""

    for record in records:
        kind = record["kind"]
        if kind == "label":
            labels[record["id"]] = record
        elif kind == "sig":
            sigs[record["id"]] = record
        elif kind == "step":
            out.steps.append(record)
        elif kind == "phase_time":
            out.phase_times[record["iteration"]] = [(last(r[0]), r[1], r[2]) for r in record["rows"]]
        elif kind == "ledger":
            for values in record["rows"]:
                row = dict(zip(LEDGER_ROW, values, strict=True))
                out.ledgers.setdefault(record["iteration"], []).append(
                    Row(sigs[row["sig"]]["op"], path_of(row["module"]), last(row["phase"]), last(row["forward_phase"]), last(row["function"]),
                        row["flags"], row["count"], row["time_ns"], sigs[row["sig"]])
                )  # fmt: skip
        elif kind == "note":
            out.notes[record["code"]] += record["count"]
            out.note_texts.append(record["text"])
        elif kind == "close":
            out.closed = True
    return out


def only(folder: Path) -> Recorded:
    """The one capture file below a folder."""
    (path,) = sorted(folder.rglob("*.sol.jsonl"))
    return read_file(path)
