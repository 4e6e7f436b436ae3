"""torch-tb-profiler on a run of many ranks, by its own loader: one process per file, as in TensorBoard. Prints one JSON line."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time


def main(folder: str) -> None:
    logging.disable(logging.CRITICAL)
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler.loader import RunLoader

    with tempfile.TemporaryDirectory() as scratch:
        begin = time.perf_counter()
        RunLoader("run", folder, io.Cache(scratch)).load()
        print(json.dumps({"seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main(sys.argv[1])
