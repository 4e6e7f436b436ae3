"""No text takes more than linear time: forty hostile shapes at two sizes, and the caps that the worst of them had to be given."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tb_sol_plugin.ingest import classify
from tests.fuzz.growth import SHAPES, seconds, too_steep


@pytest.mark.parametrize("name", SHAPES)
def test_reading_a_hostile_text_grows_linearly(name: str, tmp_path: Path) -> None:
    # GIVEN a shape of text that attacks a scanner, at 80 kB and at eight times that
    small = seconds(name, 80_000, tmp_path)
    large = seconds(name, 640_000, tmp_path)
    # THEN each doubling costs at most 2.2 times, where it takes any time at all (measured again, should something have disturbed it)
    if too_steep(small, large, 3):
        small, large = min(small, seconds(name, 80_000, tmp_path)), min(large, seconds(name, 640_000, tmp_path))
    assert not too_steep(small, large, 3), (small, large)


@pytest.mark.parametrize(
    "text",
    [b'[{"ph' + b'\\"' * 32_768, b'[{"a":["ph"' + b'""' * 32_768, b'[{"ph' + b'":"ph"' + b"[" * 65_536, b'[{"ph"' + b" " * 65_536],
    ids=["escapes", "empty strings", "brackets", "space"],
)
def test_64_kB_are_classified_at_once(text: bytes) -> None:
    # GIVEN the first 64 kB of a file that hold the key of events, and then one thing over and over
    begin = time.process_time()
    for _ in range(5):
        classify(text[:65_536], "x.json")
    # THEN it is classified in 20 ms (three times that on a slow machine), where unclosed strings took 10 s
    assert (time.process_time() - begin) / 5 < 0.06


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
