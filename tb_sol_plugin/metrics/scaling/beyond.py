"""What a prediction takes for granted that the points do not show: more replicas or larger micro-batches than ran, unknown parameters."""

from __future__ import annotations

from collections.abc import Sequence

from tb_sol_plugin.cost.goodput.fit import Fit
from tb_sol_plugin.metrics.scaling.outlook import Outlook
from tb_sol_plugin.metrics.scaling.points import Point


def beyond(points: Sequence[Point], fit: Fit, nodes: int, replicas: int, atomic: int) -> tuple[str, ...]:
    """In words how a way to run lies beyond the points that a fit took; empty where it does not."""
    out = []
    most, largest = max(p.num_replicas for p in points), max(p.atomic_bsz for p in points)
    if replicas > most:
        out.append(f"more replicas than the {most} that ran")
    if atomic > largest:
        out.append(f"a larger micro-batch than the {largest} that ran")
    return (*out, *unknown(fit, nodes, replicas))


def unknown(fit: Fit, nodes: int, replicas: int) -> tuple[str, ...]:
    """What of the synchronisation of a way to run the points do not tell, in words. A rate that is not observed counts as nothing."""
    if replicas < 2:
        return ()
    link, where = ("n", "across nodes") if nodes > 1 else ("r", "within a node")
    rules = [r.partition(":")[0] for r in fit.rules]
    if f"alpha_{link} not observed" in rules:
        return (f"synchronising {where} was never observed",)
    if replicas > 2 and f"beta_{link} not observed" in rules:
        return (f"how synchronising {where} grows with replicas was never observed",)
    return ()


def of_counts(points: Sequence[Point], outlook: Outlook) -> list[tuple[str, ...]]:
    """For the best way to run each count of replicas; empty where it cannot be run."""
    b = outlook.best
    return [
        beyond(points, outlook.fit, int(n), int(r), int(a)) if g == g else ()
        for n, r, a, g in zip(b["nodes"], b["replicas"], b["atomic"], b["goodput"], strict=True)
    ]
