"""The same model on the same devices, spread in every other way: bytes of the first, a middle and the last stage of each layout.

State does not depend on the micro-batch and activations are in proportion to it, so that what one sample takes is made once per tensor
and pipeline parallel size; the rest is a sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple, get_args

from tb_sol_plugin.cost.transformer.memory import Layout, Model, Recompute, activations_of_a_sample, in_flight, logits, stage
from tb_sol_plugin.cost.transformer.query import possible

MICRO_BATCHES: Final = (1, 2, 4, 8)
MOST_WAYS: Final = 600
"""Ways to divide devices into tensor and pipeline parallel ranks that are looked at: more than there are of any 4 096 devices."""
KINDS: Final[tuple[Recompute, ...]] = get_args(Recompute)


class Spread(NamedTuple):
    """One layout. microbatches: 0 for as many as there are stages. middle_bytes: of the second stage, the fullest of those between the
    ends; None without one. imbalance: the largest of the three over the smallest."""

    tp: int
    pp: int
    vpp: int
    dp: int
    micro_batch: int
    microbatches: int
    recompute: Recompute
    first_bytes: int
    middle_bytes: int | None
    last_bytes: int
    largest_bytes: int
    imbalance: float


def layouts(model: Model, layout: Layout, world: int, micro_batches: tuple[int, ...] = MICRO_BATCHES) -> list[Spread]:
    """Every possible (tp, pp, dp, micro-batch, recompute) on `world` devices; all else as in `layout`.

    With a number of microbatches the samples of a step stay the same, and layouts that cannot divide them are left out. Chunks per stage
    (vpp) are 1 where those of `layout` do not fit. Of more than `MOST_WAYS` ways to choose tp and pp, those with the smallest tp.
    """
    sizes = sorted({*micro_batches, layout.micro_batch})
    samples = layout.microbatches * layout.micro_batch * layout.dp
    rows: list[Spread] = []
    for one in itertools.islice(_spread(model, layout, world), MOST_WAYS):
        places = sorted({0, min(1, one.pp - 1), one.pp - 1})
        state = [stage(model, one, k).state_bytes for k in places]
        counts = {size: _microbatches(samples, size, one.dp) for size in sizes}
        held = {n: [in_flight(replace(one, microbatches=n), k) for k in places] for n in set(counts.values()) if n is not None}
        head = [logits(model, replace(one, micro_batch=1), k) for k in places]
        for kind in KINDS:
            sample = [activations_of_a_sample(model, replace(one, recompute=kind), k) for k in places]
            for size, count in counts.items():
                if count is None:
                    continue
                parts = zip(state, sample, held[count], head, strict=True)
                total = [fixed + round(size * (p.each * n + p.once)) + size * h for fixed, p, n, h in parts]
                middle = total[1] if len(total) > 2 else None
                most = max(total)
                ends = (total[0], middle, total[-1], most, most / min(total))
                rows.append(Spread(one.tp, one.pp, one.vpp, one.dp, size, count, kind, *ends))
    return rows


def _spread(model: Model, layout: Layout, world: int) -> Iterator[Layout]:
    """Possible layouts of a model over `world` devices, by tp, then pp."""
    over = divisors(world // layout.cp) if world % layout.cp == 0 else []
    pps = [n for n in over if model.layers % n == 0]
    for tp in (n for n in over if model.heads % n == 0):
        for pp in pps:
            if (world // layout.cp) % (tp * pp):
                continue
            one = replace(layout, tp=tp, pp=pp, dp=world // layout.cp // tp // pp)
            if one.vpp > 1 and (pp == 1 or model.layers % (pp * one.vpp)):
                one = replace(one, vpp=1)
            if possible(model, one):
                yield one


def _microbatches(samples: int, size: int, dp: int) -> int | None:
    """Microbatches that keep the samples of a step; 0 where their number is left open, None where they do not divide."""
    if not samples:
        return 0
    return samples // (size * dp) if samples % (size * dp) == 0 else None


def divisors(number: int) -> list[int]:
    """All divisors, smallest first."""
    low = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})
