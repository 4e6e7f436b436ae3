"""A SOL capture that was continued in further files is one recording: its first file's name, the size of all, the latest change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tb_sol_plugin import format as F
from tb_sol_plugin.store import files
from tb_sol_plugin.store.files import Entry


def stat_parts(path: str, options: Mapping[str, object]) -> tuple[int, float]:
    """Size and time of change of a recording, now. FileNotFoundError if it is gone."""
    found = files_of(path, options)
    return sum(size for _, size, _ in found), max(changed for _, _, changed in found)


def files_of(path: str, options: Mapping[str, object]) -> list[tuple[str, int, float]]:
    """(path, size, time of change) of every file of a recording, now, in their order. FileNotFoundError if the first is gone."""
    out = [(path, *files.stat(path, options))]
    found = F.PART.search(path)
    if found is not None:
        for part in range(int(found["part"] or 0) + 1, F.MOST_PARTS):
            name = f"{path[: found.start()]}.part{part}{found['ending']}"
            try:
                out.append((name, *files.stat(name, options)))
            except OSError:
                break
    return out


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """One entry per recording: parts that follow each other without a gap are one."""
    out: list[Entry] = []
    by_stem: dict[tuple[str, str], dict[int, Entry]] = {}
    for entry in entries:
        found = F.PART.search(entry.file)
        if found is None:
            out.append(entry)
        else:
            by_stem.setdefault((entry.file[: found.start()], found["ending"]), {})[int(found["part"] or 0)] = entry
    for parts in by_stem.values():
        numbers = sorted(parts)
        first = [n for n in numbers if n - 1 not in parts]
        for start, stop in zip(first, [*first[1:], F.MOST_PARTS], strict=True):
            out.append(_one([parts[n] for n in numbers if start <= n < stop]))
    return out


def _one(parts: Sequence[Entry]) -> Entry:
    head = parts[0]
    return Entry(head.file, head.path, sum(p.size for p in parts), max(p.mtime for p in parts))
