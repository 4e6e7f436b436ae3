#!/usr/bin/env python3
"""Writes `simulated_ranks/`: four training steps of 16 SIMULATED ranks on two hosts, and their `truth.json`.

    python samples/simulate_ranks.py

No GPU was there. Tensor parallelism over the eight ranks of a host, data parallelism between the two; clocks of the hosts are 0.3 ms apart
and drift. Two things are wrong with the job: rank 5 loads its batches slowly, and the link of rank 3 to the other host has 60 % of the
bandwidth of the other links. Of the program only kernels, their launches and steps are there.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # so that the generator of the tests is found

from tests.support.rank_factory import Job, Slow, simulate  # noqa: E402

JOB = Job(
    tp=8, dp=2, layers=4, steps=4, bucket_bytes=64 << 20, buckets=4, stragglers=(Slow(5, "dataloader", 2_500_000.0),),
    slow_links=((3, 0.6),),
)  # fmt: skip


def main() -> None:
    simulate(JOB).write(HERE / "simulated_ranks")


if __name__ == "__main__":
    main()
