"""What could make a step shorter: each lever with its evidence in numbers and the time that it could save, at most.

Savings are per step. The parts that levers stand on are those of the waterfall, so two levers never claim the same nanosecond.
A lever with less than `LEAST` of the step is not worth a reader's time and is left out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.kernel_name import plain_name
from tb_sol_plugin.metrics.names import phase_name
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.waterfall import Waterfall
from tb_sol_plugin.metrics.work import KINDS
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

LEAST: Final = 0.005
"""Smallest saving shown, as a part of the step."""
SHORT_NS: Final = 10_000
"""A kernel below 10 µs takes about as long as its launch."""
MATRIX_PRODUCTS: Final = ("aten::bmm", "aten::baddbmm", "aten::matmul")
SOFTMAX: Final = ("aten::_softmax", "aten::softmax", "aten::_safe_softmax", "aten::_masked_softmax")


@dataclass(frozen=True)
class Lever:
    """One cause. saving_ns: per step, at most. color: palette member of the time it removes. analysis, find: where the proof is.

    query: further query fields of the proof. label: words of the link.
    """

    rule: str
    title: str
    evidence: str
    saving_ns: int
    fix: str
    color: str
    analysis: str
    label: str
    find: str = ""
    query: tuple[tuple[str, str], ...] = ()
    candidate: bool = False


def levers(capture: Capture, part: Scope, fall: Waterfall) -> list[Lever]:
    """All levers worth showing, the largest saving first."""
    if not len(capture.device) or not fall.total_ns:
        return _host_only(capture, fall)
    attention, taken = _unfused_attention(capture, fall)
    found = [
        _input(capture, fall),
        _host_waits(capture, part, fall),
        _communication(capture, fall),
        *_copies(capture, fall),
        attention,
        *_above_limit(capture, fall, taken),
    ]
    least = LEAST * fall.total_ns / fall.steps
    kept = [f for f in found if f is not None and f.saving_ns >= least]
    if fall.steps > 1:
        kept = [replace(f, evidence=f"In {fall.steps} steps: {f.evidence}") for f in kept]
    return sorted(kept, key=lambda f: -f.saving_ns)


def _count(n: int, one: str, many: str = "") -> str:
    """`one call runs`, `12 calls run`."""
    return f"One {one} runs" if n == 1 else f"{human(n, 'count')} {many or one + 's'} run"


def _each(ns: float, fall: Waterfall) -> int:
    return round(ns / fall.steps)


# -- waiting --------------------------------------------------------------------------------------------------


def _input(capture: Capture, fall: Waterfall) -> Lever | None:
    if not fall.input_wait_ns:
        return None
    rows, own = _loads(capture, fall)
    count = len(rows)
    mean = human(round(float(at.host(capture).duration[rows].mean())), "ns") if count else "—"
    wait = human(fall.input_wait_ns, "ns")
    batches = "One batch loads" if count == 1 else f"{human(count, 'count')} batches load"
    evidence = f"{batches} {own}, {mean} each; the {device_word(capture)} has no work for {wait} of that time."
    fix = "DataLoader(num_workers=4, persistent_workers=True)" if "process" in own else "DataLoader(num_workers=…, prefetch_factor=4)"
    return Lever(
        "input_wait",
        f"The {device_word(capture)} waits for the input pipeline",
        evidence,
        _each(fall.input_wait_ns, fall),
        fix,
        "host",
        "phases",
        "The loads among the phases",
        find="DataLoader",
    )


def _loads(capture: Capture, fall: Waterfall) -> tuple[npt.NDArray[np.intp], str]:
    """Host rows that fetch a batch inside the windows, and where the loading happens in words."""
    h = at.host(capture)
    name = capture.host["name"]
    loads = texts.where(name, lambda n: n.startswith(("enumerate(DataLoader)#", "enumerate(DataPipe)#")))
    rows = np.flatnonzero(loads & (h.kind != S.FRAME))
    rows = rows[iv.overlap_with(h.start[rows], h.stop[rows], fall.windows) > 0]
    single = bool(texts.where(name, lambda n: "SingleProcess" in n)[rows].any())
    return rows, "in the training process" if single else "too slowly in the workers"


def _host_waits(capture: Capture, part: Scope, fall: Waterfall) -> Lever | None:
    if not fall.host_wait_ns:
        return None
    idle = iv.subtract(fall.idle, fall.loading)
    device = capture.device
    inside = (
        iv.overlap_with(device["start_ns"].to_numpy(), device["start_ns"].to_numpy() + device["duration_ns"].to_numpy(), fall.windows) > 0
    )
    kernels = inside & (device["kind"].to_numpy() == S.KERNEL)
    short = kernels & (device["duration_ns"].to_numpy() < SHORT_NS)
    count, every = int(short.sum()), int(kernels.sum())
    longest, ns = _phase_of(capture, idle, fall)
    unit = device_word(capture)
    outside = f"Outside loading the {unit} idles" if fall.input_wait_ns else f"The {unit} idles"
    evidence = f"{outside} {human(fall.host_wait_ns, 'ns')} with {human(len(idle[0]), 'count')} gaps"
    if count:
        evidence += f"; {human(count, 'count')} of {human(every, 'count')} kernels run under 10 µs"
    call, blocked = _call_of(capture, idle)
    if 4 * blocked > fall.host_wait_ns:
        evidence += f"; {human(blocked, 'ns')} pass in `{call}`"
    if longest and 2 * ns > fall.host_wait_ns:
        evidence += f"; for {human(ns, 'ns')} of it the host is in `{longest}`"
        title = f"The {unit} waits while the host is in {longest}"
        fix = f'record_function("{longest}/…")  # find the part that blocks'
    elif every and 3 * count > every:
        title = "The host leaves gaps between short kernels"
        fix = 'torch.compile(mode="reduce-overhead")'
    else:
        title = f"The {unit} waits for the host"
        fix = "# keep .item(), .cpu() and print(tensor) out of the step"
    return Lever("host_wait", title, evidence + ".", _each(fall.host_wait_ns, fall), fix, "host", "gpu_breakdown", "Idle causes")


def device_word(capture: Capture) -> str:
    """What a reader calls the device."""
    return "GPU" if capture.facts.vendor in ("nvidia", "amd", "xpu") else "device"


def _phase_of(capture: Capture, idle: iv.Spans, fall: Waterfall) -> tuple[str, int]:
    """The top phase below the step (or without steps, the top phase) in which the device idles longest, and for how long.

    Only a phase that says something: one that is a part of the whole and in which the device idles most of the time.
    """
    h = at.host(capture)
    rows = np.flatnonzero(h.kind == S.ANNOTATION)
    if not len(rows):
        return "", 0
    above = at.nearest(capture, S.ANNOTATION, rows, strict=True)
    steps = np.zeros(len(h.start), bool)
    own = capture.steps["host"].to_numpy()
    steps[own[own >= 0]] = True
    top = ((above < 0) | steps[np.maximum(above, 0)]) & ~steps[rows]
    rows = rows[top]
    names = [phase_name(n) for n in texts.pick(capture.host["name"], rows).tolist()]
    spans = {"idle": iv.overlap_with(h.start[rows], h.stop[rows], idle), "all": iv.overlap_with(h.start[rows], h.stop[rows], fall.windows)}
    time = pd.DataFrame(spans).groupby(names).sum()
    time = time[(2 * time["idle"] > time["all"]) & (time["all"] < 0.9 * fall.total_ns)]
    return (str(time["idle"].idxmax()), int(time["idle"].max())) if len(time) else ("", 0)


def _call_of(capture: Capture, idle: iv.Spans) -> tuple[str, int]:
    """The runtime or driver call during which the device idles longest, and for how long (union over threads)."""
    h = at.host(capture)
    rows = np.flatnonzero(h.kind == S.CALL)
    if not len(rows):
        return "", 0
    column = capture.host["name"]
    (name,), _ = texts.largest([column], rows, iv.overlap_with(h.start[rows], h.stop[rows], idle))
    same = rows[texts.where(column, lambda n: n == name)[rows]]
    return name, iv.length(iv.intersect(iv.union(h.start[same], h.stop[same]), idle))


# -- moving data ----------------------------------------------------------------------------------------------


def _communication(capture: Capture, fall: Waterfall) -> Lever | None:
    exposed = fall.exposed_communication_ns
    if not exposed:
        return None
    device = capture.device
    rows = np.flatnonzero(device["communication"].to_numpy() & (device["kind"].to_numpy() == S.KERNEL))
    start = device["start_ns"].to_numpy()[rows]
    stop = start + device["duration_ns"].to_numpy()[rows]
    whole = iv.length(iv.intersect(iv.union(start, stop), fall.windows))
    (kernel,), most = texts.largest([device["name"]], rows, fall.own[rows])
    name = plain_name(kernel)
    evidence = (
        f"{human(exposed, 'ns')} of {human(whole, 'ns')} of communication run while nothing computes, "
        f"{human(round(most), 'ns')} of it in `{name}`."
    )
    advices = _HIDE if len(capture.tables["backward"]) else _HIDE_SERVING
    fix = next(advice for pattern, advice in advices.items() if re.search(pattern, name, re.IGNORECASE))
    return Lever(
        "exposed_communication",
        "Communication is not hidden behind computation",
        evidence,
        _each(exposed, fall),
        fix,
        "communication",
        "gpu_breakdown",
        "Overlap by device",
    )


_HIDE: Final = {
    r"all_?reduce": "DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=100)",
    r"all_?gather|reduce_?scatter": "fully_shard(layer)  # per layer, so that the next gather runs during this layer",
    "": "dist.all_to_all_single(…, async_op=True)  # wait() after other work",
}
"""Ways to hide a collective in training, by its name; the last fits any."""
_HIDE_SERVING: Final = {
    r"all_?reduce|all_?gather|reduce_?scatter": "torch._inductor.config._micro_pipeline_tp = True  # overlap tensor-parallel collectives",
    "": "dist.all_to_all_single(…, async_op=True)  # wait() after other work",
}
"""The same without a backward pass."""
_HIDE_COPIES: Final = {
    "HtoD": "with torch.cuda.stream(side): batch = batch.to(device, non_blocking=True)",
    "DtoH": "pinned.copy_(tensor, non_blocking=True)  # read it a step later",
    "DtoD": "torch.compile(model)  # fuses clone() and contiguous() away",
}


def _copies(capture: Capture, fall: Waterfall) -> list[Lever]:
    """Exposed copies: those from or to pageable memory, and the others."""
    device = capture.device
    rows = np.flatnonzero((device["kind"].to_numpy() == S.MEMCPY) & (fall.own > 0) & (fall.kind == len(KINDS)))
    if not len(rows):
        return []
    own = fall.own[rows]
    pageable = np.any([texts.where(device[c], lambda kind: kind == "Pageable")[rows] for c in ("src_kind", "dst_kind")], axis=0)
    out = []
    for mask, rule in ((pageable, "pageable_copies"), (~pageable, "exposed_copies")):
        if not mask.any():
            continue
        time = int(own[mask].sum())
        chosen = rows[mask]
        worst = texts.largest([device["direction"]], chosen, own[mask])[0][0] or "Unknown"
        size = device["bytes"].to_numpy()[chosen]
        duration = device["duration_ns"].to_numpy()[chosen]
        known = (size >= 0) & (duration > 0)
        rate = f"; {human(float(size[known].sum()) / float(duration[known].sum()) * 1e9, 'B/s')} on average" if known.any() else ""
        count = f"{_count(int(mask.sum()), 'copy', 'copies')} {human(time, 'ns')} while nothing computes, most of it {worst}{rate}"
        if rule == "pageable_copies":
            lead = "All host copies use" if mask.all() else "Copies use"
            out.append(
                Lever(
                    rule,
                    f"{lead} pageable memory",
                    f"{count}; pageable memory blocks the host and needs a second copy.",
                    _each(time, fall),
                    "DataLoader(pin_memory=True); tensor.to(device, non_blocking=True)",
                    "memcpy",
                    "memcpy",
                    "Memory copies",
                    query=(("by", "kind"),),
                )
            )
        else:
            out.append(
                Lever(
                    rule,
                    "Copies are not hidden behind computation",
                    f"{count}.",
                    _each(time, fall),
                    _HIDE_COPIES.get(worst, _HIDE_COPIES["HtoD"]),
                    "memcpy",
                    "memcpy",
                    "Memory copies",
                )
            )
    return out


# -- work above its limit -------------------------------------------------------------------------------------


def _unfused_attention(capture: Capture, fall: Waterfall) -> tuple[Lever | None, npt.NDArray[np.bool_]]:
    """Product, softmax, product over the same score matrix: one fused kernel reads and writes far less. Also the ops it takes."""
    ops = fall.work.ops
    taken = np.zeros(len(ops), bool)
    spec = fall.work.spec
    if spec is None or not len(ops):
        return None, taken
    name = ops["name"]
    is_product, is_softmax = (texts.where(name, frozenset(known).__contains__) for known in (MATRIX_PRODUCTS, SOFTMAX))
    chain = np.flatnonzero((is_product | is_softmax) & (fall.counted | is_softmax))
    if len(chain) < 3:
        return None, taken
    host = ops["host"].to_numpy()
    thread = at.host(capture).thread[host]
    a, b, c = chain[:-2], chain[1:-1], chain[2:]
    fits = is_product[a] & is_softmax[b] & is_product[c] & (thread[a] == thread[b]) & (thread[b] == thread[c])
    text = texts.pick(ops["shapes_json"], np.arange(len(ops)))
    measured = ops["measured_ns"].to_numpy(dtype=np.float64)
    flop = ops["flop"].to_numpy(dtype=np.float64)
    dtype = texts.pick(ops["dtype"], np.arange(len(ops)))
    cache: dict[tuple[str, str, str, str], tuple[float, str] | None] = {}
    save = time = least = 0.0
    score = ""
    for i, j, k in zip(a[fits].tolist(), b[fits].tolist(), c[fits].tolist(), strict=True):
        key = (text[i], text[j], text[k], dtype[i])
        if key not in cache:
            cache[key] = _fused_bytes(*key)
        fused = cache[key]
        peak = spec.matrix_peak(dtype[i])
        if fused is None or peak is None or spec.memory_bandwidth is None:
            continue
        limit = max((flop[i] + flop[k]) / peak, fused[0] / spec.memory_bandwidth) * 1e9
        spent = measured[[i, j, k]].sum()
        if not spent > limit:
            continue
        taken[[i, j, k]] = True
        save, time, least = save + spent - limit, time + spent, least + limit
        score = score or fused[1]
    if not taken.any():
        return None, taken
    used = np.unique(texts.pick(name, np.flatnonzero(taken)))
    evidence = (
        f"Product, softmax, product over {score} run {human(round(time), 'ns')}, {human(int(taken.sum()) // 3, 'count')} times; "
        f"fused into one kernel the limit is {human(round(least), 'ns')}."
    )
    softmax = next((n for n in used if n in SOFTMAX), "softmax")
    lever = Lever(
        "unfused_attention",
        "Attention writes its score matrix to memory",
        evidence,
        _each(save, fall),
        "F.scaled_dot_product_attention",
        "norm",
        "roofline",
        f"{len(used)} operators on the roofline",
        find=str(softmax),
    )
    return lever, taken


_BYTES: Final = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp64": 8}


def _fused_bytes(first: str, softmax: str, second: str, dtype: str) -> tuple[float, str] | None:
    """(traffic of a fused attention over these shapes: q, k, v read and the output written, the score matrix in words).

    None where the shapes are not the ones of attention: the score matrix out of the first product goes through the softmax
    into the second.
    """
    try:
        one, mid, two = (_tensors(json.loads(t)) for t in (first, softmax, second))
    except ValueError:
        return None
    if len(one) < 2 or not mid or len(two) < 2 or dtype not in _BYTES:
        return None
    q, k, v = one[-2], one[-1], two[-1]
    shape = (*q[:-1], k[-1])
    if int(np.prod(mid[0])) != int(np.prod(shape)) or int(np.prod(two[-2])) != int(np.prod(shape)) or shape[-1] < 2:
        return None
    out = (*q[:-1], v[-1])
    size = sum(int(np.prod(t)) for t in (q, k, v, out)) * _BYTES[dtype]
    return float(size), "×".join(str(n) for n in shape)


def _tensors(shapes: object) -> list[tuple[int, ...]]:
    if not isinstance(shapes, list):
        return []
    return [tuple(s) for s in shapes if isinstance(s, list) and len(s) >= 2 and all(isinstance(n, int) for n in s)]


_WORDS: Final = {
    "gemm": ("Matrix products run above their limit", "gemm"),
    "attention": ("Attention runs above its limit", "attention"),
    "conv": ("Convolutions run above their limit", "conv"),
    "norm": ("Norms and softmax run above their limit", "norm"),
    "elementwise": ("Elementwise work runs above its limit", "elementwise"),
    "other": ("Other operators run above their limit", "other"),
}


def _above_limit(capture: Capture, fall: Waterfall, taken: npt.NDArray[np.bool_]) -> list[Lever]:
    """Per kind of work the time above its limit, less what another lever took."""
    ops = fall.work.ops
    own = np.zeros(len(ops), np.float64)
    owner = fall.work.owner
    if not len(ops) or not len(owner):
        return []
    mine = np.flatnonzero((owner >= 0) & (fall.kind < len(KINDS)))
    np.add.at(own, owner[mine], fall.own[mine])
    sol = np.where(fall.counted, ops["sol_ns"].to_numpy(dtype=np.float64), 0.0)
    use = fall.counted & ~taken
    out = []
    for kind, (title, color) in _WORDS.items():
        rows = np.flatnonzero(use & texts.where(ops["kind"], kind.__eq__))
        wasted = own[rows] - sol[rows]
        total, time, least = wasted.sum(), own[rows].sum(), sol[rows].sum()
        if not total > 0:
            continue
        (name, shapes), most = texts.largest([ops["name"], ops["shapes"]], rows, wasted)
        evidence = (
            f"{_count(len(rows), 'call')} {human(round(time), 'ns')} at {human(least / time, 'ratio')} of their limit; "
            f"{human(round(most), 'ns')} above it in `{name}`{f' over {shapes}' if shapes else ''}."
        )
        (dtype,), _ = texts.largest([ops["dtype"]], rows, wasted)
        fix = _fix(kind, name, dtype, capture.facts.vendor, fall)
        out.append(
            Lever(f"{kind}_above_limit", title, evidence, _each(total, fall), fix, color, "roofline", "On the roofline", find=str(name))
        )
    return out


def _fix(kind: str, name: str, dtype: str, vendor: str, fall: Waterfall) -> str:
    """One line for the operator and type that waste most of a kind."""
    if kind in ("gemm", "conv", "attention") and dtype == "fp32" and fall.work.spec is not None and "tf32" in fall.work.spec.matrix:
        return 'torch.set_float32_matmul_precision("high")  # or autocast to bfloat16'
    if kind == "gemm":
        return 'torch.compile(mode="max-autotune")  # or larger, 8-aligned sizes'
    if kind == "conv":
        return "torch.backends.cudnn.benchmark = True; channels_last"
    if kind == "attention" and "flash" not in name:
        return "torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)"
    if kind == "attention" and vendor == "nvidia":
        return "torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION)"
    if kind == "attention":
        return "# larger batches or longer sequences; a newer attention kernel"
    return "torch.compile(model)  # fuses neighbours, so that each tensor is read once"


# -- without a device -----------------------------------------------------------------------------------------


def _host_only(capture: Capture, fall: Waterfall) -> list[Lever]:
    """A recording of the host: the loading that nothing else overlaps."""
    if not fall.total_ns:
        return []
    loading = iv.length(iv.intersect(fall.loading, fall.windows))
    if loading < LEAST * fall.total_ns:
        return []
    rows, own = _loads(capture, fall)
    evidence = f"{human(len(rows), 'count')} batches load {own} for {human(loading, 'ns')}."
    return [
        Lever(
            "input_wait",
            "The step waits for the input pipeline",
            evidence,
            _each(loading, fall),
            "DataLoader(num_workers=4, persistent_workers=True)",
            "host",
            "phases",
            "The loads among the phases",
            find="DataLoader",
        )
    ]
