"""Says what a recording shows of its program, so that advice fits it: names of collectives, compiled code, Python lines.

    collectives(capture, rows)          # "all_reduce" per device row
    compiled_rows(capture, rows)        # which device rows torch.compile has made or launches
    line, ns, rows = busiest_line(capture, spans)
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.copies.records import frame_text
from tb_sol_plugin.metrics.rules.engine import count_text
from tb_sol_plugin.metrics.rules.time.context import Claim, TimeContext
from tb_sol_plugin.metrics.rules.time.engine_fixes import eager_fix
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.frames import frames_of, launching_threads, program_frame_rows
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.units import human

COLLECTIVES: Final = {
    "all_reduce": r"all_?reduce",
    "reduce_scatter": r"reduce_?scatter",
    "all_gather": r"all_?gather",
    "all_to_all": r"all_?to_?all|all2all",
    "broadcast": r"broadcast",
    "send": r"\b(i?send|i?recv)\b",
}
"""Collectives by their recorded names: `nccl:all_reduce`, `c10d::_allgather_base_`, `allreduce`, `ncclDevKernel_AllReduce_…`."""
_ANY: Final = re.compile("|".join(COLLECTIVES.values()), re.IGNORECASE)
REGION: Final = re.compile(r"^(autograd::engine::evaluate_function: )?CompiledFunction|^Torch-Compiled Region|^## Call CompiledFxGraph")
"""Ranges around what torch.compile has compiled."""
GENERATED: Final = re.compile(r"^triton_(poi|red|per|tem|for|mm|spl)_|^triton_\w*fused")
"""Kernels that torch.compile has written."""


def collective(name: str) -> str:
    """Returns the collective that a name speaks of, "" for none."""
    if _ANY.search(name) is None:  # nearly every name
        return ""
    return next((kind for kind, pattern in COLLECTIVES.items() if re.search(pattern, name, re.IGNORECASE)), "")


def collectives(capture: Capture, rows: Ints) -> npt.NDArray[np.object_]:
    """Returns the collective of each device row: its recorded argument, else the operator around its launch, else its own name; else "".

    NCCL runs several collectives in kernels named `SendRecv`: the kernel's name comes last.
    """
    if not len(rows):
        return np.zeros(0, object)
    device, h = capture.device, at.host(capture)
    out = _kinds(device["name"], rows)
    if len(h.start):
        said = [at.named(capture, kind, lambda n: bool(collective(n))) for kind in (S.OPERATOR, S.ANNOTATION)]
        named = at.mask_of(capture, np.concatenate(said))
        call = device["call"].to_numpy()[rows].astype(np.int64)
        above = tree.nearest(named, h.parent, h.stop, np.asarray(call, np.int32), h.start[np.maximum(call, 0)], h.end)
        out = np.where(above >= 0, _kinds(capture.host["name"], np.maximum(above, 0)), out)
    table = capture.tables["collectives"]
    if len(table):
        argument = np.full(len(device), "", object)
        argument[table["device"].to_numpy()] = _kinds(table["name"], np.arange(len(table)))
        out = np.where(argument[rows] != "", argument[rows], out)
    return np.asarray(out, object)


def _kinds(column: pd.Series[str], rows: npt.NDArray[np.integer]) -> npt.NDArray[np.object_]:
    """Returns the collective that each row's name speaks of."""
    code, distinct = pd.factorize(arrays.codes(column)[rows])
    names = column.cat.categories.take(np.maximum(distinct, 0)) if len(distinct) else ()
    kinds = np.array([collective(str(n)) if place >= 0 else "" for place, n in zip(distinct, names, strict=True)], object)
    return np.asarray(kinds[code], object) if len(code) else np.zeros(0, object)


# -- Compiled code -------------------------------------------------------------------------------------------------------


def compiled_calls(capture: Capture, rows: Ints) -> Mask:
    """Returns which host rows run inside of compiled code; -1 does not."""
    h = at.host(capture)
    if not len(h.start):
        return np.zeros(len(rows), np.bool_)
    region = memo(capture, ("recorded.regions",), lambda: _regions(capture))
    if region is None:
        return np.zeros(len(rows), np.bool_)
    above = tree.nearest(region, h.parent, h.stop, np.asarray(rows, np.int32), h.start[np.maximum(rows, 0)], h.end)
    return np.asarray(above >= 0, np.bool_)


def _regions(capture: Capture) -> Mask | None:
    """Returns the host rows of compiled code, None where there are none."""

    def compiled_region(name: str) -> bool:
        return "Compiled" in name and REGION.match(name) is not None

    return at.where_named(capture, compiled_region) if at.any_named(capture, compiled_region) else None


def _is_generated(name: str) -> bool:
    return name.startswith("triton_") and GENERATED.match(name) is not None


def compiled_rows(capture: Capture, rows: Ints) -> Mask:
    """Returns which device rows compiled code launches: its own kernels, what is launched inside it, graphs with such a kernel."""
    device = capture.device
    call = device["call"].to_numpy()

    def make() -> tuple[Mask, Ints]:
        own = arrays.where(device["name"], _is_generated)
        return own, np.unique(call[own & (call >= 0)])

    generated, with_one = memo(capture, ("recorded.generated",), make)
    launched = call[rows]
    return np.asarray(generated[rows] | np.isin(launched, with_one) | compiled_calls(capture, launched), np.bool_)


def generated(context: TimeContext, claim: Claim) -> Mask:
    """Returns which of the claimed calls are kernels that torch.compile has written."""
    return np.asarray(arrays.per_text(context.ops["name"], claim.rows, _is_generated), np.bool_)


def compiled(context: TimeContext, claim: Claim) -> bool:
    """Tells whether most of what is claimed of calls is compiled already."""
    inside = generated(context, claim) | compiled_calls(context.capture, context.ops["host"].to_numpy()[claim.rows].astype(np.int64))
    return bool(2 * float(claim.ns[inside].sum()) > claim.total)


def fusing(context: TimeContext, claim: Claim, why: str = "fuses neighbors, so that each tensor is read once") -> str:
    """Returns the advice to compile, or what is left where that is done."""
    if not compiled(context, claim):
        return f"torch.compile(model)  # {why}" if why else "torch.compile(model)"
    if 2 * float(claim.ns[generated(context, claim)].sum()) > claim.total:
        return "torch._inductor.config.coordinate_descent_tuning = True  # compiled already: tries other block sizes for its kernels"
    return NOT_FUSED


def tuning(context: TimeContext, claim: Claim, why: str) -> str:
    """Returns the advice to try several kernels per product."""
    if compiled(context, claim):
        return f"torch._inductor.config.max_autotune_gemm = True  # compiled already: {why}"
    return f'torch.compile(model, mode="max-autotune")  # {why}'


def launching(context: TimeContext, ended: Ints, graphs: str) -> str:
    """Returns the advice for gaps that end with some device rows, launched one by one. graphs: CUDA or HIP, "" without them."""
    if graphs and (option := eager_fix(context.capture)):
        return option
    done = compiled_rows(context.capture, ended)
    if 2 * int(done.sum()) <= len(done):
        if graphs and at.any_named(context.capture, lambda n: _GRAPHS.match(n) is not None):
            return f"# {graphs} graphs are in use already: capture the part of the step that launches these kernels too"
        if graphs:
            return f'torch.compile(model, mode="reduce-overhead")  # {graphs} graphs: one launch for many kernels'
        return "torch.compile(model)  # fewer, longer kernels"
    if graphs and not at.any_named(context.capture, lambda n: "GraphLaunch" in n):
        return f"torch._inductor.config.triton.cudagraphs = True  # compiled already; {graphs} graphs: one launch for many kernels"
    return BREAKS


_GRAPHS: Final = re.compile(r"^(cuda|hip|cu)(GraphLaunch|StreamBeginCapture)")
NOT_FUSED: Final = '# compiled already: TORCH_LOGS="graph_breaks,fusion" shows why these stay kernels of their own'
BREAKS: Final = '# compiled already: TORCH_LOGS="graph_breaks,perf_hints" shows what stays outside of graphs and fused kernels'


# -- Python lines --------------------------------------------------------------------------------------------------------


def recorder_text(capture: Capture, rows: Ints) -> str:
    """Returns that the recorder slows down the launches of some device rows, where stacks were recorded and launches are rare; else "".

    The median time from one launch to the next on the thread that makes most of them, against that of recordings without stacks; and the
    median number of Python calls between two launches, of which each takes time to record.
    """
    h = at.host(capture)
    call = capture.device["call"].to_numpy()[rows]
    call = call[call >= 0]
    if not len(call) or not len(at.of_kind(capture, S.FRAME)):
        return ""
    thread = int(np.bincount(h.thread[call]).argmax())
    every = at.launching_calls(capture)
    start = h.start[every[h.thread[every] == thread]]
    start = np.sort(start) if (start[1:] < start[:-1]).any() else start
    between = float(np.median(np.diff(start))) if len(start) > 1 else 0.0
    if between <= USUAL_NS:
        return ""
    frames = h.start[frames_of(capture, np.array([thread]))]
    if (frames[1:] < frames[:-1]).any():
        frames = np.sort(frames)
    calls = round(float(np.median(np.diff(np.searchsorted(frames, start)))))
    if not calls:
        return ""
    return (
        f" The host needs {human(round(between), 'ns')} from one launch to the next, and {count_text(calls, 'Python call')} "
        f"{'is' if calls == 1 else 'are'} recorded meanwhile: that takes time, so a part of this may be the recorder's; a recording "
        "without stacks shows it."
    )


USUAL_NS: Final = 40_000
"""Six recordings of training on V100 and A100 without stacks: medians of 20.0, 23.1, 26.0, 30.0, 37.0 and 94.2 µs from one launch to the
next; above most of them the recorder is worth a word."""


def most_of(capture: Capture, rows: Ints, ns: Ints) -> tuple[Ints, float]:
    """Returns those of some host rows whose name takes the most of some time, and how much; none of none. ns: of each row."""
    code = arrays.coded(capture.host["name"]).codes[rows].astype(np.int64) + 1
    if not len(rows):
        return rows, 0.0
    total = np.bincount(code, ns.astype(np.float64))[code]
    most = int(total.argmax())  # of equal ones the first to appear
    return rows[code == code[most]], float(total[most])


def busiest_line(capture: Capture, spans: iv.Spans) -> tuple[str, int, Ints]:
    """Returns the Python line of the program in which most of some time passes, how much, and its host rows.

    Itself and what it calls of others' code, on the threads that launch device work. ("", 0, none) where no frames were recorded.
    """
    h = at.host(capture)
    rows = program_frame_rows(capture)
    rows = rows[np.isin(h.thread[rows], launching_threads(capture))]
    if not len(rows):
        return "", 0, rows
    own = at.mask_of(capture, rows)
    time = np.zeros(len(h.start), np.int64)
    time[rows] = iv.overlap_with(h.start[rows], h.stop[rows], spans)
    above = tree.nearest(own, h.parent, h.stop, h.parent[rows], h.start[rows], h.end)
    inner = time.copy()
    np.subtract.at(inner, above[above >= 0], time[rows[above >= 0]])
    same, most = most_of(capture, rows, np.maximum(inner[rows], 0))
    return str(frame_text(capture, same[:1])[0]), round(most), same
