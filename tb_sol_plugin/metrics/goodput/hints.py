"""Scheduling hints of a job: its sizes and its model of goodput, under the keys that AdaptDL's supervisor takes."""

from __future__ import annotations

import msgspec

from tb_sol_plugin.metrics.goodput.fit import Gathered


class GradHints(msgspec.Struct, forbid_unknown_fields=True):
    """norm: the squared norm."""

    norm: float
    var: float


class PerfHints(msgspec.Struct, forbid_unknown_fields=True):
    """All seven as fitted."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float


class SchedHints(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The hints; what is not known has its default. A scheduler needs all seven parameters, also those that points leave open."""

    init_batch_size: int = 0
    local_bsz_bounds: tuple[int, int] | None = None
    global_batch_size: int | None = None
    max_batch_size: int = 0
    max_profiled_replicas: int = 0
    gradient_accumulation: bool = False
    grad_params: GradHints | None = None
    perf_params: PerfHints | None = None


def hints(found: Gathered) -> str:
    """The hints of a fit as JSON, read back and checked."""
    assert found.prediction is not None
    t, fit = found.prediction.terms, found.prediction.fit
    made = SchedHints(
        init_batch_size=t.initial, local_bsz_bounds=(t.low, t.high), max_batch_size=t.most, gradient_accumulation=t.accumulation,
        max_profiled_replicas=max(p.num_replicas for p in found.used),
        grad_params=GradHints(max(t.grads.sqr, 0.0), max(t.grads.var, 0.0)) if t.grads is not None else None,
        perf_params=PerfHints(**fit.params._asdict()),
    )  # fmt: skip
    text = msgspec.json.encode(made)
    msgspec.json.decode(text, type=SchedHints)
    return msgspec.json.format(text, indent=2).decode()
