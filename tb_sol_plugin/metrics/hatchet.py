"""Exports a recording as a Hatchet profile, the format that Proton writes and that Hatchet and Proton's viewer read.

    [root, devices]; a frame: {"frame": {"name", "type"}, "metrics": {"time (ns)", "count", "bytes", ...}, "children": []}

Every kernel and copy of the device stands once, below the modules (or phases) and the operator around its launch; sums over the tree
are those of the recording. Copies are frames named `Memcpy HtoD (Pinned -> Device)`: the direction stands in the name, as metrics are
numbers. `flops8` to `flops64` and the `bytes` of kernels are those of the cost models; `flops_estimated` is the part of them that
rests on assumed sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.devices.match import match
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.trees.label_times import module_names
from tb_sol_plugin.metrics.trees.module_tree import module_tree
from tb_sol_plugin.metrics.trees.phases import device_owners, phase_tree
from tb_sol_plugin.metrics.work.work import launches_of, work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, factorize

By: TypeAlias = Literal["module", "phase", "operator"]
Choice: TypeAlias = Literal["auto", "module", "phase", "operator"]
CHOICES: tuple[str, ...] = get_args(Choice)


def hatchet(capture: Capture, by: str = "auto") -> Iterator[bytes]:
    """Exports a recording as JSON, piece by piece. BadQuery for an unknown `by`, Unavailable for a recording without any work."""
    if by not in CHOICES:
        raise BadQuery(f"no tree by {by[:40]!r}", hint=f"choose {', '.join(CHOICES)}", field="by")
    chosen: By = default_by(capture) if by == "auto" else by  # type: ignore[assignment]
    tree = Tree()
    if scope.is_profile(capture) or scope.is_capture(capture):
        labeled = "module" if by == "auto" and (capture.tables["ledger"]["module"].to_numpy() >= 0).any() else by
        add_ledger(tree, capture, labeled)
        add_copies(tree, capture, labeled)
    elif len(capture.device):
        add_device(tree, capture, chosen)
    elif len(capture.host):
        add_host(tree, capture)
    if len(tree.name) == 1:
        raise Unavailable("this recording holds no work to export", hint="record at least one step")
    kind = device_type(capture.facts.vendor)
    return chunks(tree, _devices(capture, tree, kind), kind)


def _devices(capture: Capture, tree: Tree, kind: str) -> dict[str, dict[str, dict[str, object]]]:
    """Returns what is known of the devices with work, by type and index; unknown figures are left out."""
    known = {str(d.id): d for d in capture.facts.devices}
    out: dict[str, dict[str, object]] = {}
    for index in sorted({d for d in tree.device if d}, key=int):
        entry: dict[str, object] = {}
        props = known.get(index)
        if props is not None:
            spec = match(props, vendor=capture.facts.vendor, book=capture.devices) if kind == "HIP" else None
            arch = spec.compute_capability if spec is not None else props.compute_capability.replace(".", "") if kind == "CUDA" else ""
            entry = {name: value for name, value in (("arch", arch), ("num_sms", props.units)) if value}
        out[index] = entry
    return {kind: out} if out else {}


# -- Where the frames of device work stand ---------------------------------------------------------------------------
# below the modules, the phases or the operator around their launch, or below a reason why not.

OUTSIDE = {"module": "(outside every module)", "phase": "(outside every phase)", "operator": "(no operator)"}


class Places(NamedTuple):
    """The places of the device rows in the exported tree.

    node: per device row its place, -1 none. name, parent: per place; a parent stands before what is inside it.
    """

    node: npt.NDArray[np.int64]
    name: list[str]
    parent: list[int]
    kind: str


def default_by(capture: Capture) -> By:
    """Chooses the grouping: by module where any was recorded, else by phase, else by operator."""
    kind = capture.host["kind"].to_numpy()
    if (kind == S.MODULE).any():
        return "module"
    return "phase" if (kind == S.ANNOTATION).any() else "operator"


def places(capture: Capture, by: By) -> Places:
    """Returns the places of all device rows. Backward work stands in the module of its forward operator."""
    if by == "operator":
        return Places(np.full(len(capture.device), -1, np.int64), [], [], "operator")
    if by == "phase":
        phases = phase_tree(capture)
        return Places(device_owners(capture).node.astype(np.int64), phases.name, phases.parent.tolist(), "phase")
    tree = module_tree(capture)
    own = capture.device["module"].to_numpy()
    lost = np.flatnonzero(own < 0)
    forward, _ = at.module_forward_rows(capture, capture.device["operator"].to_numpy()[lost])
    row = own.copy()
    row[lost] = at.nearest(capture, S.MODULE, forward)
    node = np.append(tree.node, -1)[row].astype(np.int64)
    return Places(node, module_names(capture), tree.parent.tolist(), "module")


def reasons(capture: Capture) -> npt.NDArray[np.object_]:
    """Returns per device row why it has no launch here, "" where it has one."""
    link = capture.device["link"].to_numpy()
    return np.select([link == S.BEFORE_WINDOW, link == S.NO_RECORD], [at.BEFORE, at.NO_RECORD], "").astype(object)


# -- Frames of an exported profile -----------------------------------------------------------------------------------
# merged by place, name and device, and written as JSON however deep they stand.


Number = int | float
ROOT: Final = "ROOT"
TIME: Final = "time (ns)"
HOST_TIME: Final = "cpu_time (ns)"
WIDTHS: Final = {"fp4": 4, "fp8": 8, "int8": 8, "fp16": 16, "bf16": 16, "tf32": 32, "fp32": 32, "fp64": 64}
"""Bits of a type, by which Proton tells work apart."""
SUMMED: Final = (TIME, HOST_TIME, "count", "bytes", "without_bytes", *(f"flops{w}" for w in (4, 8, 16, 32, 64)), "flops", "flops_estimated")
"""Metrics in the order in which they are written. Each stands at the frame it belongs to and counts for that frame alone."""


@dataclass
class Tree:
    """One entry per frame; frame 0 is the root. device: index as text, "" where the frame is a scope."""

    name: list[str] = field(default_factory=lambda: [ROOT])
    type: list[str] = field(default_factory=lambda: ["function"])
    device: list[str] = field(default_factory=lambda: [""])
    children: list[list[int]] = field(default_factory=lambda: [[]])
    metrics: list[dict[str, Number]] = field(default_factory=lambda: [{TIME: 0, "count": 0}])
    _known: dict[tuple[int, str, str, str], int] = field(default_factory=dict)

    def at(self, parent: int, name: str, kind: str, device: str = "") -> int:
        """Returns the frame of that name below `parent`, made on first use."""
        key = parent, name, kind, device
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.name)
            self.name.append(name)
            self.type.append(kind)
            self.device.append(device)
            self.children.append([])
            self.metrics.append({})
            self.children[parent].append(found)
        return found

    def add(self, frame: int, metrics: Mapping[str, Number | None]) -> None:
        """Add to the metrics of a frame; None is unknown and adds nothing."""
        own = self.metrics[frame]
        for name, value in metrics.items():
            if value is not None:
                own[name] = own.get(name, 0) + value


def device_type(vendor: str) -> str:
    """Returns what Proton calls the devices of a vendor."""
    return {"nvidia": "CUDA", "amd": "HIP", "xpu": "XPU"}.get(vendor, vendor.upper() or "CPU")


def chunks(tree: Tree, info: object, kind: str) -> Iterator[bytes]:
    """Writes the profile `[root, device information]` as JSON, piece by piece. kind: type of the devices."""
    for name in {n for metrics in tree.metrics for n in metrics}:
        tree.metrics[0].setdefault(name, 0)  # Hatchet sums up the metrics that the root has
    yield b"["
    stack: list[tuple[int, int]] = [(0, 0)]
    while stack:
        frame, done = stack.pop()
        below = tree.children[frame]
        if not done:
            yield _head(tree, frame, kind)
        if done < len(below):
            if done:
                yield b","
            stack += [(frame, done + 1), (below[done], 0)]
        else:
            yield b"]}"
    yield b",\n" + msgspec.json.encode(info) + b"]\n"


def _head(tree: Tree, frame: int, kind: str) -> bytes:
    metrics: dict[str, object] = {n: _plain(tree.metrics[frame][n]) for n in SUMMED if n in tree.metrics[frame]}
    if tree.device[frame]:
        metrics |= {"device_id": tree.device[frame], "device_type": kind}
    head = msgspec.json.encode({"frame": {"name": tree.name[frame], "type": tree.type[frame]}, "metrics": metrics})
    return b"\n" + head[:-1] + b',"children":['


def _plain(value: Number) -> Number:
    """Returns whole amounts as integers: FLOP are large, and exact below 2^53."""
    return int(value) if float(value).is_integer() and abs(value) < 2**63 else value


# -- Device events of a trace as frames ------------------------------------------------------------------------------
# place, operator, then kernel or copy. Sums of time, count and bytes are those of the events.


TYPES: Final = {S.KERNEL: "kernel", S.MEMCPY: "memcpy", S.MEMSET: "memset"}


def copy_name(direction: str, source: str, target: str) -> str:
    """Returns `Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`; kinds that are not known are left out."""
    if direction == "Memset":
        return f"Memset ({target})" if target else "Memset"
    ends = f" ({source or 'Unknown'} -> {target or 'Unknown'})" if source or target else ""
    return f"Memcpy {direction or 'Unknown'}{ends}"


def add_device(tree: Tree, capture: Capture, by: By) -> None:
    """Adds all device rows of `capture`, summed by place, operator, name, kinds of memory and device."""
    device = capture.device
    where = places(capture, by)
    why = reasons(capture)
    operator = device["operator"].to_numpy()
    names = capture.host["name"]
    called = np.where(operator >= 0, arrays.codes(names)[np.maximum(operator, 0)] if len(names) else -1, -1)
    reason, reason_words = pd.factorize(why)
    columns = [where.node, called, reason.astype(np.int64), device["kind"].to_numpy().astype(np.int64)]
    columns += [arrays.codes(device[c]) for c in ("direction", "src_kind", "dst_kind", "name")]
    kernel = device["kind"].to_numpy() == S.KERNEL
    columns[-1] = np.where(kernel, columns[-1], -1)  # copies go by what they are, kernels by their name
    columns += [device["device"].to_numpy()]
    code, first = factorize(columns)
    sums = _sums(capture, code, len(first))
    frames = _place_frames(tree, where.name, where.parent, where.kind)
    words = {c: arrays.pick(device[c], first) for c in ("direction", "src_kind", "dst_kind", "name")}
    kinds, ids = device["kind"].to_numpy()[first], device["device"].to_numpy()[first]
    categories = names.cat.categories
    for group, row in enumerate(first.tolist()):
        lost = str(reason_words[reason[row]])
        if lost:
            place = tree.at(0, lost, "scope")
        elif where.node[row] >= 0:
            place = frames(int(where.node[row]))
        else:
            place = tree.at(0, OUTSIDE[by], "scope") if by != "operator" or called[row] < 0 else 0
        if called[row] >= 0:
            place = tree.at(place, str(categories[called[row]]), "operator")
        kind = int(kinds[group])
        recorded = {c: str(values[group]) for c, values in words.items()}
        name = recorded["name"] if kind == S.KERNEL else copy_name(recorded["direction"], recorded["src_kind"], recorded["dst_kind"])
        frame = tree.at(place, name, TYPES[kind], str(max(int(ids[group]), 0)))
        tree.add(frame, {n: v[group] for n, v in sums.items()})


def _place_frames(tree: Tree, names: list[str], parent: list[int], kind: str) -> Callable[[int], int]:
    """Returns a function that makes the frame of a place, with those around it, on first use."""
    made: dict[int, int] = {-1: 0}

    def frame(node: int) -> int:
        way = []
        while node not in made:
            way.append(node)
            node = parent[node]
        for inner in reversed(way):
            made[inner] = tree.at(made[parent[inner]], names[inner], kind)
        return made[way[0]] if way else made[node]

    return frame


def _sums(capture: Capture, code: Ints, size: int) -> dict[str, list[Number | None]]:
    """Returns per group its metrics, None where it has none."""
    device = capture.device
    duration, data = device["duration_ns"].to_numpy(), device["bytes"].to_numpy()
    moves = device["kind"].to_numpy() != S.KERNEL
    known = moves & (data >= 0)
    without_bytes = np.bincount(code[moves & ~known], minlength=size)
    time, copied = arrays.exact_sums(code, duration, size), arrays.exact_sums(code[known], data[known], size)
    own_bytes = np.bincount(code[known], minlength=size) > 0
    out: dict[str, list[Number | None]] = {
        TIME: time.tolist(),
        "count": np.bincount(code, minlength=size).tolist(),
        "without_bytes": [int(b) or None for b in without_bytes.tolist()],
    }
    work_bytes, flops = _work(capture, code, size)
    both = zip(copied.tolist(), own_bytes.tolist(), work_bytes.tolist(), strict=True)
    out["bytes"] = [int(of_copies) if own else _known(of_work) for of_copies, own, of_work in both]
    return out | {name: [_known(v) for v in values.tolist()] for name, values in flops.items()}


def _known(value: float) -> Number | None:
    return None if value != value or value <= 0 else round(value)


def _work(capture: Capture, code: Ints, size: int) -> tuple[Floats, dict[str, Floats]]:
    """Returns (least traffic of the kernels of each group, FLOP by width): a kernel takes its share, by time, of its operator's work."""
    done = work(capture)
    rows = np.flatnonzero((done.owner >= 0) & (capture.device["kind"].to_numpy() == S.KERNEL)) if len(done.owner) else np.zeros(0, np.int64)
    at = done.owner[rows]
    ops = done.ops
    total = np.bincount(at, capture.device["duration_ns"].to_numpy()[rows], minlength=len(ops)).astype(np.float64)
    share = ratio(capture.device["duration_ns"].to_numpy()[rows].astype(np.float64), total[at])
    modeled = ops["modeled"].to_numpy()[at]
    flop, data = (np.where(modeled, ops[c].to_numpy(dtype=np.float64)[at] * share, np.nan) for c in ("flop", "bytes"))
    traffic = arrays.known_sums(code[rows], data, size)
    dtype = arrays.codes(ops["dtype"])[at]
    words = [str(w) for w in ops["dtype"].cat.categories]
    out: dict[str, Floats] = {}
    for index, word in enumerate(words):
        of_type = (dtype == index) & (np.nan_to_num(flop) > 0)
        if of_type.any():
            width = WIDTHS.get(word)
            name = f"flops{width}" if width else "flops"
            out[name] = out.get(name, 0.0) + np.nan_to_num(arrays.known_sums(code[rows][of_type], flop[of_type], size))
    guessed = ops["estimated"].to_numpy()[at] & (np.nan_to_num(flop) > 0)
    if guessed.any():
        out["flops_estimated"] = arrays.known_sums(code[rows][guessed], flop[guessed], size)
    return traffic, out


def add_host(tree: Tree, capture: Capture) -> None:
    """Adds operators of a recording without device work, by their time on the host."""
    ops = work(capture).ops
    code, first = factorize([arrays.codes(ops["name"]), arrays.codes(ops["dtype"])])
    names, dtypes = arrays.pick(ops["name"], first), arrays.pick(ops["dtype"], first)
    time = np.bincount(code, np.nan_to_num(ops["measured_ns"].to_numpy(dtype=np.float64)), len(first))
    flop, data = (arrays.known_sums(code, ops[c].to_numpy(dtype=np.float64), len(first)) for c in ("flop", "bytes"))
    count = np.bincount(code, minlength=len(first))
    for group, (name, dtype) in enumerate(zip(names.tolist(), dtypes.tolist(), strict=True)):
        width = WIDTHS.get(str(dtype))
        metrics = {HOST_TIME: round(float(time[group])), "count": int(count[group]), "bytes": _known(float(data[group]))}
        tree.add(tree.at(0, str(name), "operator"), {**metrics, f"flops{width or ''}": _known(float(flop[group]))})


# -- Counted work and counted copies as frames, of recordings without events -----------------------------------------
# a SOL capture, or a profile of Proton.


ONLY_COPY = frozenset({"aten::copy_", "aten::_to_copy", "aten::_local_scalar_dense", "aten::_pin_memory"})
"""Operators that do nothing but copy; others (`aten::nonzero`) also compute."""
_LABEL_TYPES = {"module": "module", "phase": "phase", "function": "operator"}


def add_ledger(tree: Tree, capture: Capture, by: str) -> None:
    """Adds rows of the ledger below their labels. by: of a SOL capture module or phase; a profile keeps its own tree.

    An operator that only copied to or from a device stands as that copy (see `add_copies`): count and bytes are the copy's, only a time
    that was measured stays here.
    """
    profile = scope.is_profile(capture)
    frames = _Labels(tree, capture, by)
    ops = work(capture).ops
    if not len(ops):
        return
    table = capture.tables[S.LEDGER.name]
    rows = ops["ledger"].to_numpy()
    names, dtypes = arrays.pick(ops["name"], np.arange(len(ops))), arrays.pick(ops["dtype"], np.arange(len(ops)))
    label = frames.label_of(table)[rows]
    count = launches_of(ops)
    numbers = {n: ops[n].to_numpy(dtype=np.float64) for n in ("measured_ns", "flop", "bytes")}
    device = table["device"].to_numpy()[rows]
    on_host = scope.on_cpu(capture) and not profile
    copied = Counter[tuple[int, str]]() if profile else _copied(capture, frames)
    for i in range(len(ops)):
        where = "" if on_host else str(max(int(device[i]), 0))
        stated = profile and not count[i] and numbers["measured_ns"][i] != numbers["measured_ns"][i]
        place = frames.of(int(label[i]))
        key, calls = (int(label[i]), str(names[i])), int(count[i])
        moved = min(copied[key], calls)
        copied[key] -= moved
        rest = (calls - moved) / calls if calls else 1.0  # calls of a row are alike in size
        if not rest and _rounded(numbers["measured_ns"][i]) is None:
            continue
        frame = place if stated else tree.at(place, str(names[i]), "kernel" if profile else "operator", where)
        width = WIDTHS.get(str(dtypes[i]))
        tree.add(
            frame,
            {
                (HOST_TIME if on_host else TIME): _rounded(numbers["measured_ns"][i]),
                "count": calls - moved or None,
                "bytes": _rounded(numbers["bytes"][i] * rest) if rest else None,
                f"flops{width or ''}": _rounded(numbers["flop"][i]) or None,
            },
        )


def _copied(capture: Capture, frames: _Labels) -> Counter[tuple[int, str]]:
    """Returns counted copies with an end on a device, by label and operator, of operators that only copy."""
    table = capture.tables[S.COPIES.name]
    on_device = np.maximum(table["src_device"].to_numpy(), table["dst_device"].to_numpy()) >= 0
    on_device &= arrays.where(table["name"], ONLY_COPY.__contains__)
    out: Counter[tuple[int, str]] = Counter()
    names = arrays.pick(table["name"], np.arange(len(table)))
    for label, name, count, use in zip(frames.label_of(table).tolist(), names, table["count"].tolist(), on_device.tolist(), strict=True):
        if use:
            out[label, str(name)] += count
    return out


def add_copies(tree: Tree, capture: Capture, by: str) -> None:
    """Adds rows of `copies` below their labels. What a SOL capture counted in the host's memory is an operator of its ledger already."""
    table = capture.tables[S.COPIES.name]
    frames = _Labels(tree, capture, by)
    label = frames.label_of(table)
    words = {c: arrays.pick(table[c], np.arange(len(table))) for c in ("direction", "src_kind", "dst_kind")}
    columns = {c: table[c].tolist() for c in ("count", "bytes", "without_bytes", "time_ns", "call_ns", "src_device", "dst_device")}
    counted = not scope.is_profile(capture)
    for i in range(len(table)):
        if counted and max(columns["src_device"][i], columns["dst_device"][i]) < 0:
            continue
        direction = str(words["direction"][i])
        name = copy_name(direction, str(words["src_kind"][i]), str(words["dst_kind"][i]))
        where = max(columns["src_device"][i], columns["dst_device"][i], 0)
        frame = tree.at(frames.of(int(label[i])), name, "memset" if direction == "Memset" else "memcpy", str(where))
        without_bytes = columns["without_bytes"][i]
        tree.add(
            frame,
            {
                TIME: _rounded(columns["time_ns"][i]),
                HOST_TIME: _rounded(columns["call_ns"][i]),
                "count": columns["count"][i],
                "bytes": columns["bytes"][i] if without_bytes < columns["count"][i] else None,
                "without_bytes": without_bytes or None,
            },
        )


class _Labels:
    """Frames of labels, made with those around them on first use."""

    def __init__(self, tree: Tree, capture: Capture, by: str) -> None:
        labels = capture.tables[S.LABELS.name]
        self.tree = tree
        self.every = scope.is_profile(capture)
        self.by = by if by in ("module", "phase") else "phase"
        self.what = [str(w) for w in arrays.pick(labels["what"], np.arange(len(labels)))]
        self.name = [str(n) for n in arrays.pick(labels["name"], np.arange(len(labels)))]
        self.parent = labels["parent"].tolist()
        self.made: dict[int, int] = {-1: 0}

    def label_of(self, table: pd.DataFrame) -> npt.NDArray[np.int32]:
        """Returns per row of `ledger` or `copies` the innermost label that makes a frame."""
        out: npt.NDArray[np.int32] = table["phase" if self.every else self.by].to_numpy()
        for column in ("module", "function") if self.every else ():
            out = np.maximum(out, table[column].to_numpy())
        return out

    def of(self, label: int) -> int:
        way = []
        while label not in self.made:
            way.append(label)
            label = self.parent[label]
        frame = self.made[label]
        for inner in reversed(way):
            if self.every or self.what[inner] == self.by:
                frame = self.tree.at(frame, self.name[inner] or f"({self.what[inner]})", _LABEL_TYPES.get(self.what[inner], "scope"))
            self.made[inner] = frame
        return frame


def _rounded(value: float) -> Number | None:
    return None if value != value else round(value)
