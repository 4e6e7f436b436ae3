"""What the benchmarks share: the time of a stage, and tables of figures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType


def timed(stage: Callable[[], object], repeats: int) -> float:
    """Median seconds."""
    out = []
    for _ in range(repeats):
        begin = time.perf_counter()
        stage()
        out.append(time.perf_counter() - begin)
    return statistics.median(out)


class Stage:
    """Writes what a block of code takes under its name: seconds of wall clock, and as `cpu NAME` those of all its threads."""

    def __init__(self, out: dict[str, float], name: str) -> None:
        self.out, self.name = out, name

    def __enter__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.out[self.name], self.out[f"cpu {self.name}"] = time.perf_counter() - self.wall, time.process_time() - self.cpu


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown, the first column left and the others right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def rounded(value: object) -> object:
    """Returns figures with four significant digits."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
