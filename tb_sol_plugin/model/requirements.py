"""Checks what a recording must hold for an analysis, and says where it does not why, and how to record it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tb_sol_plugin.model import schemas as S

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture

Requirement: TypeAlias = Literal[
    "device_events", "host_events", "operators", "shapes", "modules", "annotations", "steps", "serving", "memory", "memory_use",
    "collectives", "backward", "copies", "moves", "events", "program", "kernels", "work", "iterations",
]  # fmt: skip
"""What an analysis may require of a recording; `events`: of a profiler. `REQUIREMENTS` says how each is found."""
Words: TypeAlias = tuple[str, str, str]
"""Why it is missing, how to record it, and the argument to add."""


def missing(capture: Capture, requirement: Requirement) -> Words | None:
    """Returns None if the recording has what is required; else (because, record it with, the argument to add)."""
    test, *words = REQUIREMENTS[requirement]
    if test(capture):
        return None
    if requirement in _OF_A_DEVICE and "cpu" in (capture.facts.metadata.get(name) for name in _DEVICE_TYPE):
        return ON_CPU
    if requirement == "moves" and capture.facts.source == "sol_capture":
        return _no_copies(capture.facts.metadata.get("copies", ""))
    because, hint, argument = WORDS_OF.get(capture.facts.source, {}).get(requirement, words)
    asked, what = _ASKED.get(requirement, ("", ""))
    if capture.facts.flags.get(asked) and capture.facts.source not in WORDS_OF:
        return f"recorded with {asked}, but the file holds {what}", f"record the host too, {hint.removeprefix('record ')}", argument
    return because, hint, argument


_OF_A_DEVICE: Final[tuple[Requirement, ...]] = ("device_events", "kernels", "collectives", "copies")
_DEVICE_TYPE: Final = ("device.type", "sol_capture.device.type")
"""Metadata of a SOL capture, and of a trace joined with one: the type of device that the program ran on."""
ON_CPU: Final[Words] = ("the job ran on a CPU: it has no kernels, and no copies of a device", "record it on a GPU to see them", "")
_ASKED: Final[dict[Requirement, tuple[str, str]]] = {
    "shapes": ("record_shapes", "no sizes"),
    "modules": ("with_stack", "no Python module"),
    "memory": ("profile_memory", "no memory events"),
}
"""What a profiler was asked for, and what a file lacks that has none of it."""


def _no_copies(recorded: str) -> Words:
    """Returns why a SOL capture has none. recorded: what its reader says of them."""
    if recorded.startswith("counted"):
        return "no copy between memories in the counted iterations", "record a part of the job that moves data", ""
    if recorded == "off":
        return "copies were not counted", "count them: sol.capture(logdir, model=model, copies=True)", "copies=True"
    if recorded == "older":
        return "copies are not recorded: made by an older recorder", "record anew with sol.capture of this version", ""
    return "no iteration was counted yet", "the first two iterations are counted, then every n-th", "every_n_steps"


def _has(table: str) -> Callable[[Capture], bool]:
    return lambda c: len(c.tables[table]) > 0


def _has_kind(kind: int) -> Callable[[Capture], bool]:
    return lambda c: bool((c.host["kind"].to_numpy() == kind).any())


def _has_shapes(c: Capture) -> bool:
    categories = c.tables["operators"]["shapes"].cat.categories
    return any(text not in ("", "[]") and any(ch.isdigit() for ch in text) for text in categories)


MEMORY_TABLES = ("memory", "memory_records", "memory_events", "memory_blocks", "memory_timeline")
"""Tables that say how much memory was in use, each of another source."""
_CUDA = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_ON_A_GPU = f"if the job runs on a GPU, record with {_CUDA}"
REQUIREMENTS: dict[Requirement, tuple[Callable[[Capture], bool], str, str, str]] = {
    "device_events": (_has("device"), "no device activity in this recording", _ON_A_GPU, "ProfilerActivity.CUDA"),
    "host_events": (_has("host"), "no host activity in this recording", f"record with {_CUDA}", "ProfilerActivity.CPU"),
    "operators": (_has_kind(S.OPERATOR), "no operators in this recording", f"record with {_CUDA}", "ProfilerActivity.CPU"),
    "shapes": (_has_shapes, "recorded without record_shapes", "record with profile(record_shapes=True)", "record_shapes=True"),
    "modules": (_has_kind(S.MODULE), "recorded without with_stack", "record with profile(with_stack=True)", "with_stack=True"),
    "annotations": (
        lambda c: bool((c.host["kind"].to_numpy() == S.ANNOTATION).any()) or (c.facts.source == "proton" and len(c.tables["labels"]) > 0),
        "no user annotation in this recording",
        'name parts of the step with torch.profiler.record_function("forward"), and call prof.step()',
        'record_function("forward")',
    ),
    "steps": (
        lambda c: not c.facts.pseudo_step,
        "no ProfilerStep in this recording",
        "call prof.step() after every iteration",
        "prof.step()",
    ),
    "serving": (
        lambda c: bool(len(c.steps)) and bool(c.steps["engine"].iloc[0]),
        "no iteration of a serving engine in this recording",
        "record vLLM, SGLang, ATOM or xDiT with its annotations of iterations on",
        "",
    ),
    "memory": (_has("memory"), "recorded without profile_memory", "record with profile(profile_memory=True)", "profile_memory=True"),
    "memory_use": (
        lambda c: any(len(c.tables[t]) for t in MEMORY_TABLES),
        "nothing of memory in this recording",
        "record with profile(profile_memory=True), store an allocator snapshot, or record memory in the program: "
        "sol.capture(..., memory=True)",
        "profile_memory=True",
    ),
    "collectives": (
        lambda c: bool(c.device["communication"].to_numpy().any()),
        "no collective in this recording",
        "record a job with more than one rank",
        "",
    ),
    "backward": (_has("backward"), "no backward pass in this recording", "record a training step", ""),
    "copies": (
        lambda c: bool(((c.device["kind"].to_numpy() != S.KERNEL) | c.device["copy_kernel"].to_numpy()).any()),
        "no copy in this recording",
        _ON_A_GPU,
        "ProfilerActivity.CUDA",
    ),
    "moves": (
        lambda c: len(c.tables["device"]) > 0 or len(c.tables["copies"]) > 0,
        "no device activity in this recording",
        _ON_A_GPU,
        "ProfilerActivity.CUDA",
    ),
    "events": (lambda c: c.facts.source not in WORDS_OF, "", "", ""),
    "program": (lambda c: c.facts.source not in MEMORY_KINDS, "", "", ""),
    "kernels": (
        lambda c: len(c.device) > 0 or (c.facts.source == "proton" and len(c.tables["ledger"]) > 0),
        "no device activity in this recording",
        _ON_A_GPU,
        "ProfilerActivity.CUDA",
    ),
    "work": (
        lambda c: _has_shapes(c) or len(c.tables["ledger"]) > 0,
        "recorded without record_shapes, and there is no SOL capture of this worker",
        "record with profile(record_shapes=True), or track the loop with sol.capture(logdir, model=model)",
        "record_shapes=True",
    ),
    "iterations": (
        _has("iterations"),
        "no SOL capture of this worker",
        "run the training loop inside sol.capture(logdir, model=model) and call tracker.step() after every iteration",
        "sol.capture(logdir, model=model)",
    ),
}

_TRACE = "open the profiler trace of this worker; where there is none, record one: sol.capture(logdir, model=model, profile=True)"


def _counted(what: str) -> Words:
    return f"no {what} in a SOL capture; it counts work by operator, module and phase", _TRACE, "profile=True"


OF_A_SOL_CAPTURE: dict[str, Words] = {
    "device_events": _counted("single kernels and copies"),
    "kernels": _counted("single kernels and copies"),
    "events": _counted("single events"),
    "operators": _counted("single operator calls"),
    "shapes": _counted("single operator calls"),
    "collectives": _counted("kernels"),
    "backward": _counted("single operator calls"),
    "copies": _counted("single copies"),
    "memory": (
        "no memory events in a SOL capture",
        "record a profiler trace beside it, with profile(profile_memory=True)",
        "profile_memory=True",
    ),
    "memory_use": (
        "memory was not recorded",
        "record it: sol.capture(logdir, model=model, memory=True, optimizer=optimizer)",
        "memory=True",
    ),
    "host_events": ("no finished iteration yet", "end every iteration with tracker.step()", "tracker.step()"),
    "annotations": ("no finished iteration yet", "end every iteration with tracker.step()", "tracker.step()"),
    "steps": ("no finished iteration yet", "end every iteration with tracker.step()", "tracker.step()"),
    "iterations": ("no finished iteration yet", "end every iteration with tracker.step()", "tracker.step()"),
    "work": (
        "the work of no iteration was counted yet",
        "the first two iterations are counted, then every n-th: sol.capture(logdir, model=model, every_n_steps=100)",
        "every_n_steps",
    ),
    "modules": ("no call of a module was timed", "give the model: sol.capture(logdir, model=model)", "model=model"),
}
"""Words for SOL captures, where those for traces would mislead."""

_EVENTS = "proton.start(data='trace')"


def _summed(what: str) -> Words:
    return f"no {what} in a Proton profile; it holds sums", f"profile with {_EVENTS}, or record with {_CUDA}", "data='trace'"


_NOT_PROTON = f"record with {_CUDA}"
OF_A_PROFILE: dict[str, Words] = {
    "device_events": _summed("single kernels and copies"),
    "events": _summed("single events"),
    "host_events": _summed("host activity"),
    "kernels": ("no kernel in this profile", "keep the profiler active while kernels run: proton.activate()", "proton.activate()"),
    "operators": ("no operators in a Proton profile", _NOT_PROTON, "ProfilerActivity.CPU"),
    "shapes": ("no operators in a Proton profile", f"record with {_CUDA[:-1]}, record_shapes=True)", "record_shapes=True"),
    "modules": ("no modules in a Proton profile", f"record with {_CUDA[:-1]}, with_stack=True)", "with_stack=True"),
    "annotations": ("no scope in this profile", 'name parts of the program with proton.scope("forward")', 'proton.scope("forward")'),
    "steps": _summed("steps"),
    "memory": ("no memory events in a Proton profile", "record with profile(profile_memory=True)", "profile_memory=True"),
    "memory_use": ("no memory in a Proton profile", "record with profile(profile_memory=True)", "profile_memory=True"),
    "collectives": _summed("single collectives"),
    "backward": ("no operators in a Proton profile", _NOT_PROTON, ""),
    "copies": _summed("single copies"),
    "moves": ("no copy in this profile: Proton itself records kernels only", f"record with {_CUDA}", "ProfilerActivity.CUDA"),
    "work": (
        "no work is stated in this profile",
        "state it: proton.start(hook='triton') and @triton.jit(launch_metadata=...), or proton.scope(name, {'flops16': ...})",
        "hook='triton'",
    ),
    "iterations": ("no iterations in a Proton profile; it holds sums", "run the training loop inside sol.capture(logdir, model=model)", ""),
}
"""Words for Proton profiles."""


def _of_memory(what: str) -> dict[str, Words]:
    """Returns words for recordings of memory alone. what: such a one."""
    holds = {
        "device_events": "no kernels and no copies", "kernels": "no kernels", "collectives": "no kernels",
        "copies": "no copies", "moves": "no copies", "host_events": "nothing of the host", "events": "no events of a profiler",
        "operators": "no operators", "shapes": "no operators", "backward": "no operators", "work": "no operators",
        "modules": "no modules", "annotations": "no user annotations", "steps": "no steps", "iterations": "no iterations",
        "program": "nothing of what ran",
    }  # fmt: skip
    hint = f"open a trace beside it, recorded with {_CUDA}"
    out = {name: (f"{lacks}: {what} holds memory over time", hint, "") for name, lacks in holds.items()}
    text = f"{what} holds no events of single operators' memory"
    return out | {"memory": (text, "record a trace beside it with profile(profile_memory=True)", "profile_memory=True")}


MEMORY_KINDS: dict[str, dict[str, Words]] = {
    "memory_timeline": _of_memory("a memory timeline"),
    "memory_snapshot": _of_memory("a memory snapshot"),
}
"""Recordings of memory alone, by `Facts.source`."""
WORDS_OF: dict[str, dict[str, Words]] = {"sol_capture": OF_A_SOL_CAPTURE, "proton": OF_A_PROFILE, **MEMORY_KINDS}
"""Recordings without events, by `Facts.source`."""
