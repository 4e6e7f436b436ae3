"""The model worked out one number at a time with powers as they are written, and points made from it: slow, and not the product's way."""

from __future__ import annotations

import math
import random

P1 = (0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)
P2 = (0.02, 0.0011, 0.05, 0.004, 0.012, 0.0009, 1.2)
P3 = (0.3, 0.02, 0.9, 0.01, 0.2, 0.01, 4.0)

GRID = [(n, r, b) for n, r in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (2, 16), (4, 16), (4, 32)) for b in (16, 32, 64, 128)]
"""36 configurations: nodes, replicas, samples per replica and micro-step."""


def accum(p, b):
    return p[0] + p[1] * b


def network(p, n, r):
    if r == 1:
        return 1e-8 + 1e-8 * 1e-8
    alpha, beta = (p[2], p[3]) if n > 1 else (p[4], p[5])
    return alpha + beta * max(r - 2, 1e-8)


def optim(p, n, r, b):
    return (accum(p, b) ** p[6] + network(p, n, r) ** p[6]) ** (1 / p[6])


def goodput(p, sqr, var, first, n, r, b, k):
    total = r * b * (k + 1)
    scale = total / first
    below = var / scale + sqr
    gain = (var + sqr) / below if below > 0 else 1.0
    return total / (k * accum(p, b) + optim(p, n, r, b)) * gain / scale


def objective(p, rows):
    """rows: (n, r, b, T_accum, T_optim)."""
    off = [(math.log(accum(p, b) / a), math.log(optim(p, n, r, b) / o)) for n, r, b, a, o in rows]
    roots = sum(math.sqrt(sum(e[i] ** 2 for e in off) / len(off)) for i in (0, 1))
    return roots + 1e-3 * (p[6] - 1) ** 2 + 1e-2 * ((p[3] / p[2]) ** 2 + (p[5] / p[4]) ** 2)


def rows(p, grid=GRID, sigma=0.0, seed=1):
    """(n, r, b, T_accum, T_optim) of each configuration; each time off by a random factor of so much."""
    rng = random.Random(seed)
    return [(n, r, b, accum(p, b) * math.exp(rng.gauss(0, sigma)), optim(p, n, r, b) * math.exp(rng.gauss(0, sigma))) for n, r, b in grid]


def columns(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def random_grid(count, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        n = rng.choice([1, 1, 2, 3, 4, 8])
        out.append((n, n * rng.randint(1, 8), rng.randint(4, 256)))
    return out


def random_params(seed):
    rng = random.Random(seed)

    def around(value):
        return value * math.exp(rng.uniform(-1, 1))

    return (*(around(v) for v in P1[:6]), rng.uniform(1.1, 5))
