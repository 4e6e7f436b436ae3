"""Attributes calls to modules, phases and directions by the sequence numbers of autograd's nodes.

A node of autograd gets the next number of its thread just before the forward operator runs, so in the backward pass
the number identifies the forward operator of a node. That is the key which a profiler's arrows from forward to backward use as well.

    no node at work           forward work of the innermost open module; nodes made since the last call are noted under its labels
    a node at work            backward work, under the labels that were noted for its number
    ... and modules opened since `backward()` began, or gradients enabled in a backward pass that makes no graph
                              forward work that runs again (checkpointing), under the module that runs

The names of torch that this needs are private. `available()` tests for them; without them `mode="hooks"` is the fallback.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch

from tb_sol_plugin.capture.loop.labels import NONE, Labels, Stack
from tb_sol_plugin.capture.loop.phases import PhaseStack
from tb_sol_plugin.format import BACKWARD, RECOMPUTE

ForwardLabels: TypeAlias = "tuple[int, int, int]"
"""Labels of a forward operator: module, phase, function."""
Context: TypeAlias = "tuple[int, int, int, int, int]"
"""Labels and flags of a call: module, phase, phase of the forward operator, function, flags."""
RowKey: TypeAlias = "tuple[int, int, int, int, int, int]"
"""Id of a signature, module, phase, forward phase, function, flags, as `format.LEDGER_ROW` names them."""
Row: TypeAlias = "list[int]"
"""[calls, summed time in ns; -1 not timed]"""

NO_LABELS: Final[ForwardLabels] = (NONE, NONE, NONE)
UNNUMBERED: Final = 1 << 63
"""Nodes that accumulate gradients have a number beyond this instead of one of their own."""
NO_PASS: Final = -1
GAP: Final = 4096
"""Most nodes between two calls that are noted."""
UNSEEN: Final = "backward of work that was not recorded"


def available() -> bool:
    """Returns whether this torch gives the node at work and the numbers of nodes."""
    with torch.inference_mode(False), torch.enable_grad():
        made = torch.ones((), device="cpu", requires_grad=True).mul(1.0).grad_fn
    return (
        hasattr(torch._C, "_current_autograd_node")
        and hasattr(getattr(torch._C, "_autograd", None), "_get_sequence_nr")
        and hasattr(made, "_sequence_nr")  # the class of nodes names it since 2.5, nodes had it before
    )


current_node: Callable[[], object] = getattr(torch._C, "_current_autograd_node", lambda: None)
next_number: Callable[[], int] = getattr(getattr(torch._C, "_autograd", None), "_get_sequence_nr", lambda: 0)
grad_enabled: Callable[[], bool] = torch.is_grad_enabled
running_pass: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: NO_PASS)


class BackwardPass:
    """Describes a running `backward()`: its thread, how many modules were open, the phase, and whether it makes a graph."""

    __slots__ = ("depth", "makes_graph", "phase", "thread")

    def __init__(self, thread: ThreadState, makes_graph: bool) -> None:
        self.thread, self.makes_graph = thread, makes_graph
        self.depth = len(thread.modules)
        self.phase = thread.phase()


class ThreadState:
    """Knows of one thread its open labels, the labels of its forward operators by number, its running backward passes."""

    # autograd_worker: works for a backward pass that another thread began. in_backward: that, or a pass runs here, so that every call
    # has to find its node.
    __slots__ = (
        "attribution", "autograd_worker", "forward_labels", "functions", "in_backward", "last", "modules", "number", "passes", "phases",
        "rows",
    )  # fmt: skip

    def __init__(self, attribution: Attribution, rows: dict[RowKey, Row]) -> None:
        self.attribution = attribution
        self.modules: list[int] = attribution.modules.open
        self.functions: list[int] = attribution.functions.open
        self.phases: list[int] = attribution.phases.open
        self.number = next_number()
        self.forward_labels: dict[int, ForwardLabels] = {}
        self.last: ForwardLabels = NO_LABELS
        self.passes: list[BackwardPass] = []
        self.autograd_worker = self.in_backward = False
        self.rows = rows

    def phase(self) -> int:
        """Returns the phase of this thread, or of the backward pass on a thread of autograd."""
        if self.phases:
            return self.phases[-1]
        running = self.attribution.running
        if self.passes or not running:
            return NONE if self.passes else self.attribution.phases.inheriting()
        return running[-1].phase

    def note(self, number: int, labels: ForwardLabels) -> None:
        """Notes that nodes up to `number` (not included) were made under these labels."""
        if number - self.number == 1:
            self.forward_labels[number - 1] = labels
        else:
            self.forward_labels.update(dict.fromkeys(range(max(self.number, number - GAP), number), labels))
        self.number = number

    def note_node(self, node: object) -> None:
        """Notes the node that a call without work may have made in a backward pass."""
        number = next_number()
        if number != self.number:
            context = self.labels_in_backward(node)
            self.note(number, (context[0], context[2] if context[4] else context[1], context[3]))

    def labels_of_forward(self) -> Context:
        """Returns the labels of a call outside of any backward pass."""
        functions = self.functions
        return self.modules[-1] if self.modules else NONE, self.phase(), NONE, functions[0] if functions else NONE, 0

    def labels_in_backward(self, node: object) -> Context:
        """Returns the labels of a call in a backward pass. node: at work on this thread, None in what torch runs at the end of a pass."""
        modules, phases, passes = self.modules, self.phases, self.passes
        if passes and node is not None:  # the usual case first: plain backward work, of which no graph is made
            begun = passes[-1]
            number: int = node._sequence_nr()  # type: ignore[attr-defined]
            found = begun.thread.forward_labels.get(number) if number < UNNUMBERED else self.last
            if found is not None and len(modules) <= begun.depth and not grad_enabled():
                self.last = found
                return found[0], phases[-1] if phases else NONE, found[1], found[2], BACKWARD
        phase = phases[-1] if phases else self.phase()
        if passes:
            here: BackwardPass | None = passes[-1]
            depth = passes[-1].depth
        else:
            running = self.attribution.running
            here, depth = running[-1] if running else None, 0
        if node is None:
            if passes or running_pass() != NO_PASS:
                return modules[-1] if len(modules) > depth else NONE, phase, NONE, NONE, BACKWARD
            return self.labels_of_forward()
        if not self.in_backward:
            self.in_backward = self.autograd_worker = True
        forward = self._forward_of(node, here)
        deeper = len(modules) > depth
        if deeper or (grad_enabled() and here is not None and not here.makes_graph):
            module = self.attribution.recomputed_label(modules, depth, forward[0]) if deeper else forward[0]
            context = module, phase, forward[1], self.functions[0] if self.functions else NONE, RECOMPUTE
        else:
            context = forward[0], phase, forward[1], forward[2], BACKWARD
        made = next_number()
        if made != self.number:
            self.note(made, (context[0], forward[1], context[3]))
        return context

    def _forward_of(self, node: object, here: BackwardPass | None) -> ForwardLabels:
        number: int = node._sequence_nr()  # type: ignore[attr-defined]
        if number >= UNNUMBERED:
            return self.last  # a gradient is accumulated right after the node that made it
        home = here.thread if here is not None else self
        found = home.forward_labels.get(number)
        if found is None:
            found = self.attribution.labels_of_other_threads(number, home)
        if found is None:
            self.attribution.lost[UNSEEN] += 1
            found = NO_LABELS
        self.last = found
        return found


class Attribution:
    """Finds the labels of calls by the threads of one sampled step and the backward passes that run in it.

    lost: counter of reasons that it adds to. From `attach` to `detach` it replaces the function by which `torch.autograd` starts its
    engine, so as to know where a backward pass begins.
    """

    def __init__(self, labels: Labels, modules: Stack, phases: PhaseStack, functions: Stack, lost: Counter[str]) -> None:
        self.labels, self.modules, self.phases, self.functions, self.lost = labels, modules, phases, functions, lost
        self.local = threading.local()
        self.threads: list[ThreadState] = []
        self.running: list[BackwardPass] = []
        self.begins: Callable[[], ThreadState | None] = self.thread_state
        self._places: dict[tuple[int, int, int], int] = {}
        self._lock = threading.Lock()

    def add_thread(self, rows: dict[RowKey, Row]) -> ThreadState:
        """Makes a new state of the calling thread."""
        made = self.local.state = ThreadState(self, rows)
        with self._lock:
            self.threads.append(made)
        return made

    def labels_of_other_threads(self, number: int, home: ThreadState) -> ForwardLabels | None:
        """Returns the labels of a forward operator that ran on another thread than the one which called `backward()`."""
        for thread in self.threads:
            if thread is not home and number in thread.forward_labels:
                return thread.forward_labels[number]
        return None

    def recomputed_label(self, modules: Sequence[int], depth: int, forward: int) -> int:
        """Returns the label of a module that runs again: below the module it ran in at first, whose labels are no longer open.

        modules: the open ones. depth: how many of them were open when `backward()` began. forward: label of the node at work.
        """
        top, outermost = modules[-1], modules[depth]
        key = (outermost, top, forward)
        found = self._places.get(key)
        if found is None:
            known = self.labels.known
            first = known[outermost]
            parent = forward
            while parent != NONE and (known[parent].name, known[parent].class_name) != (first.name, first.class_name):
                parent = known[parent].parent
            parent = forward if parent == NONE else known[parent].parent
            chain = [top]
            while chain[-1] != outermost and known[chain[-1]].parent != NONE:
                chain.append(known[chain[-1]].parent)
            for label in reversed(chain):
                parent = self.labels.id_of("module", parent, known[label].name, known[label].class_name)
            found = self._places[key] = parent
        return found

    def thread_state(self) -> ThreadState | None:
        """Returns the state of the calling thread, None if nothing was counted on it."""
        return getattr(self.local, "state", None)

    def attach(self, begins: Callable[[], ThreadState | None] | None = None) -> None:
        """Records where backward passes begin, from now on.

        begins: asked when one begins on a thread, for the state of that thread; None where nothing is counted on it.
        """
        self.begins = begins or self.thread_state
        with _lock:
            if not _attached:
                _original[:] = [getattr(torch.autograd, "_engine_run_backward", None)]
                if _original[0] is not None:
                    torch.autograd._engine_run_backward = _engine_run_backward
            _attached.append(self)

    def detach(self) -> None:
        """Puts torch's function back, with the last one. Where somebody has wrapped ours since, it stays inside and passes calls on."""
        with _lock:
            if self in _attached:
                _attached.remove(self)
            if not _attached and torch.autograd.__dict__.get("_engine_run_backward") is _engine_run_backward:
                torch.autograd._engine_run_backward = _original[0]

    def clear(self) -> None:
        """Drops what was noted of the step."""
        self.local = threading.local()
        self.threads.clear()
        self.running.clear()


_lock: Final = threading.Lock()
_attached: Final[list[Attribution]] = []
_original: Final[list[Callable[..., object] | None]] = [None]


def _engine_run_backward(outputs: object, *args: object, **kwargs: object) -> object:
    """Stands in for torch's function of that name, whose positional arguments are (outputs, gradients, retain_graph, create_graph, …)."""
    run = _original[0]
    assert run is not None
    begun = []
    for attribution in tuple(_attached):
        thread = attribution.begins()
        if thread is not None:
            one = BackwardPass(thread, bool(args[2] if len(args) > 2 else kwargs.get("create_graph", False)))
            thread.passes.append(one)
            thread.in_backward = True
            attribution.running.append(one)
            begun.append((attribution, one))
    try:
        return run(outputs, *args, **kwargs)
    finally:
        for attribution, one in begun:
            for open_passes in (one.thread.passes, attribution.running):
                if one in open_passes:
                    open_passes.remove(one)
            one.thread.in_backward = one.thread.autograd_worker or bool(one.thread.passes)
