"""Prepares folders of the capture samples: empties them, and removes the name of the machine from recordings."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

from record_cpu import stripped

HERE = Path(__file__).resolve().parent
HOST = "worker0"
LIMITS = str(HERE / "sol_devices.json")
"""What the machine that recorded the samples reaches."""
sys.path.append(str(HERE.parent))  # so that the samples run from a checkout that is not installed


def fresh(folder: Path) -> Path:
    """The folder, without the recordings of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.sol.jsonl*"), *folder.glob("*.pt.trace.json*"), *folder.glob("events.out.tfevents.*")]:
        old.unlink()
    return folder


def neutral(folder: Path) -> None:
    """Removes host and process from names and contents, so that a sample does not name the machine that made it."""
    for path in sorted(folder.glob("*.sol.jsonl")):
        header, _, rest = path.read_text(encoding="utf-8").partition("\n")
        fields = json.loads(header)
        pid, fields["host"], fields["pid"] = fields["pid"], HOST, 1000 + fields["rank"]
        name = re.sub(rf"^.+(?=_rank\d+_{pid}_)", HOST, path.name).replace(f"_{pid}_", f"_{fields['pid']}_", 1)
        path.unlink()
        path.with_name(name).write_text(json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n" + rest, encoding="utf-8")
    for path in sorted(folder.glob("*.pt.trace.json*")):
        packed = path.suffix == ".gz"
        text = stripped(gzip.decompress(path.read_bytes()).decode() if packed else path.read_text(encoding="utf-8"))
        path.unlink()
        name = re.sub(r"^.+(?=_rank\d+)", HOST, path.name).removesuffix(".gz") + ".gz"
        path.with_name(name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    for path in folder.glob("events.out.tfevents.*"):
        time = path.name.split(".")[3]
        path.rename(path.with_name(f"events.out.tfevents.{time}.{HOST}"))
    for path in sorted(folder.iterdir()):
        print(f"{path.relative_to(folder.parent)}  {path.stat().st_size / 1e3:.0f} kB", file=sys.stderr)
