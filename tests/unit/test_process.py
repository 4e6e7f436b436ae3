"""A process of our own collects garbage less often, loads no linear algebra and has one pool of memory; a guest changes none of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "samples" / "simulated_gpu_llm"
SCRIPT = """
import ctypes, gc, json, sys, threading
from tb_sol_plugin import process
before = gc.get_threshold()
if {ours}:
    process.claim()
    process.import_libraries()
from tb_sol_plugin.ingest import read
report = read({path!r}).analyze("kernels")
process.keep_loaded()
loaded = [name for name in ("scipy.linalg", "scipy", "yaml", "pyarrow") if name in sys.modules]
import numpy as np
from importlib import import_module, util
for name in ('scipy', 'yaml'):
    assert not util.find_spec(name) or import_module(name)
import pyarrow as pa
assert pa.table({{"text": ["a", None], "number": [1, 2]}}).to_pandas().isna().sum().tolist() == [1, 0]
from numba import njit
@njit
def product(a):
    return np.dot(a, a)
square = product(np.eye(2)).tolist()
all_there = threading.Barrier(6)
def allocate():
    kept = bytearray(100_000)
    all_there.wait()
threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
if hasattr(libc, "malloc_info"):
    libc.fdopen.restype = ctypes.c_void_p
    errors = ctypes.c_void_p(libc.fdopen(2, b"w"))
    libc.malloc_info(0, errors)
    libc.fflush(errors)
print(json.dumps([gc.get_threshold() != before, gc.get_freeze_count() > 0, loaded, square, report.headline]))
"""


def _run(ours: bool) -> list[object]:
    path = next(SAMPLE.glob("*.json.gz"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(ours=ours, path=str(path))], capture_output=True, text=True, timeout=300, check=True
    )
    return [*json.loads(done.stdout), done.stderr.count("<heap nr=")]


@pytest.fixture(scope="module")
def outcomes() -> tuple[list[object], list[object]]:
    return _run(True), _run(False)


def test_our_own_process_loads_less_and_collects_less_often(outcomes: tuple[list[object], list[object]]) -> None:
    assert outcomes[0][:4] == [True, True, [], [[1.0, 0.0], [0.0, 1.0]]]


def test_a_guest_leaves_the_collector_and_the_compiler_of_its_host_alone(outcomes: tuple[list[object], list[object]]) -> None:
    assert outcomes[1][:2] == [False, False]
    assert outcomes[1][3] == [[1.0, 0.0], [0.0, 1.0]]


def test_threads_of_our_own_process_share_one_pool_of_memory(outcomes: tuple[list[object], list[object]]) -> None:
    ours, guest = (outcome[5] for outcome in outcomes)
    if not guest:
        pytest.skip("this C library does not say which pools it has")
    assert ours == 1 and int(str(guest)) > 1


def test_both_give_the_same_answer(outcomes: tuple[list[object], list[object]]) -> None:
    assert outcomes[0][4] == outcomes[1][4]


@pytest.mark.parametrize("module", ["tb_sol_plugin.cli.command", "tb_sol_plugin.store.processes"])
@pytest.mark.parametrize(("name", "ours", "users"), [("NUMPY_MADVISE_HUGEPAGE", "0", "1"), ("OPENBLAS_NUM_THREADS", "1", "3")])
def test_a_process_of_ours_asks_for_no_huge_pages_and_no_threads(module: str, name: str, ours: str, users: str) -> None:
    # GIVEN the modules that a command and a reader of files begin with WHEN the process is ours THEN numpy, not there yet, will find its setting
    script = (
        f"import os, sys, {module}; from tb_sol_plugin.process import claim; assert 'numpy' not in sys.modules; claim(); "
        f"print(os.environ['{name}'])"
    )
    for given, expected in ((None, ours), (users, users)):  # what a user asks for stays
        environment = {k: v for k, v in os.environ.items() if k != name} | ({name: given} if given else {})
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout.strip() == expected


@pytest.mark.parametrize(("broken", "status", "said"), [(False, 7, ["a thread ended", "at the end"]), (True, 120, [])])
def test_a_process_that_is_ended_waits_for_threads_and_writes_its_output(broken: bool, status: int, said: list[str]) -> None:
    # GIVEN a process with a thread that still runs, something registered for its end, and output not yet written, to a reader who is gone or not
    script = (
        "import atexit, os, sys, threading, time; from tb_sol_plugin.process import end\n"
        "atexit.register(print, 'at the end')\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('a thread ended'))).start()\n"
        f"if {broken}:\n    read, write = os.pipe(); os.dup2(write, 1); os.close(write); os.close(read)\n"
        "end(7)"
    )
    # WHEN it ends THEN all of it is done, with the status that was asked for, and Python's own for output that cannot be written
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60, env=env)
    assert (done.returncode, done.stdout.splitlines()) == (status, said)
    assert ("BrokenPipeError" in done.stderr) == broken


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are counted as Linux counts them")
@pytest.mark.parametrize("ours", [True, False], ids=["our own process", "a guest"])
def test_memory_that_is_made_ahead_is_there_when_arrays_take_it(ours: bool) -> None:
    # GIVEN a process that has made room, and arrays of 5 MB each that are made and let go, as an analysis does
    script = f"""
import os, resource
from tb_sol_plugin import process
if {ours}:
    process.claim()
import numpy as np
process.make_room()
pages = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = pages()
for _ in range(4):
    held = [np.ones(600_000) for _ in range(8)]
    del held
print(pages() - before, 8 * 600_000 * 8 // os.sysconf("SC_PAGE_SIZE"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    made, needed = map(int, done.stdout.split())
    # THEN our own process makes next to no page for them; a guest, of which nothing is changed, makes all of them at least once
    assert made < needed / 10 if ours else made >= needed
