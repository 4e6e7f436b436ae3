"""What is left above the limit per kind of work, once every more specific rule has taken its part."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.rules.engine import Lever, acting, over, took
from tb_sol_plugin.metrics.rules.time.context import Case
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

WORDS: Final = {
    "gemm": "Matrix products run above their limit",
    "attention": "Attention runs above its limit",
    "conv": "Convolutions run above their limit",
    "norm": "Norms and softmax run above their limit",
    "elementwise": "Elementwise work runs above its limit",
    "other": "Other operators run above their limit",
}


def above_limit(case: Case) -> list[Lever]:
    """Per kind the time above the limit that nobody claimed.

    Calls that nobody claimed from count with their sign, so that work that beats its limit (a cached read, a shorter algorithm)
    is weighed against the rest. Of the others counts what remains above the limit.
    """
    out = []
    touched = case.left < case.time
    rest = np.where(touched, np.maximum(case.left - np.nan_to_num(case.limit), 0.0), case.time - case.limit)
    known = np.isfinite(case.limit)
    for kind, title in WORDS.items():
        rows = np.flatnonzero(known & case.of_kind(kind))
        total = float(rest[rows].sum())
        rows = rows[(rest[rows] > 0) & (case.left[rows] > 0)]
        if total <= 0 or not len(rows):
            continue
        wasted = rest[rows]
        total = min(total, float(wasted.sum()))
        (name, shapes), most = arrays.largest([case.ops["name"], case.ops["shapes"]], rows, wasted)
        (dtype,), _ = arrays.largest([case.ops["dtype"]], rows, wasted)
        ratio = float(case.limit[rows].sum() / case.time[rows].sum())
        evidence = f"{acting(len(rows), 'call', 'runs')} {took(case.time[rows].sum())} at {human(ratio, 'ratio')} of their limit; "
        evidence += f"{took(most)} above it in {over(name, shapes)}."
        claimed = case.claim(rows, wasted * (total / wasted.sum()))
        out.append(
            Lever(
                f"{kind}_above_limit", title, evidence, case.each(float(claimed.sum())), _fix(case, kind, name, dtype), kind, "roofline",
                "On the roofline", find=name, rows=rows, claimed=claimed,
            )
        )  # fmt: skip
    return out


def _fix(case: Case, kind: str, name: str, dtype: str) -> str:
    """One line for the operator and type that waste most of a kind."""
    if name.startswith("fsdp::"):
        return "fully_shard(block, reshard_after_forward=False)  # gathered once per step, for more memory"
    if case.vendor == "cpu":
        return "# more (batch, head) pairs per core: larger batches" if kind == "attention" and "flash" in name else _CPU[kind]
    if kind in ("gemm", "conv", "attention") and dtype == "fp32" and case.spec is not None and "tf32" in case.spec.matrix:
        return 'torch.set_float32_matmul_precision("high")  # or autocast to bfloat16'
    if kind == "gemm" and case.vendor == "amd":
        return "torch.cuda.tunable.enable()  # TunableOp picks the fastest hipBLASLt or rocBLAS kernel per size"
    if kind == "gemm":
        return 'torch.compile(model, mode="max-autotune")  # or larger, 8-aligned sizes'
    if kind == "conv":
        library = "MIOpen" if case.vendor == "amd" else "cuDNN"
        return f"torch.backends.cudnn.benchmark = True  # {library} tries its algorithms once per size"
    if kind == "attention" and "flash" not in name:
        return "with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION):"
    if kind == "attention" and case.vendor == "nvidia":
        return "with torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION):"
    if kind == "norm" and "batch_norm" in name:
        return "model.to(memory_format=torch.channels_last)  # with autocast: NHWC batch norm over half the bytes"
    if re.search(r"_fused_(adam|sgd|adagrad)", name):
        return "# one pass already: sharded or 8-bit optimizer state moves less"
    if kind == "attention":
        return "# larger batches or longer sequences; a newer attention kernel"
    return "torch.compile(model)  # fuses neighbours, so that each tensor is read once"


_CPU: Final = {
    "gemm": 'torch.compile(model, mode="max-autotune")  # and torch.set_num_threads(physical cores)',
    "attention": "F.scaled_dot_product_attention(q, k, v)",
    "conv": "model.to(memory_format=torch.channels_last)  # oneDNN then needs no reorder",
    "norm": "torch.compile(model)  # fuses neighbours, so that each tensor is read once",
    "elementwise": "torch.compile(model)  # fuses neighbours, so that each tensor is read once",
    "other": "torch.compile(model)  # fuses neighbours, so that each tensor is read once",
}


# -- Forward work that runs again inside the backward pass (activation checkpointing) --------------------------------
# time bought with memory.


def recompute(case: Case) -> Lever | None:
    """All time of recomputed calls could go, if their activations were kept."""
    rows = np.flatnonzero(case.ops["recompute"].to_numpy() & (case.left > 0))
    if not len(rows):
        return None
    cost = float(case.left[rows].sum())
    matrix = case.of_kind("gemm", "attention", "conv")[rows]
    heavy = float(case.left[rows][matrix].sum())
    (layer,), most = arrays.largest([case.ops["layer"]], rows, case.left[rows])
    claimed = case.claim(rows, case.left[rows])
    where = f", {took(most)} of it in `{layer}`" if layer else ""
    return Lever(
        "recompute",
        "Forward work runs a second time in the backward pass",
        f"{acting(len(rows), 'recomputed call', 'takes')} {took(cost)}{where}; {human(heavy / cost, 'ratio')} of that are products, "
        "convolutions and attention, whose results are worth keeping. Keeping them costs memory.",
        case.each(float(claimed.sum())),
        "checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, ops_to_save))",
        "other",
        "modules",
        "Modules",
        rows=rows,
        claimed=claimed,
    )
