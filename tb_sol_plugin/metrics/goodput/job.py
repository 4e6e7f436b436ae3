"""Tells which runs are recordings of one job: by the model, the device and the optimizer that each of them shows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.metrics.time import attribution
from tb_sol_plugin.metrics.trees.module_tree import module_class_name
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import ReducedFacts
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

WEIGHTS: Final[Mapping[str, int]] = {
    "aten::linear": 1, "aten::embedding": 0, "aten::conv1d": 1, "aten::conv2d": 1, "aten::conv3d": 1, "aten::layer_norm": 2,
    "aten::batch_norm": 1,
}  # fmt: skip
"""Operators that are given a weight, and which of their inputs it is."""
WRAPPERS: Final = re.compile(r"DistributedDataParallel|DataParallel|FullyShardedDataParallel|FSDP\w*|OptimizedModule")
"""Classes of modules that stand around a model in some of its runs and not in others."""
STEPPED: Final = re.compile(r"Optimizer\.step#(\w+)\.step")
MOST: Final = 4_000
"""Different weights or classes that an identity carries at most; a recording with more has none of that kind."""
PROOF: Final = (
    "capture(..., model=model) records the parameters, record_shapes=True the weights' sizes, with_stack=True the names of modules"
)


class Identity(msgspec.Struct, frozen=True):
    """What a recording shows of its model and optimizer.

    parameters: of the model, 0 unknown. weights: sizes that operators were given, each with its calls in parts of the smallest whole
    pattern ("aten::linear [4096, 1024] x 2"), so that steps and micro-steps do not matter. modules: classes with their instances
    ("Linear x 12"). Both empty where unknown. optimizer: its class, "" unknown.
    """

    parameters: int = 0
    weights: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    optimizer: str = ""


def identity_of(capture: Capture) -> Identity:
    """Reads what a recording shows of its model and optimizer."""
    text = capture.facts.metadata.get("model.parameters", "")
    parameters = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return Identity(parameters, _weights(capture), _modules(capture), _optimizer(capture))


def _in_whole_steps(capture: Capture, start: Ints) -> np.ndarray:
    """Returns which host times lie in complete steps; all of them where none is complete."""
    table = capture.steps
    table = table[table["complete"].to_numpy()] if len(table) else table
    if not len(table):
        return np.ones(len(start), bool)
    first, last = table["host_start_ns"].to_numpy(), table["host_end_ns"].to_numpy()
    at = np.searchsorted(first, start, side="right") - 1
    return np.asarray((at >= 0) & (start < last[np.maximum(at, 0)]))


def _weights(capture: Capture) -> tuple[str, ...]:
    """Returns the sizes of weights with how often each is used, in parts of what is used least."""
    table = capture.tables["operators"]
    host = table["host"].to_numpy()
    names = capture.host["name"]
    rows = np.flatnonzero(attribution.where_named(capture, WEIGHTS.__contains__)[host]) if len(host) else np.zeros(0, np.int64)
    rows = rows[_in_whole_steps(capture, capture.host["start_ns"].to_numpy()[host[rows]])]
    if not len(rows):
        return ()
    name, shapes = arrays.codes(names)[host[rows]], arrays.codes(table["shapes"])[rows]
    code, first = arrays.factorize([name, shapes])
    calls = np.bincount(code, minlength=len(first))
    used: Counter[str] = Counter()
    texts, sizes = arrays.pick(names, host[rows[first]]), arrays.pick(table["shapes"], rows[first])
    for text, size, count in zip(texts.tolist(), sizes.tolist(), calls.tolist(), strict=True):
        weight = _weight(str(size), WEIGHTS[str(text)])
        if weight:
            used[f"{text} {weight}"] += count
    if not used or len(used) > MOST:
        return ()
    part = int(np.gcd.reduce(np.array([*used.values()], np.int64)))
    return tuple(f"{text} x {count // part}" for text, count in sorted(used.items()))


def _weight(shapes: str, argument: int) -> str:
    try:
        sizes = json.loads(shapes)
    except (ValueError, RecursionError):
        return ""
    one = sizes[argument] if isinstance(sizes, list) and len(sizes) > argument else None
    return str(one) if isinstance(one, list) and one and all(isinstance(n, int) for n in one) else ""


def _modules(capture: Capture) -> tuple[str, ...]:
    """Returns classes of modules that were called, each with its instances; without what wraps a whole model."""
    h = capture.host
    text = arrays.coded(h["name"])
    used = arrays.in_use(text.codes[attribution.of_kind(capture, S.MODULE)], len(text.categories))
    instances = arrays.spelled(text.categories, used)
    of = Counter(module_class_name(name) for name in instances)
    kept = {name: count for name, count in of.items() if not WRAPPERS.fullmatch(name)}
    return tuple(f"{name} x {count}" for name, count in sorted(kept.items())) if len(kept) <= MOST else ()


def _optimizer(capture: Capture) -> str:
    """Returns the class whose steps were recorded, else the class that the recorder saw."""
    names = [str(name) for name in capture.host["name"].cat.categories.tolist()]
    found = sorted({m[1] for name in names if name.startswith("Optimizer.step#") and (m := STEPPED.fullmatch(name))})
    if found:
        return ", ".join(found)
    seen = capture.facts.metadata.get("plan.optimizer.from", "")
    return seen if re.fullmatch(r"[A-Z]\w+", seen) else ""


# -- Comparison ------------------------------------------------------------------------------------------------------


def difference(one: Identity, facts: ReducedFacts, other: Identity, other_facts: ReducedFacts, name: str) -> str:
    """Returns in what one run is not the job of the other, as text; "" where nothing known differs. name: of the other run."""
    mine, its = _device(facts), _device(other_facts)
    if mine and its and mine != its:
        return f"it ran on {mine}, `{name}` on {its}"
    if one.parameters and other.parameters and one.parameters != other.parameters:
        counts = [human(n, "count") for n in (one.parameters, other.parameters)]
        return f"its model has {counts[0]} parameters, that of `{name}` {counts[1]}"
    if one.modules and other.modules and one.modules != other.modules:
        return f"its modules are not those of `{name}`: {_first(one.modules, other.modules)}"
    if one.weights and other.weights and one.weights != other.weights:
        return f"its weights are not those of `{name}`: {_first(one.weights, other.weights)}"
    if one.optimizer and other.optimizer and one.optimizer != other.optimizer:
        return f"its optimizer is {one.optimizer}, that of `{name}` {other.optimizer}"
    return ""


def unproven(one: Identity, facts: ReducedFacts, other: Identity, other_facts: ReducedFacts, name: str) -> str:
    """Returns what is missing to know that one run is the job of the other, where nothing known differs; "" where it is known."""
    if not (_device(facts) and _device(other_facts)):
        return f"nothing proves that it is one job with `{name}`: a device is not recorded"
    for of in ("parameters", "modules", "weights"):
        if getattr(one, of) and getattr(other, of):
            return ""
    return f"nothing proves that it is one job with `{name}`: no parameters, weights or modules are recorded of both"


def _device(facts: ReducedFacts) -> str:
    """Returns the names of a recording's devices, "a CPU" where it used none, "" unknown."""
    return ", ".join(sorted(facts.devices)) or ("" if facts.vendor else "a CPU")


def _first(mine: Sequence[str], its: Sequence[str]) -> str:
    """Returns the first thing that one of two has and the other has not, or has in another number."""
    has, had = dict(x.rsplit(" x ", 1) for x in mine), dict(x.rsplit(" x ", 1) for x in its)
    for name in [*has, *had]:
        if has.get(name) != had.get(name):
            return f"{has.get(name, 'no')} {name} instead of {had.get(name, 'none')}"
    return ""
