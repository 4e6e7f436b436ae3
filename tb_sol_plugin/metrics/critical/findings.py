"""Says what to change, from the critical path: each saving is that of a replay, with the change that it states.

Off where the graph is graded poor. A saving that the error of the graph could make up is possible, not proven.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.metrics.critical import changes as W
from tb_sol_plugin.metrics.critical.edges import EVENT, HANDOFF, SYNC
from tb_sol_plugin.metrics.critical.items import edge_items, items, keys_of
from tb_sol_plugin.metrics.critical.layout import Chosen, layout_of, of_edges
from tb_sol_plugin.metrics.critical.parts import class_sums
from tb_sol_plugin.metrics.critical.path import KERNEL_KINDS, LABELS, PLACE, path_of
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.critical.selection import CLASSES_OF, Kind, undropped
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.metrics.time.frames import program_frames
from tb_sol_plugin.metrics.time.kernels import short_kernel_names
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Finding, Link
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human

LEAST: Final = 0.005
"""A saving of a smaller share of the step is no finding."""
MOST_SYNCS: Final = 3
HOT: Final = 0.05
"""Share of the device time from which a kernel that is not on the path is worth a word."""
SHARES: Final = {
    "host-bound": (0.40, CLASSES_OF["host"]), "launch-bound": (0.15, CLASSES_OF["launches"]),
    "dataloader-on-path": (0.02, ("dataloader",)), "copy-on-path": (0.02, ("copy", "memset")),
    "communication-on-path": (0.05, ("communication",)),
}  # fmt: skip
"""Share of the path that the classes of a rule have at least."""
CHANGES: Final[dict[str, tuple[Kind, float, str, str, str, str]]] = {
    "host-bound": ("host", 0.5, "Python and operators on the host hold the step", "half of their time", "torch.compile(model)", "host"),
    "launch-bound": ("cuda_graph", 0.0, "Launches hold the step", "operators, calls and launches of one CUDA graph",
                     'torch.compile(model, mode="reduce-overhead")', "bar-ink"),
    "dataloader-on-path": ("dataloader", 0.0, "Data loading holds the step", "loading behind the step",
                           "DataLoader(dataset, num_workers=8, persistent_workers=True, prefetch_factor=4)", "host"),
    "copy-on-path": ("copies", 0.0, "Copies hold the step", "copies behind other work",
                     'batch.to("cuda", non_blocking=True)  # from pinned memory, on a stream of its own', "memcpy"),
    "communication-on-path": ("communication", 0.0, "Communication holds the step", "collectives behind computation",
                              "DistributedDataParallel(model, bucket_cap_mb=25)", "communication"),
}  # fmt: skip
"""Change, scale, cause, what the saving assumes, code and color of each rule."""

LATENCIES: Final = {
    "serial-streams": (0.05, "event_wait", "stream.wait_event(event)  # where its data is needed, not before"),
    "handoff": (0.02, "handoff", ""),
}
"""Share of the path at least, class and code of the rules about waits between streams and threads."""


def findings(capture: Capture, where: Scope, step: str = "", waiting: float = 0.0) -> list[Finding]:
    """Returns what to change, the largest saving first; none where the path is not well enough explained.

    step: of the query, for links. waiting: share of the path that is known to be waiting for other ranks.
    """
    trust = trust_of(capture, where)
    if trust.grade == "poor":
        return []
    return _Judge(capture, where, trust.error, step, waiting).found()


class _Judge:
    """Judges one selection. step: mean length of a step, ns. error: of a saving, ns. waiting: share of the path, for other ranks."""

    def __init__(self, capture: Capture, where: Scope, error: float, step: str, waiting: float) -> None:
        self.waiting = waiting
        self.selected = {"step": step} if step else {}
        self.capture, self.where = capture, where
        self.layout, self.path = layout_of(capture, where), path_of(capture, where)
        self.window = self.layout.window
        self.steps = len(self.path.rows)
        total = int((self.path.end - self.path.begin).sum())
        self.step, self.error = total / self.steps, error * total / self.steps
        self.share = class_sums(self.path) / max(total, 1)

    def found(self) -> list[Finding]:
        out = [self._of_classes(rule) for rule in SHARES]
        out += [*self._syncs(), self._kernel(), self._latency("serial-streams", EVENT), self._latency("handoff", HANDOFF)]
        kept = sorted((f for f in out if f is not None), key=lambda f: (f.candidate, -(f.saving_ns or 0)))
        return [*kept, *self._off_path()]

    def _finding(self, rule: str, saved: float, title: str, evidence: str, fix: str, color: str, change: dict[str, str]) -> Finding | None:
        if saved < LEAST * self.step:
            return None
        saving = round(saved)
        evidence = f"{evidence} By replay of all dependencies, ± {human(round(self.error), 'ns')}."
        return Finding(
            rule=rule, title=title, saving_ns=saving, evidence=evidence,
            share=saving / self.step if self.step else None, fix=fix, link=Link("what_if", change | self.selected, "What if"),
            color=color,
            candidate=saving < self.error,
        )  # fmt: skip

    def _saved(self, chosen: Chosen, scale: float = 0.0) -> float:
        """Returns what a step takes less where what is chosen is scaled, ns."""
        return chosen.saved_ns(chosen.scaled(scale)) / self.steps

    def _without(self, waits: Ints) -> Chosen:
        """Returns some waits as taken away."""
        gone = undropped(self.window, waits)
        return of_edges(self.capture, self.layout, gone, drops=gone)

    def _of_classes(self, rule: str) -> Finding | None:
        least, classes = SHARES[rule]
        share = float(self.share[[PLACE[c] for c in classes]].sum())
        if share < least:
            return None
        change, scale, title, assumed, fix, color = CHANGES[rule]
        plan = W.plan_of(self.capture, self.where, (W.Change(change=change),))
        saved = self._saved(plan.chosen, scale)
        evidence = f"{human(share, 'ratio')} of the critical path; the saving is that of {assumed}."
        found = self._finding(rule, saved, title, evidence, fix, color, {"change": change, "scale": f"{scale:g}"})
        if found is None or rule != "communication-on-path" or not self.waiting:
            return found
        waits, transfer = (human(part, "ratio") for part in (self.waiting, share - self.waiting))
        told = f"{waits} of the critical path is waiting for other ranks, {transfer} transfer."
        if 2 * self.waiting < share:
            return msgspec.structs.replace(found, evidence=f"{found.evidence} {told}")
        evidence = f"{told} The saving is that of collectives that take no time. By replay, ± {human(round(self.error), 'ns')}."
        title, link = "Waiting for other ranks holds the step", Link("stragglers", {}, "Who comes last, and why")
        return msgspec.structs.replace(found, title=title, evidence=evidence, fix="", link=link)

    def _syncs(self) -> list[Finding]:
        """Returns the operators, or calls outside of any, whose waits for the device are on the path."""
        window, nodes = self.window, self.window.graph.nodes
        held = window.edge_places(self.path.edge[self.path.edge >= 0])
        on_path = np.unique(held[window.kind[held] == SYNC])
        if not len(on_path):
            return []
        waits = np.flatnonzero(window.kind == SYNC)
        call = nodes.row[window.in_graph(window.target[waits])]
        around = at.nearest(self.capture, S.OPERATOR, call)
        names = arrays.pick(self.capture.host["name"], np.where(around >= 0, around, call))
        own = names[np.isin(waits, on_path)]
        out = []
        for name in dict.fromkeys(own.tolist()):
            saved = self._saved(self._without(waits[names == name]))
            count = int((own == name).sum())
            where = self._line(call[(names == name) & np.isin(waits, on_path)])
            evidence = f"{human(count, 'count')} waits of the host on the critical path{where}; the saving is that of code without them."
            title = f"The host waits for the device in `{name}`"
            found = self._finding("sync-stalls", saved, title, evidence, "keep values on the device: log .item() every n-th step", "host",
                                  {"change": "syncs", "inside": str(name)})  # fmt: skip
            out += [found] if found is not None else []
        return sorted(out, key=lambda f: -(f.saving_ns or 0))[:MOST_SYNCS]

    def _line(self, call: np.ndarray) -> str:
        """Returns the line of the program, and the module, that most of some calls come from."""
        h, names = at.host(self.capture), self.capture.host["name"]
        frame = tree.nearest(program_frames(self.capture), h.parent, h.stop, call.astype(np.int32), h.start[call], h.end)
        module = at.nearest(self.capture, S.MODULE, call)
        texts = [most for rows in (frame, module) if (most := _most(arrays.pick(names, rows[rows >= 0])))]
        return f", most in {' of '.join(f'`{t}`' for t in texts)}" if texts else ""

    def _kernel(self) -> Finding | None:
        frame = items(self.capture, self.where, "kernel")
        half, kinds = frame["saved_half_ns"].to_numpy(), [PLACE[f"kernel_{k}"] for k in KERNEL_KINDS]
        rows = np.flatnonzero((half > 0) & np.isin(frame["kind"].to_numpy(), kinds))
        if not len(rows):
            return None
        best = frame.iloc[int(rows[half[rows].argmax()])]
        saved = int(best["saved_half_ns"]) / self.steps
        if saved < 0.02 * self.step:
            return None
        name = short_kernel_names(self.capture, [best["name"]]).get(best["name"], best["name"])
        share = human(int(best["time_ns"]) / self.steps / self.step, "ratio")
        evidence = f"{share} of the critical path; the saving is that of half of its time."
        return self._finding("kernel-on-path", saved, f"`{name}` holds the step", evidence, "", "compute",
                             {"change": "item", "by": "kernel", "item": str(best["name"]), "scale": "0.5"})  # fmt: skip

    def _latency(self, rule: str, kind: int) -> Finding | None:
        least, name, fix = LATENCIES[rule]
        share = float(self.share[PLACE[name]])
        if share < least:
            return None
        saved = self._saved(of_edges(self.capture, self.layout, np.flatnonzero(self.window.kind == kind)))
        evidence = f"{human(share, 'ratio')} of the critical path; the saving is that of no time for them."
        query = {"change": "item", "by": "class", "item": LABELS[name], "scale": "0"}
        return self._finding(rule, saved, f"{LABELS[name]} hold the step", evidence, fix, "norm", query)

    def _off_path(self) -> list[Finding]:
        """Returns kernels with much device time that gain nothing when they are faster, as information."""
        keys = keys_of(self.capture, "kernel")
        device = B.classes(self.capture) == B.COMPUTATION
        inside = np.isin(self.capture.device["step"].to_numpy(), self.path.rows) if self.where.rows else np.ones(len(device), np.bool_)
        rows = np.flatnonzero(device & inside)
        time = arrays.exact_sums(keys.device[rows], self.capture.device["duration_ns"].to_numpy()[rows], len(keys.names))
        whole = int(time.sum())
        hot = [code for code in np.argsort(-time, kind="stable")[:20].tolist() if time[code] > HOT * whole > 0]
        of_edge = edge_items(self.capture, self.window, keys, "kernel") if hot else np.zeros(0, np.int64)
        out = []
        for code in hot:
            saved = self._saved(of_edges(self.capture, self.layout, np.flatnonzero(of_edge == code)))
            if saved > 0.01 * time[code] / self.steps:
                continue
            full = str(keys.names[code])
            name = short_kernel_names(self.capture, [full]).get(full, full)
            share = human(int(time[code]) / whole, "ratio")
            out.append(Finding(
                rule="off-path-hot-kernel", title=f"`{name}` gains nothing when it is faster",
                evidence=f"{share} of the device time, but other work holds the step: at no time at all it would save "
                f"{human(round(saved), 'ns')}.", color="other",
                link=Link("what_if", {"change": "item", "by": "kernel", "item": full, "scale": "0"} | self.selected, "What if"),
            ))  # fmt: skip
        return out


def _most(texts: np.ndarray) -> str:
    """Returns the most frequent text, "" of none."""
    values, count = np.unique(texts.astype(str), return_counts=True)
    return str(values[int(count.argmax())]) if len(values) else ""
