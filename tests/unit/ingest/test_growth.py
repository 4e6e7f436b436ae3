"""No text takes more than linear time: forty hostile shapes at two sizes, and the caps that the worst of them had to be given."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tb_sol_plugin.ingest import classify
from tests.fuzz.growth import SHAPES, seconds, too_steep
from tests.support.cpu_time import least


@pytest.mark.parametrize("name", SHAPES)
def test_reading_a_hostile_text_grows_linearly(name: str, tmp_path: Path) -> None:
    # GIVEN a shape of text that attacks a scanner, at 80 kB and at eight times that
    # THEN each doubling costs little more than twice, where it takes any time at all: 2.2 times on a quiet machine, more where others fill
    # its caches with theirs (what is quadratic costs 4 times)
    def linear(taken: list[float]) -> bool:
        return not too_steep(*taken, 3, factor=2.8)

    taken = least(lambda: [seconds(name, size, tmp_path) for size in (80_000, 640_000)], linear)
    assert linear(taken), taken


@pytest.mark.parametrize(
    "text",
    [b'[{"ph' + b'\\"' * 32_768, b'[{"a":["ph"' + b'""' * 32_768, b'[{"ph' + b'":"ph"' + b"[" * 65_536, b'[{"ph"' + b" " * 65_536],
    ids=["escapes", "empty strings", "brackets", "space"],
)
def test_64_kB_are_classified_at_once(text: bytes) -> None:
    # GIVEN the first 64 kB of a file that hold the key of events, and then one thing over and over
    def measure() -> list[float]:
        begin = time.process_time()
        classify(text[:65_536], "x.json")
        return [time.process_time() - begin]

    # THEN it is classified in 20 ms (three times that on a slow machine), where unclosed strings took 10 s
    assert least(measure, lambda taken: taken[0] < 0.06)[0] < 0.06


_READ = """
import resource, sys
from tb_sol_plugin import ingest
ingest.read(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ingest.read(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is counted in other units elsewhere")
def test_a_header_string_of_32_MB_takes_little_memory(tmp_path: Path) -> None:
    # GIVEN a trace whose header holds one string of 32 MB, half of it escapes (it took 3.7 GB)
    small, large = tmp_path / "a.pt.trace.json", tmp_path / "b.pt.trace.json"
    small.write_bytes(b'{"traceEvents":[{"ph":"X","ts":1,"dur":1,"name":"a"}]}')
    large.write_bytes(b'{"x":"' + b'\\"' * (8 << 20) + b"a" * (16 << 20) + b'","traceEvents":[{"ph":"X","ts":1,"dur":1,"name":"a"}]}')
    # WHEN both are read in a process of their own THEN the second adds less than 150 MB
    done = subprocess.run([sys.executable, "-c", _READ, str(small), str(large)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150_000
