"""Measures what this machine's processor reaches: matrix products, elementwise work and copies, each the best of several.

A CPU has no published peak that its libraries reach, so its ceilings are measured: with torch where it is installed, else with
numpy, and with the threads these use by default. Some seconds in all.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Protocol

from tb_sol_plugin.units import human

SECONDS: Final = 0.8
"""Time spent on one figure, after a first run that is not counted."""
SIDES: Final = (512, 1024, 2048, 4096)
"""Sides of square products; no larger one is tried where eight times the work would take half the time."""
ELEMENTS: Final = (1 << 15, 1 << 17, 1 << 18)
"""Elements per thread of elementwise work: 128 kB to 1 MB an array, so that it stays in cache."""
SMALLEST_COPY: Final = 256 << 20
LARGEST_COPY: Final = 2 << 30
BEYOND_CACHE: Final = 4
"""Copies take arrays this many times the last-level cache, as far as memory allows."""


@dataclass(frozen=True)
class Rate:
    """One measured figure. value: FLOP/s or bytes/s. how: what was run, at its best size."""

    name: str
    label: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True)
class Measured:
    """All figures of one machine. when: UTC date."""

    host: str
    cpu: str
    threads: int
    library: str
    when: str
    rates: tuple[Rate, ...]

    def of(self, name: str) -> float | None:
        """Returns the value of one figure; None where it was not measured."""
        return next((r.value for r in self.rates if r.name == name), None)


class Library(Protocol):
    """How torch or numpy does the same things."""

    name: str
    threads: int
    dtypes: tuple[str, ...]

    def product(self, dtype: str, side: int) -> Callable[[], object]: ...
    def elementwise(self, elements: int) -> Iterator[tuple[str, int, Callable[[], object]]]: ...
    def copy(self, size: int) -> Callable[[], object]: ...
    def read(self, size: int) -> Callable[[], object]: ...


def measure(tell: Callable[[str], None], *, seconds: float = SECONDS, largest_copy: int = LARGEST_COPY) -> Measured:
    """Returns every figure of this machine. tell: called with one line before each; seconds: time for each."""
    lib: Library = _Torch() if importlib.util.find_spec("torch") is not None else _Numpy()
    rates = []
    for dtype in lib.dtypes:
        tell(f"{dtype.upper()} matrix product")
        rates.append(_product(lib, dtype, seconds))
    tell("FP32 elementwise, in cache")
    rates.append(_elementwise(lib, seconds))
    size = copy_bytes(largest_copy)
    tell(f"copy of {size / 2**20:,.0f} MiB, beyond the cache")
    best = _best(lib.copy(size), seconds)
    rates.append(Rate("copy", "Copy", 2 * size / best, "B/s", f"{size >> 20:,} MiB read and written"))
    tell(f"read of {size / 2**20:,.0f} MiB")
    best = _best(lib.read(size), seconds)
    rates.append(Rate("read", "Read", size / best, "B/s", f"sum over {size >> 20:,} MiB"))
    when = datetime.now(timezone.utc).date().isoformat()
    return Measured(socket.gethostname(), cpu_name(), lib.threads, lib.name, when, tuple(rates))


def _product(lib: Library, dtype: str, seconds: float) -> Rate:
    best, at = 0.0, 0
    for side in SIDES:
        run = lib.product(dtype, side)
        run()
        start = time.perf_counter()
        run()
        once = time.perf_counter() - start
        rate = 2 * side**3 / min(once, _best(run, seconds / len(SIDES)))
        if rate > best:
            best, at = rate, side
        if 8 * once > seconds / 2:
            break
    return Rate(f"{dtype}_product", f"{dtype.upper()} matrix product", best, "FLOP/s", f"{at} x {at} x {at}")


def _elementwise(lib: Library, seconds: float) -> Rate:
    best, how = 0.0, ""
    for elements in ELEMENTS:
        for name, flop, run in lib.elementwise(elements * lib.threads):
            rate = flop * elements * lib.threads / _best(run, seconds / 6)
            if rate > best:
                best, how = rate, f"{name} of {elements * lib.threads:,} elements"
    return Rate("elementwise", "FP32 elementwise", best, "FLOP/s", how)


def _best(run: Callable[[], object], seconds: float) -> float:
    """Returns seconds of the quickest of many runs (at least three), after one that warms up."""
    run()
    best, end, count = float("inf"), time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best, count = min(best, time.perf_counter() - start), count + 1
    return best


class _Torch:
    dtypes: tuple[str, ...] = ("fp32", "fp64", "bf16")

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self.name = f"torch {torch.__version__}"
        self.threads = torch.get_num_threads()

    def product(self, dtype: str, side: int) -> Callable[[], object]:
        t = self._torch
        kind = {"fp32": t.float32, "fp64": t.float64, "bf16": t.bfloat16}[dtype]
        a, b, out = t.ones(side, side, dtype=kind), t.ones(side, side, dtype=kind), t.empty(side, side, dtype=kind)
        return lambda: t.mm(a, b, out=out)

    def elementwise(self, elements: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
        t = self._torch
        a, b, out = t.ones(elements), t.ones(elements), t.empty(elements)
        yield "multiply", 1, lambda: t.mul(a, b, out=out)
        yield "multiply and add", 2, lambda: t.addcmul(a, a, b, out=out)

    def copy(self, size: int) -> Callable[[], object]:
        source, target = self._torch.ones(size // 4), self._torch.empty(size // 4)
        return lambda: target.copy_(source)

    def read(self, size: int) -> Callable[[], object]:
        source = self._torch.ones(size // 4)
        return lambda: source.sum()


class _Numpy:
    dtypes: tuple[str, ...] = ("fp32", "fp64")

    def __init__(self) -> None:
        import numpy as np

        self._np = np
        self.name = f"numpy {np.__version__}"
        self.threads = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.threads)

    def product(self, dtype: str, side: int) -> Callable[[], object]:
        kind = {"fp32": self._np.float32, "fp64": self._np.float64}[dtype]
        a, b, out = (self._np.ones((side, side), kind) for _ in range(3))
        return lambda: self._np.matmul(a, b, out=out)

    def elementwise(self, elements: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
        parts = [self._np.ones((3, elements // self.threads), self._np.float32) for _ in range(self.threads)]
        yield "multiply", 1, lambda: list(self._pool.map(lambda p: self._np.multiply(p[0], p[1], out=p[2]), parts))

    def copy(self, size: int) -> Callable[[], object]:
        parts = [self._np.ones((2, size // 4 // self.threads), self._np.float32) for _ in range(self.threads)]
        return lambda: list(self._pool.map(lambda p: self._np.copyto(p[0], p[1]), parts))

    def read(self, size: int) -> Callable[[], object]:
        parts = [self._np.ones(size // 4 // self.threads, self._np.float32) for _ in range(self.threads)]
        return lambda: list(self._pool.map(self._np.sum, parts))


# -- the machine -----------------------------------------------------------------------------------------------------


def cpu_name() -> str:
    """Returns what the processor calls itself."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(re.sub(r"\((?:R|TM)\)", " ", found[1]).split()) if found else platform.processor() or platform.machine()


def cache_bytes() -> int:
    """Returns the last-level cache; 32 MiB where the system does not say."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text(encoding="ascii").strip()
            sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0))
        except (OSError, ValueError):
            continue
    return max(sizes) or 32 << 20


def free_bytes() -> int:
    """Returns memory that can be taken without harm; 1 GiB where the system does not say."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) << 10 if found else 1 << 30


def copy_bytes(largest: int = LARGEST_COPY) -> int:
    """Returns bytes of one of the two arrays of a copy: well beyond the cache, at most an eighth of the free memory."""
    wanted = max(SMALLEST_COPY, BEYOND_CACHE * cache_bytes())
    return max(min(wanted, largest, free_bytes() // 8), 1 << 20) // 4096 * 4096


# -- the row ---------------------------------------------------------------------------------------------------------


def key_of(host: str) -> str:
    """Returns the key of a machine's row."""
    return f"cpu_{re.sub(r'[^A-Za-z0-9_.-]+', '_', host)[:70] or 'here'}"


def row_of(found: Measured, *, host: str = "") -> dict[str, str | int | float]:
    """Returns the row of a device file. host: another name for the machine than its own.

    Products, elementwise work and everything between them run on the same vector units, so the vector ceiling of a type is the
    larger of what its products and its elementwise work reach; the memory ceiling is the larger of copy and read.
    """
    name = host or found.host
    product = {d: found.of(f"{d}_product") for d in ("fp32", "fp64", "bf16")}
    memory = max(found.of("copy") or 0.0, found.of("read") or 0.0)
    vector = max(found.of("elementwise") or 0.0, product["fp32"] or 0.0)
    peaks = {
        "fp32_matrix_tflops": product["fp32"], "fp64_tensor_tflops": product["fp64"], "bf16_tensor_tflops": product["bf16"],
        "fp32_vector_tflops": vector, "fp64_vector_tflops": product["fp64"],
    }  # fmt: skip
    text = ", ".join(f"{r.label} {human(r.value, r.unit)}" for r in found.rates)
    return {
        "key": key_of(name),
        "name": f"{found.cpu}, {found.threads} threads",
        "vendor": "cpu",
        "unit_kind": "core",
        "units_count": found.threads,
        "device_names": name,
        **{column: _short(value / 1e12) for column, value in peaks.items() if value},
        "mem_bw_gb_per_s": _short(memory / 1e9),
        "provenance": "measured",
        "notes": f"measured {found.when} with {found.library}, {found.threads} threads; {text}",
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")
