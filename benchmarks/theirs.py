"""torch-tb-profiler on one file: parse it, generate every view. Prints one JSON line.

Runs in a process of its own (`python benchmarks/theirs.py FILE`), so that its memory is its own. Imports are not counted, as on our side.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import tempfile
import time


def main(path: str) -> None:
    logging.disable(logging.CRITICAL)
    from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    with tempfile.TemporaryDirectory() as scratch:
        begin, cpu = time.perf_counter(), time.process_time()
        profile = RunProfileData.parse("worker0", None, path, scratch)
        parsed = time.perf_counter()
        RunGenerator("worker0", None, profile).generate_run_profile()
        DistributedRunProfileData(profile)
        done, cpu = time.perf_counter(), time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out = {"read + parse": parsed - begin, "generate views": done - parsed, "first open": done - begin}
    print(json.dumps({**out, "cpu first open": cpu, "peak MB": peak}))


if __name__ == "__main__":
    main(sys.argv[1])
