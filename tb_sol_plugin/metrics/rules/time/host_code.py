"""Finds what runs on the host while the device has no work: Python frames before the first kernel or between steps, operators on the CPU.

    operator_wait, python_wait                       # rules: operators and frames that launch nothing, in gaps of over a millisecond
    inside_text(capture, spans, threads)             # "; 612 ms of that in `preprocess`, 529 ms in `zoom_shift` …" for other rules
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.copies.records import frame_name, frame_text
from tb_sol_plugin.metrics.rules.engine import Answer, count_text, rule, subject_verb, time_text
from tb_sol_plugin.metrics.rules.time.context import TimeContext
from tb_sol_plugin.metrics.rules.time.recorded import collective, most_of
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import LAUNCH_NS, device_word, host_idle
from tb_sol_plugin.metrics.time.frames import (
    frames_of,
    launching_threads,
    profiler_frame_rows,
    program_frame_rows,
    program_frames,
)
from tb_sol_plugin.metrics.time.reaching import reaching
from tb_sol_plugin.metrics.work.ownership import outermost
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask

OPERATORS: Final = re.compile(r"^(aten|prims|torchvision|torchaudio|fbgemm|quantized|mkldnn|onednn|mkl)::")
"""Operators that compute by themselves; ranges of autograd and of compiled regions hold others."""
NO_WORK: Final = re.compile(
    r"::_?(empty|new_|arange|linspace|zeros|ones|full|eye|tril_indices|triu_indices|scalar_tensor|rand|view|reshape|slice|select|narrow|"
    r"as_strided|transpose|permute|movedim|t$|expand|unsqueeze|squeeze|detach|alias|split|chunk|unbind|unflatten|flatten|unfold|diagonal|"
    r"resize|set_|lift|pin_memory|is_pinned|item|local_scalar)"
)
"""Operators that make a tensor or look at one: what they take on the host is no work over data (memory, first use, other threads)."""
RANDOM: Final = re.compile(r"::(uniform|normal|bernoulli|random|exponential|log_normal|trunc_normal)_$")
"""Operators that fill a tensor with random numbers: mostly parameters, which a model initializes once."""
WAITS: Final = re.compile(r"^_?(acquire|wait|wait_for|poll|select|recv|recv_bytes|recv_into|join|epoll|kqueue|get|synchronize)$")
"""Frames that wait for another thread or process: what they wait for is not among the recorded frames."""
BUILT_IN: Final = re.compile(r"^<built-in (?:function|method) (\S+?)(?: of .*)?>$", re.DOTALL)
IDLE_PART: Final = 0.8
"""A frame is the cause of a gap where the device has no work for at least 80 % of its time."""
MOST_OF: Final = 0.9
"""The frame that stands for some time holds at least 90 % of it; the innermost such one says most."""


def quiet(capture: Capture, rows: Ints) -> Mask:
    """Returns which of some host rows neither launch anything nor call the runtime, themselves and all that is inside of them."""
    h = at.host(capture)

    def make() -> Ints:
        calls, launching = at.of_kind(capture, S.CALL), at.launching_calls(capture)
        others = launching[h.kind[launching] != S.CALL]
        return np.sort(np.concatenate((calls, others))) if len(others) else calls

    calls = memo(capture, ("quiet.calls",), make)
    first = np.searchsorted(calls, rows)  # the first call from the row on
    return np.asarray((first == len(calls)) | (np.append(calls, -1)[first] >= h.end[rows]), np.bool_)


def inside_text(capture: Capture, spans: iv.Spans, threads: Ints, within: str = "") -> tuple[str, str]:
    """Returns (where on some threads most of the spans pass by Python stacks, as the end of a sentence; the innermost function); else "".

    The innermost frame of the program that holds 90 % of them, and the innermost frame of any code that holds half. Nothing where that
    one waits for another thread or process. within: name of the frame that the sentence has named already.
    """
    total = iv.length(spans)
    h = at.host(capture)
    frames = frames_of(capture, threads)
    time = iv.overlap_with(h.start[frames], h.stop[frames], spans)
    frames, time = frames[time > 0], time[time > 0]
    leaf, in_leaf = _innermost(capture, frames, time, spans, total / 2)
    name = str(arrays.pick(capture.host["name"], [leaf])[0]) if leaf >= 0 else ""
    if not name or WAITS.search(_function(name)):
        return "", ""
    function = _function(name)
    if name == within:
        return ".", function
    text = f"{time_text(in_leaf)} in {_place(capture, leaf)}."
    own = program_frames(capture)[frames]
    outer, in_outer = _innermost(capture, frames[own], time[own], spans, MOST_OF * total)
    if outer not in (-1, leaf) and in_outer > in_leaf and not within:
        text = f"{time_text(in_outer)} in `{frame_text(capture, [outer])[0]}`, {text}"
    return f"; of that {text}", function


def _innermost(capture: Capture, rows: Ints, time: Ints, spans: iv.Spans, least: float) -> tuple[int, int]:
    """Returns (the first row of the deepest frame by name in which at least `least` of the spans pass, how much); (-1, 0) without one.

    A frame that calls itself counts once.
    """
    h, text = at.host(capture), arrays.coded(capture.host["name"])
    codes = text.codes[rows]
    enough = np.flatnonzero(arrays.exact_sums(codes, time, len(text.categories) + 1)[:-1] >= max(least, 1))
    first = np.zeros(len(text.categories) + 1, np.int64)
    first[codes[::-1]] = rows[::-1]
    deepest = sorted((-_depth(h.parent, int(first[code])), code) for code in enough.tolist())
    for _, code in deepest:
        same = rows[codes == code]
        ns = iv.length(iv.intersect(iv.union(h.start[same], h.stop[same]), spans))
        if ns >= least:
            return int(same[0]), ns
    return -1, 0


def _depth(parent: npt.NDArray[np.integer], row: int) -> int:
    depth = 0
    while row >= 0:
        row, depth = int(parent[row]), depth + 1
    return depth


def _function(name: str) -> str:
    """Returns the function in the name of a Python frame."""
    found = BUILT_IN.match(name)
    return found[1] if found else frame_name(name).rpartition(" ")[2]


def _place(capture: Capture, row: int) -> str:
    """Returns a Python frame in words; one without a file with the frame that calls it."""
    name = str(arrays.pick(capture.host["name"], [row])[0])
    if not BUILT_IN.match(name):
        return f"`{frame_text(capture, [row])[0]}`"
    above = int(at.nearest(capture, S.FRAME, np.array([row]), strict=True)[0])
    return f"`{_function(name)}`" + (f", called at `{frame_text(capture, [above])[0]}`" if above >= 0 else "")


def _long_gaps(context: TimeContext) -> iv.Spans:
    """Returns unclaimed idle time for which the host answers, in gaps that no launch alone explains."""
    start, stop = context.waterfall.idle
    long = stop - start > LAUNCH_NS
    return iv.intersect(iv.intersect(context.idle, (start[long], stop[long])), host_idle(context.capture))


@rule("operator_wait", page="operators", label="Among the operators", color="host", candidate=True)
def operator_wait(context: TimeContext) -> Answer:
    """Finds operators that compute on the CPU, on a thread that launches device work, while the device has no work.

    Possible, not proven: where tensors are is not recorded, only that the operator launches nothing.
    """
    capture, gaps = context.capture, _long_gaps(context)
    if not len(gaps[0]):
        return None
    h = at.host(capture)
    column = capture.host["name"]
    rows = reaching(capture, "operator_wait", lambda: _computing(capture)).within(gaps)
    inside = iv.overlap_with(h.start[rows], h.stop[rows], gaps)
    rows, inside = rows[inside >= LAUNCH_NS], inside[inside >= LAUNCH_NS]
    if not len(rows):
        return None
    idle = context.ledger.take_idle(iv.intersect(gaps, iv.union(h.start[rows], h.stop[rows])))
    same, most = most_of(capture, rows, inside)
    name = str(arrays.pick(column, same[:1])[0])
    worst = same[int(h.duration[same].argmax())]
    line = int(at.nearest(capture, S.FRAME, np.array([worst]))[0])
    unit = device_word(capture)
    where = f", called at `{frame_text(capture, [line])[0]}`" if line >= 0 else ""
    return context.finding(
        f"{subject_verb(len(rows), 'operator call', 'computes')} on the CPU while the {unit} has no work for {time_text(iv.length(idle))}; "
        f"{time_text(most)} in {count_text(len(same), 'call')} of `{name}`{where}.",
        idle=idle,
        title=f"The {unit} waits for operators on the CPU",
        fix=(
            "with torch.device(device):  # parameters are created and initialized there"
            if RANDOM.search(name)
            else f"x = x.to(device)  # before {name.rpartition('::')[2]}(): the {unit} has no work meanwhile"
        ),
        names=list(set(arrays.pick(column, rows).tolist())),
    )


def _computing(capture: Capture) -> Ints:
    """Returns the outermost host rows of operators that compute and launch nothing, on threads that launch device work."""
    h = at.host(capture)
    rows = at.named(capture, S.OPERATOR, lambda n: OPERATORS.match(n) is not None and not NO_WORK.search(n) and not collective(n))
    rows = rows[np.isin(h.thread[rows], launching_threads(capture))]
    return outermost(rows[quiet(capture, rows)], h.end)


def _running(capture: Capture) -> Ints:
    """Returns the host rows of long Python frames of the program that launch nothing, on threads that launch device work."""
    h, rows = at.host(capture), program_frame_rows(capture)
    rows = rows[h.duration[rows] >= LAUNCH_NS]
    rows = np.setdiff1d(rows[np.isin(h.thread[rows], launching_threads(capture))], profiler_frame_rows(capture), assume_unique=True)
    return np.asarray(rows[quiet(capture, rows)], np.int64)


@rule("python_wait", page="gpu_breakdown", label="Idle causes", color="host")
def python_wait(context: TimeContext) -> Answer:
    """Finds Python functions that launch nothing and run while the device has no work: before its first kernel, or between steps."""
    capture, gaps = context.capture, _long_gaps(context)
    if not len(gaps[0]):
        return None
    h = at.host(capture)
    rows = reaching(capture, "python_wait", lambda: _running(capture)).within(gaps)
    rows = rows[iv.overlap_with(h.start[rows], h.stop[rows], gaps) >= LAUNCH_NS]
    idle = iv.overlap_with(h.start[rows], h.stop[rows], context.waterfall.idle)
    rows = rows[idle >= IDLE_PART * iv.overlap_with(h.start[rows], h.stop[rows], context.waterfall.windows)]
    rows = outermost(rows, h.end)
    rows = rows[~arrays.per_text(capture.host["name"], rows, lambda n: WAITS.search(_function(n)) is not None)]
    if not len(rows):
        return None
    taken = iv.intersect(gaps, iv.union(h.start[rows], h.stop[rows]))
    same, most = most_of(capture, rows, iv.overlap_with(h.start[rows], h.stop[rows], taken))
    name = str(arrays.pick(capture.host["name"], same[:1])[0])
    text, _ = inside_text(capture, iv.intersect(taken, iv.union(h.start[same], h.stop[same])), np.unique(h.thread[same]), name)
    if not text:
        return None  # what it waits for runs elsewhere
    function, unit = _function(name), device_word(capture)
    idle_ns = iv.length(taken)
    whole = "it all" if round(most) == idle_ns else time_text(most)
    return context.finding(
        f"The {unit} has no work for {time_text(idle_ns)} while Python runs that launches nothing, {whole} in "
        f"{count_text(len(same), 'call')} of `{frame_text(capture, same[:1])[0]}`{text}",
        idle=context.ledger.take_idle(taken),
        title=f"The {unit} waits while Python runs `{function}`",
        fix=f"# {function}(): shorten it, or run it in a DataLoader worker or a thread while the {unit} works on the step before",
    )
