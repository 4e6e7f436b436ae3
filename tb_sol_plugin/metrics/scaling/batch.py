"""Samples of one micro-step on one replica (the atomic batch size), and where that number is from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

TOLD: Final = ("atomic_bsz", "micro_batch_size", "per_device_batch_size", "plan.micro_batch")
"""Names under which a recording's metadata may tell it, the surest first."""
LOOSE: Final = "batch_size"
"""A name that may also mean the batch of all replicas."""
EMBEDDINGS: Final = ("aten::embedding", "aten::embedding_bag")
CONVOLUTIONS: Final = ("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution", "aten::cudnn_convolution")
_MOST: Final = 2**31


@dataclass(frozen=True)
class Batch:
    """samples: 0 unknown. source: words for a person. guessed: worked out from sizes of an input, not told by the program."""

    samples: int = 0
    source: str = ""
    guessed: bool = False


def batch_of(capture: Capture) -> Batch:
    """As the metadata tells it; else as a SOL capture counted it; else the first size of what the model's first layer is given."""
    for name in TOLD:
        for key, value in capture.facts.metadata.items():
            if (key == name or key.rpartition(".")[2] == name) and (found := _whole(value)):
                return Batch(found, f"`{key}` in the recording's metadata")
    loose = next((v for k, v in capture.facts.metadata.items() if k.rpartition(".")[2] == LOOSE), "")
    counted = capture.tables["iterations"]["batch"].to_numpy()
    known = counted[counted > 0]
    if len(known):
        return Batch(int(np.median(known)), "samples of an iteration, as the SOL capture counted them")
    if found := _whole(loose):
        return Batch(found, f"`{LOOSE}` in the recording's metadata, taken as that of one replica", guessed=True)
    return _guess(capture)


def _whole(value: str) -> int:
    try:
        found = int(value)
    except ValueError:
        return 0
    return found if 0 < found < _MOST else 0


def _guess(capture: Capture) -> Batch:
    """From the first embedding or convolution with recorded sizes."""
    table = capture.tables["operators"]
    host = table["host"].to_numpy()
    names = capture.host["name"]
    for wanted, argument in ((EMBEDDINGS, 1), (CONVOLUTIONS, 0)):
        hit = arrays.where(names, wanted.__contains__)
        rows = np.flatnonzero(hit[host]) if len(host) and len(hit) else np.zeros(0, np.int64)
        if not len(rows):
            continue
        start = capture.host["start_ns"].to_numpy()[host[rows]]
        for row in rows[np.argsort(start, kind="stable")][:64].tolist():
            samples = _first_size(str(arrays.pick(table["shapes"], [row])[0]), argument)
            if samples:
                name = str(arrays.pick(names, [host[row]])[0])
                return Batch(samples, f"first size of the input of `{name}`", guessed=True)
    return Batch()


def _first_size(shapes: str, argument: int) -> int:
    try:
        sizes = json.loads(shapes)
    except ValueError:
        return 0
    one = sizes[argument] if isinstance(sizes, list) and len(sizes) > argument else None
    first = one[0] if isinstance(one, list) and one else 0
    return first if isinstance(first, int) and not isinstance(first, bool) and 0 < first < _MOST else 0
