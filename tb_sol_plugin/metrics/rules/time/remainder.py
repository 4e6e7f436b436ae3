"""Finds what is left above the limit per kind of work, once every more specific rule has claimed its part."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.rules.engine import Answer, rule, subject_verb, time_text, with_sizes
from tb_sol_plugin.metrics.rules.time.context import Claim, TimeContext
from tb_sol_plugin.metrics.rules.time.engine_fixes import custom_fix, expert_fix
from tb_sol_plugin.metrics.rules.time.recorded import compiled, fusing, tuning
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


@rule(*(f"{kind}_above_limit" for kind in WORDS), page="roofline", label="On the roofline")
def above_limit(context: TimeContext) -> Answer:
    """Finds, per kind of work, the time above the limit that no other rule claimed.

    Calls count with their sign, so that work that beats its limit (a cached read, a shorter algorithm) is weighed against the rest.
    """
    out = []
    free = context.left == context.time
    rest = np.where(free, context.time - context.limit, 0.0)
    known = np.isfinite(context.limit)
    for kind, title in WORDS.items():
        rows = np.flatnonzero(known & context.of_kind(kind))
        total = float(rest[rows].sum())
        rows = rows[(rest[rows] > 0) & (context.left[rows] > 0)]
        if total <= 0 or not len(rows):
            continue
        wasted = rest[rows]
        total = min(total, float(wasted.sum()))
        (name, shapes), most = arrays.largest([context.ops["name"], context.ops["shapes"]], rows, wasted)
        (dtype,), _ = arrays.largest([context.ops["dtype"]], rows, wasted)
        ratio = float(context.limit[rows].sum() / context.time[rows].sum())
        evidence = f"{subject_verb(len(rows), 'call', 'runs')} {time_text(context.time[rows].sum())} at {human(ratio, 'ratio')} of "
        evidence += f"{'its' if len(rows) == 1 else 'their'} limit; {time_text(most)} above it in {with_sizes(name, shapes)}."
        claim = context.claim(rows, wasted * (total / wasted.sum()))
        fix = _fix(context, kind, name, dtype, claim)
        out.append(context.finding(evidence, claim, rule=f"{kind}_above_limit", title=title, fix=fix, color=kind))
    return out


def _fix(context: TimeContext, kind: str, name: str, dtype: str, claim: Claim) -> str:
    """Returns one line of advice for the operator and type that waste most of a kind."""
    if name.startswith("fsdp::"):
        return "fully_shard(block, reshard_after_forward=False)  # gathered once per step, for more memory"
    if context.vendor == "cpu":
        if kind == "attention" and (_OWN_ATTENTION.match(name) or "flash" in name):
            return "# more (batch, head) pairs per core: larger batches"
        return _CPU[kind] if kind in _CPU else fusing(context, claim)
    if kind in ("gemm", "conv", "attention") and dtype == "fp32" and context.spec is not None and "tf32" in context.spec.matrix:
        return 'torch.set_float32_matmul_precision("high")  # or autocast to bfloat16'
    if kind == "gemm":
        return expert_fix(context.capture, name) or _faster_product(context, claim)
    if kind == "conv":
        library = "MIOpen" if context.vendor == "amd" else "cuDNN"
        return f"torch.backends.cudnn.benchmark = True  # {library} tries its algorithms once per size"
    if kind == "attention":
        return _faster_attention(context, name)
    if kind == "norm" and "batch_norm" in name:
        return "model.to(memory_format=torch.channels_last)  # with autocast: NHWC batch norm over half the bytes"
    if re.search(r"_fused_(adam|sgd|adagrad)", name):
        return "# one pass already: sharded or 8-bit optimizer state moves less"
    custom = custom_fix(context.capture, name) if compiled(context, claim) else ""
    return custom or fusing(context, claim)


def _faster_product(context: TimeContext, claim: Claim) -> str:
    """Returns one line of advice for products by a library on a GPU."""
    if context.vendor == "amd":
        return "torch.cuda.tunable.enable()  # TunableOp picks the fastest hipBLASLt or rocBLAS kernel per size"
    return tuning(context, claim, "or larger, 8-aligned sizes")


def _faster_attention(context: TimeContext, name: str) -> str:
    """Returns one line of advice for attention on a GPU; backends are chosen only for PyTorch's own."""
    if name.startswith("aten::") and "flash" not in name:
        return "with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION):"
    if name.startswith("aten::") and context.vendor == "nvidia":
        return "with torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION):"
    return "# larger batches or longer sequences; a newer attention kernel"


_CPU: Final = {
    "gemm": 'torch.compile(model, mode="max-autotune")  # and torch.set_num_threads(physical cores)',
    "attention": "F.scaled_dot_product_attention(q, k, v)",
    "conv": "model.to(memory_format=torch.channels_last)  # oneDNN then needs no reorder",
}
_OWN_ATTENTION: Final = re.compile(r"(?!aten::)|aten::_scaled_dot_product_(?!attention_math)")
"""Attention that is one kernel already, by an operator of PyTorch or of others."""


# -- Forward work that runs again inside the backward pass (activation checkpointing) --------------------------------
# time bought with memory.


@rule(
    "recompute", title="Forward work runs a second time in the backward pass",
    fix="checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, ops_to_save))",
    page="modules", label="Modules", color="other",
)  # fmt: skip
def recompute(context: TimeContext) -> Answer:
    """Finds recomputed calls: all of their time could go, if their activations were kept."""
    rows = np.flatnonzero(context.ops["recompute"].to_numpy() & (context.left > 0))
    if not len(rows):
        return None
    cost = float(context.left[rows].sum())
    matrix = context.of_kind("gemm", "attention", "conv")[rows]
    heavy = float(context.left[rows][matrix].sum())
    (layer,), most = arrays.largest([context.ops["layer"]], rows, context.left[rows])
    claim = context.claim(rows, context.left[rows])
    where = f", {time_text(most)} of it in `{layer}`" if layer else ""
    return context.finding(
        f"{subject_verb(len(rows), 'recomputed call', 'takes')} {time_text(cost)}, {human(cost / float(context.time.sum()), 'ratio')} "
        f"of the time of all operators{where}; {human(heavy / cost, 'ratio')} of that are products, convolutions and "
        "attention, whose results are worth keeping. Keeping them costs memory.",
        claim,
    )
