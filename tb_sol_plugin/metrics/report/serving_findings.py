"""Finds what could make tokens come sooner from a serving engine: each finding with its evidence, and what it could save per iteration.

A saving is at most the time that is named in it, over the iterations of the selection; it is left open where the recording bounds none.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.report.graph_notes import advice_for
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import device_word
from tb_sol_plugin.metrics.time.scope import engine_of
from tb_sol_plugin.metrics.time.serving import EAGER, Serving, passed_ns
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.engines import DECODE, MIXED
from tb_sol_plugin.model.report import Finding, Link
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

LEAST: Final = 0.01
"""Part of the time that passes, below which nothing is reported."""
PADDED: Final = 0.5
"""Mean padding of captured batches from which it is reported: half of the requests' number again."""
FEW: Final = 0.5
"""Part of the batch at which products turn compute-bound, below which decode has room for more requests."""
UNNAMED: Final = 0.1
SAMPLING: Final = re.compile(r"aten::(?:_?(?:log_)?softmax|sort|topk|argmax|multinomial|exponential_|cumsum)$")
"""Operators that choose a token from logits."""
_FIXES: Final = {
    "gap": {"vLLM": "vllm serve --async-scheduling", "SGLang": "# leave out --disable-overlap-schedule"},
    "sizes": {
        "vLLM": """vllm serve --compilation-config '{"cudagraph_capture_sizes": […]}'  # more of them""",
        "SGLang": "python -m sglang.launch_server --cuda-graph-bs …  # more of them",
    },
    "largest": {
        "vLLM": """vllm serve --compilation-config '{"cudagraph_capture_sizes": […]}'  # up to these batches""",
        "SGLang": "python -m sglang.launch_server --cuda-graph-max-bs …",
    },
    "prefill": {
        "vLLM": "vllm serve --max-num-batched-tokens …  # smaller",
        "SGLang": "python -m sglang.launch_server --chunked-prefill-size …  # smaller",
    },
    "batch": {
        "vLLM": "vllm serve --max-num-seqs …  # larger",
        "SGLang": "python -m sglang.launch_server --max-running-requests …  # larger",
    },
}  # fmt: skip
"""Options of engines, as their documentation names them; without one the words of the finding say what to do."""


def serving_findings(capture: Capture, found: Serving, turning_point: int | None) -> list[Finding]:
    """Returns what to change, the largest saving first, then what has none that the recording bounds."""
    frame = found.frame
    passed = float(frame["wall_ns"].sum() + np.nansum(frame["gap_ns"].to_numpy()[1:]))
    if not len(frame) or passed <= 0:
        return []
    engine = engine_of(capture)
    decode = frame[(frame["kind"] == DECODE) & frame["complete"]]
    sampled = _sampled_on_host(capture)
    made = [
        _gaps(capture, frame, sampled, passed, engine),
        _sampling(capture, frame, sampled, passed),
        _eager(capture, frame, decode, passed, engine),
        _prefill(frame, decode, passed, engine),
        _padding(frame, decode, passed, engine),
        _batch(frame, decode, turning_point, engine),
        _launch(capture, found),
        _unnamed(capture, frame),
    ]
    return sorted((f for f in made if f is not None), key=lambda f: -(f.saving_ns or 0))


def _fix(kind: str, engine: str, otherwise: str) -> str:
    return _FIXES[kind].get(engine, f"# {otherwise}")


def _idle(capture: Capture, spans: iv.Spans) -> iv.Spans:
    """Returns the parts of some spans in which no device works."""
    device = capture.device
    begin = device["start_ns"].to_numpy()
    return iv.subtract(spans, iv.union(begin, begin + device["duration_ns"].to_numpy()))


def _sampled_on_host(capture: Capture) -> iv.Spans:
    """Returns when operators of sampling ran on the host alone: no runtime call inside of them, and no device work."""
    rows = at.named(capture, S.OPERATOR, lambda name: SAMPLING.match(name) is not None)
    host = at.host(capture)
    begun = [np.append(0, np.cumsum(host.kind == S.CALL)), np.append(0, np.cumsum(at.mask_of(capture, _owners(capture))))]
    alone = [count[host.end[rows]] == count[rows] for count in begun]
    rows = rows[alone[0] & alone[1]]
    return iv.union(host.start[rows], host.stop[rows])


def _owners(capture: Capture) -> np.ndarray:
    operator = capture.device["operator"].to_numpy()
    return operator[operator >= 0]


def _sampling(capture: Capture, frame: pd.DataFrame, sampled: iv.Spans, passed: float) -> Finding | None:
    """Finds sampling that runs on the host while the device has no work."""
    first, last = int(frame["start_ns"].min()), int(max((frame["start_ns"] + frame["wall_ns"]).max(), frame["until_ns"].max()))
    spans = iv.clip(sampled, first, last)
    idle = iv.length(_idle(capture, spans))
    if not len(capture.device) or idle < LEAST * passed:  # without a device the host is where it belongs
        return None
    return Finding(
        rule="serving_sampling", title="Tokens are sampled on the host",
        evidence=f"Operators of sampling (softmax, sort, top-k, argmax, multinomial) run on the host for "
        f"{human(iv.length(spans), 'ns')}; the {device_word(capture)} has no work for {human(idle, 'ns')} of these.",
        fix="# keep the logits on the device and sample there; copy only the chosen tokens", color="host",
        link=Link("serving", {}, label="Iterations"),
        saving_ns=round(idle / len(frame)), share=idle / passed,
    )  # fmt: skip


def _gaps(capture: Capture, frame: pd.DataFrame, sampled: iv.Spans, passed: float, engine: str) -> Finding | None:
    """Finds host time between iterations, but for sampling, in which the device has no work: scheduler, detokenizing, the network."""
    after = frame.iloc[1:]
    after = after[np.isfinite(after["gap_ns"].to_numpy()) & (after["kind"] == DECODE).to_numpy()]
    if not len(after) or not len(capture.device):
        return None
    stop = after["start_ns"].to_numpy()
    gap = after["gap_ns"].to_numpy().astype(np.int64)
    idle = iv.length(iv.subtract(_idle(capture, iv.union(stop - gap, stop)), sampled))
    if idle < LEAST * passed:
        return None
    longest = int(gap.argmax())
    where = f"longest before iteration {int(after['number'].iloc[longest])}, {human(int(gap[longest]), 'ns')}"
    median = human(round(float(np.median(gap))), "ns")
    return Finding(
        rule="serving_gap", title="The scheduler runs while the device waits",
        evidence=f"Before {human(len(after), 'count')} decode iterations the host takes {median} between two (median; {where}). The "
        f"{device_word(capture)} has no work for {human(idle, 'ns')} of all these.",
        fix=_fix("gap", engine, "prepare the next iteration while the device runs this one"), color="host",
        link=Link("serving", {"kind": DECODE}, label="Decode iterations"), 
        saving_ns=round(idle / len(frame)), share=idle / passed,
    )  # fmt: skip


def _eager(capture: Capture, frame: pd.DataFrame, decode: pd.DataFrame, passed: float, engine: str) -> Finding | None:
    """Finds decode iterations without a graph where others have one. What they could save is the device's idle time in them."""
    eager = decode[decode["graphs"] == EAGER]
    replayed = decode[decode["graphs"] != EAGER]
    if not len(eager) or not len(replayed):
        return None
    start = eager["start_ns"].to_numpy()
    idle = iv.length(_idle(capture, iv.union(start, start + eager["wall_ns"].to_numpy())))
    batches = sorted({int(b) for b in eager["batch"].dropna()})
    most = replayed["captured_batch"].max()
    captured = f"; graphs in use here were captured for up to {int(most)}" if most == most else ""
    count = f"{human(len(eager), 'count')} of {human(len(decode), 'count')} decode iterations"
    text = f"{count} replay no graph (batch {_few(batches)}{captured})"
    return Finding(
        rule="serving_eager", title="Decode iterations fall out of the graphs",
        evidence=f"{text}: the {device_word(capture)} has no work for {human(idle, 'ns')} of them.",
        fix=_fix("largest", engine, "capture graphs for these batches too"), color="host",
        link=Link("serving", {"kind": DECODE, "t.iterations.c.graphs": EAGER}, label="Eager decode"), 
        saving_ns=round(idle / len(frame)), share=idle / passed,
    )  # fmt: skip


def _few(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", …" if len(numbers) > 4 else "") if numbers else "unknown"


def _prefill(frame: pd.DataFrame, decode: pd.DataFrame, passed: float, engine: str) -> Finding | None:
    """Finds requests in decode that wait for prefill: what mixed iterations take above a decode iteration."""
    mixed = frame[(frame["kind"] == MIXED) & frame["complete"]]
    if not len(mixed) or not len(decode):
        return None
    usual = float(decode["wall_ns"].median())
    above = float((mixed["wall_ns"] - usual).clip(lower=0).sum())
    if above < LEAST * passed:
        return None
    longest, median = human(int(mixed["wall_ns"].max()), "ns"), human(round(usual), "ns")
    return Finding(
        rule="serving_prefill", title="Prefill holds up requests in decode",
        evidence=f"{human(len(mixed), 'count')} mixed iterations take up to {longest}, a decode iteration {median} (median): "
        f"tokens of requests in decode come {human(round(above), 'ns')} later in all.",
        fix=_fix("prefill", engine, "prefill in smaller chunks"), color="compute",
        link=Link("serving", {"kind": MIXED}, label="Mixed iterations"),
        saving_ns=round(above / len(frame)), share=above / passed,
    )  # fmt: skip


def _padding(frame: pd.DataFrame, decode: pd.DataFrame, passed: float, engine: str) -> Finding | None:
    """Finds graphs captured for many more requests than they are replayed with.

    A graph made for the requests that ran would take no less than that of the next smaller batch takes here. Below the smallest
    batch nothing bounds what it would save.
    """
    own = decode[np.isfinite(decode["padding"].to_numpy())]
    if not len(own):
        return None
    mean = own.groupby("captured_batch")["device_ns"].mean()
    asked, captured = float(own["batch"].sum()), float(own["captured_batch"].sum())
    if captured < (1 + PADDED) * asked:
        return None
    worst = own.loc[own["padding"].idxmax()]
    text = f"Over {human(len(own), 'count')} decode iterations graphs for {human(round(captured), 'count')} requests are replayed with"
    text = f"{text} {human(round(asked), 'count')}"
    one = f"one for {int(worst['captured_batch'])} with {int(worst['batch'])}"
    own = own[own["padding"] > 0]
    below = np.searchsorted(mean.index.to_numpy(), own["batch"].to_numpy(), side="right") - 1
    above = own["device_ns"].to_numpy() - mean.to_numpy()[np.maximum(below, 0)]
    saved = float(np.where(below >= 0, above, 0).clip(min=0).sum()) if (below >= 0).any() else None
    bounded = ""
    if saved is not None:
        rest = int((below < 0).sum())
        open_ones = f"; {human(rest, 'count')} below the smallest graph in use are not counted" if rest else ""
        bounded = f" Those with a smaller graph in use take {human(round(saved), 'ns')} more than it{open_ones}."
    return Finding(
        rule="serving_padding", title="Captured batches are much larger than those that run",
        evidence=f"{text}; at worst {one}.{bounded}",
        fix=_fix("sizes", engine, "capture graphs for more batches"), color="compute",
        link=Link("serving", {"kind": DECODE, "by": "batch"}, label="By batch"),
        saving_ns=None if saved is None else round(saved / len(frame)), share=None if saved is None else saved / passed,
    )  # fmt: skip


def _batch(frame: pd.DataFrame, decode: pd.DataFrame, turning_point: int | None, engine: str) -> Finding | None:
    """Finds decode whose products read all weights for few requests: more of them cost little more time."""
    known = decode[np.isfinite(decode["batch"].to_numpy())]
    if turning_point is None or not len(known) or not len(frame):
        return None
    most = int(known["batch"].max())
    if most > FEW * turning_point:
        return None
    return Finding(
        rule="serving_batch", title="Decode reads all weights for few requests",
        evidence=f"Decode runs up to {human(most, 'count')} requests at once; products with 16-bit weights are bound by reading these "
        f"up to {human(turning_point, 'count')} on this device, so that more requests cost little more time per iteration.",
        fix=_fix("batch", engine, "let more requests run at once"), color="gemm", candidate=True,
        link=Link("serving", {"kind": DECODE, "by": "batch"}, label="By batch"),
    )  # fmt: skip


def _launch(capture: Capture, found: Serving) -> Finding | None:
    """Finds graphs that start long after their launch while the device has no work; the first launch of a graph also uploads it."""
    spans = iv.union(found.launched_ns, found.launched_ns + found.launch_ns)
    passed, _ = passed_ns(found.frame)
    idle = iv.length(_idle(capture, spans))
    if not len(found.launch_ns) or idle < LEAST * passed:
        return None
    longest, median = (human(round(float(f(found.launch_ns))), "ns") for f in (np.max, np.median))
    count = len(found.launch_ns)
    often = "The one graph launch recorded starts its" if count == 1 else f"{human(count, 'count')} graph launches start their"
    middle = "" if count == 1 else f" (median {median})"
    return Finding(
        rule="serving_launch", title="Graphs start long after they are launched",
        evidence=f"{often} work up to {longest} after the call{middle}; the {device_word(capture)} has no work for "
        f"{human(idle, 'ns')} of that. The first launch of a graph uploads it, and a recorder that has just started takes part.",
        fix="# record later iterations, after each graph was launched once; what remains is the launch itself: fewer, larger nodes",
        color="host", link=Link("timeline", {}, label="On the timeline"),
        candidate=count == 1, saving_ns=round(idle / len(found.frame)), share=idle / passed,
    )  # fmt: skip


def _unnamed(capture: Capture, frame: pd.DataFrame) -> Finding | None:
    """Finds replayed work that no recording of captures names."""
    total = int(frame["sum_ns"].sum())
    bare = int((frame["replayed_ns"] - frame["named_ns"]).sum())
    if not total or bare < UNNAMED * total:
        return None
    return Finding(
        rule="serving_unnamed", title="Replayed kernels have no operators",
        evidence=f"{human(bare / total, 'ratio')} of the device time was replayed by graphs whose capture was not recorded, or does not "
        "agree: no operator, size or module is known of it.",
        fix=f"# {advice_for(capture)}", link=Link("health", {}, label="Trace health"),
    )  # fmt: skip


