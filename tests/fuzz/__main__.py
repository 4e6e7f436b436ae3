"""Feeds mutated inputs to every reader: `python -m tests.fuzz --seconds 60 [TARGET ...]`. The status is 1 where one was a fault.

The input of a fault is written to `--out`, with what it raised; put a small one into `tests/fuzz/cases` as `TARGET-what` once it is mended.
`--atheris` lets libFuzzer choose the inputs by what they reach, where the package atheris is installed (one target at a time).
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from contextlib import nullcontext
from pathlib import Path

if "--atheris" in sys.argv:
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    # Modules of this package say what an input reached (those of all packages take minutes), but for compiled loops, which cannot.
    folder = Path(__file__).resolve().parents[2]
    loops = [path for path in folder.glob("tb_sol_plugin/**/*.py") if "@compiled(" in path.read_text(encoding="utf-8")]
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in loops]
    reached = atheris.instrument_imports(include=["tb_sol_plugin"], exclude=names)
else:
    reached = nullcontext()
with reached:
    from tests.fuzz.mutate import mutated
    from tests.fuzz.targets import TARGETS, cases, run, seeds

SLOWEST = 5.0
"""CPU seconds that an input (64 kB at most) may take."""


def fuzz(name: str, seconds: float, folder: Path, out: Path, seed: int, least: int = 0) -> tuple[int, dict[str, str]]:
    """Returns (inputs tried, faults by place: what they raised). Each kind of fault is written once; `least` inputs are tried at any rate."""
    dice = random.Random(f"{name} {seed}")
    pool = (*seeds()[name], *(path.read_bytes() for path in cases().get(name, ())))
    every = tuple(one for found in seeds().values() for one in found)
    tried, faults, end = 0, {}, time.monotonic() + seconds
    for data in pool:
        run(name, data, folder)
    while tried < least or time.monotonic() < end:
        data = mutated(dice.choice(pool), dice, pool if dice.random() < 0.8 else every)
        tried += 1
        begin = time.process_time()
        faulthandler.dump_traceback_later(60, exit=True)  # the file that hangs stays in the folder
        try:
            run(name, data, folder)
            if time.process_time() - begin > SLOWEST:
                raise TimeoutError(f"{time.process_time() - begin:.1f} CPU seconds")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            if place not in faults:
                faults[place] = f"{error}"
                case = out / f"{name}-{type(error).__name__}-{zlib.crc32(data):08x}"
                case.write_bytes(data)
                print(f"FAULT {name}: {place}: {str(error)[:200]} -> {case}", flush=True)
                traceback.print_exception(error, limit=-6)
        finally:
            faulthandler.cancel_dump_traceback_later()
    return tried, faults


def guided(name: str, seconds: float, folder: Path, out: Path) -> None:
    """Runs one target under atheris until the time is over; it ends the process."""
    corpus = out / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds()[name]):
        (corpus / f"seed{number}").write_bytes(data)
    atheris.Setup(
        ["tests.fuzz", f"-max_total_time={int(seconds)}", f"-artifact_prefix={out}/{name}-", str(corpus)], lambda d: run(name, d, folder)
    )
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Print a line per target; the status is 1 where there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--least", type=int, default=0, metavar="INPUTS", help="tried per target however long they take (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random numbers (default: the time)")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "tb-sol-fuzz", help="where inputs of faults are written")
    parser.add_argument("--atheris", action="store_true", help="choose inputs by coverage")
    options = parser.parse_args(arguments)
    chosen = options.targets or list(TARGETS)
    if wrong := [name for name in chosen if name not in TARGETS]:
        parser.error(f"no target {wrong[0]!r}: there is {', '.join(TARGETS)}")
    warnings.simplefilter("error", RuntimeWarning)
    options.out.mkdir(parents=True, exist_ok=True)
    folder = options.out / "running"
    folder.mkdir(exist_ok=True)
    if options.atheris:
        guided(chosen[0], options.seconds, folder, options.out)
    total, kinds = 0, 0
    for name in chosen:
        tried, faults = fuzz(name, options.seconds / len(chosen), folder, options.out, options.seed, options.least)
        total, kinds = total + tried, kinds + len(faults)
        print(f"{name}: {tried:,} inputs, {len(faults)} kinds of faults", flush=True)
    print(f"in all: {total:,} inputs, {kinds} kinds of faults (seed {options.seed})")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
