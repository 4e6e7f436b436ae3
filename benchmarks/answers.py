"""Write the JSON of every analysis on every recording below some paths, and compare two such folders.

    python -m benchmarks.answers write OUT PATH...      # one file per recording, analysis and choice of a query field
    python -m benchmarks.answers diff BEFORE AFTER      # what differs, sentences apart from numbers
    python -m benchmarks.answers write OUT samples --only simulated_gpu_train    # some of them; then diff --common

For a change that must not change any answer: write before, write after, diff. Recordings are read without the cache.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import re
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

NOT_RECORDINGS = (".py", ".md", ".png", ".csv")


def _places(paths: list[Path]) -> list[Path]:
    """Every logdir among the paths as it is, and every file below them by its own."""
    below = [f for p in paths for f in ([p] if p.is_file() else sorted(p.rglob("*")))]
    files = [f for f in below if f.is_file() and f.suffix not in NOT_RECORDINGS]
    return [p for p in paths if p.is_dir()] + [d for p in paths if p.is_dir() for d in sorted(p.iterdir()) if d.is_dir()] + files


def _queries(item: object) -> list[dict[str, str]]:
    """The default query, and one with each other choice of each field that has choices."""
    out: list[dict[str, str]] = [{}]
    for field in item.fields:  # type: ignore[attr-defined]
        if field.type == "choice":
            out += [{field.name: str(c)} for c in field.choices if str(c) != str(field.default)]
        elif field.type == "flag":
            out.append({field.name: "false" if str(field.default).lower() == "true" else "true"})
    return out


def _write_one(place: Path, root: Path, out: Path) -> str:
    """Every answer of one path, in one file: a line per analysis and query."""
    import tb_sol_plugin as sol
    from tb_sol_plugin.errors import SolError
    from tb_sol_plugin.model.registry import get, registry
    from tb_sol_plugin.model.report import encode


    warnings.simplefilter("ignore")
    name = os.path.relpath(place, root)
    lines: list[str] = []

    def answer(of: str, analysis: str, query: dict[str, str], ask: object) -> None:
        try:
            text = encode(ask()).decode()  # type: ignore[operator]
        except SolError as error:
            text = json.dumps({"error": type(error).__name__, "line": error.line()})
        except Exception as error:
            text = json.dumps({"crash": type(error).__name__, "line": str(error)})
        lines.append(json.dumps([of, analysis, query, json.loads(text)], sort_keys=True))

    try:
        run = sol.open(str(place), cache=False)
        captures = run.captures
    except SolError as error:
        lines.append(json.dumps([name, "open", {}, {"error": error.line()}]))
        (out / f"{hashlib.sha1(name.encode()).hexdigest()[:12]}.jsonl").write_text("\n".join(lines) + "\n")
        return f"{name}: {type(error).__name__}"
    for analysis in registry():
        item = get(analysis)
        for query in _queries(item):
            if item.without_recording is not None:
                answer(name, analysis, query, lambda a=analysis, q=query: sol.analyze(a, **q))
            answer(name, analysis, query, lambda a=analysis, q=query: run.analyze(a, **q))
    if place.is_file():
        for index, capture in enumerate(captures):
            for analysis in registry():
                for query in _queries(get(analysis)):
                    answer(f"{name}#{index}", analysis, query, lambda a=analysis, q=query, c=capture: c.analyze(a, **q))
    (out / f"{hashlib.sha1(name.encode()).hexdigest()[:12]}.jsonl").write_text("\n".join(lines) + "\n")
    return f"{name}: {len(lines)} answers"


def write(out: Path, paths: list[Path], jobs: int, only: str = "") -> int:
    """One .jsonl per path below `out`; a path is named relative to the parent of the one it was found in. only: a regular expression."""
    out.mkdir(parents=True, exist_ok=True)
    work = [(place, path.resolve().parent) for path in paths for place in _places([path.resolve()])]
    work = [(place, root) for place, root in work if re.search(only, os.path.relpath(place, root))]
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(_write_one, place, root, out) for place, root in work]
        for future in futures:
            print(future.result(), flush=True)
    return 0


_NUMBER = re.compile(r"-?\d[\d,.]*(?:e-?\d+)?")


def _walk(before: object, after: object, path: str, out: list[tuple[str, object, object]]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            _walk(before.get(key, "<absent>"), after.get(key, "<absent>"), f"{path}.{key}", out)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (b, a) in enumerate(zip(before, after, strict=True)):
            _walk(b, a, f"{path}[{index}]", out)
    elif before != after and not (isinstance(before, float) and isinstance(after, float) and before != before and after != after):
        out.append((path, before, after))


def _is_sentence(before: object, after: object) -> bool:
    """Both are text, and the numbers in them are the same."""
    return isinstance(before, str) and isinstance(after, str) and _NUMBER.findall(before) == _NUMBER.findall(after)


def diff(before: Path, after: Path, limit: int, common: bool = False) -> int:
    """Print what differs; status 1 where something other than a sentence does. common: of recordings that both folders hold."""
    left, right = ({f.name for f in folder.glob("*.jsonl")} for folder in (before, after))
    names = sorted(left & right if common else left | right)
    sentences: Counter[tuple[str, str]] = Counter()
    hard: list[str] = []
    answers = 0
    for name in names:
        if name not in left & right:
            hard.append(f"{name}: only in {'before' if name in left else 'after'}")
            continue
        rows = [{json.dumps(row[:3]): row[3] for row in map(json.loads, f.read_text().splitlines())} for f in (before / name, after / name)]
        for key in {**rows[0], **rows[1]}:
            answers += 1
            if rows[0].get(key) == rows[1].get(key):
                continue
            found: list[tuple[str, object, object]] = []
            _walk(rows[0].get(key, "<absent>"), rows[1].get(key, "<absent>"), "", found)
            for path, b, a in found:
                if _is_sentence(b, a):
                    sentences[(str(b), str(a))] += 1
                else:
                    hard.append(f"{key} {path}: {str(b)[:160]!r} -> {str(a)[:160]!r}")
    print(f"{answers} answers compared; {len(hard)} differences that are not sentences; {len(sentences)} sentences reworded")
    for line in hard[:limit]:
        print("  !", line)
    for (b, a), count in sentences.most_common(limit):
        print(f"  ~ {count}x")
        print("\n".join(f"      {line}" for line in difflib.ndiff([b], [a])))
    return 1 if hard else 0


def main() -> int:
    """The command line of this module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("write")
    first.add_argument("out", type=Path)
    first.add_argument("paths", type=Path, nargs="+")
    first.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    first.add_argument("--only", default="", metavar="REGEX")
    second = commands.add_parser("diff")
    second.add_argument("--common", action="store_true")
    second.add_argument("before", type=Path)
    second.add_argument("after", type=Path)
    second.add_argument("--limit", type=int, default=40)
    options = parser.parse_args()
    if options.command == "write":
        return write(options.out, options.paths, options.jobs, options.only)
    return diff(options.before, options.after, options.limit, options.common)


if __name__ == "__main__":
    sys.exit(main())
