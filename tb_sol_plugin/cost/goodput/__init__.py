"""Predicts how fast a data-parallel job trains at other replica counts and batch sizes: step time, statistical efficiency, their fit.

After Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021. Times in seconds, batch sizes
in samples, throughput and goodput in samples per second. n nodes, r replicas on them, b samples per replica and micro-step (the
atomic batch size), k micro-steps of accumulation before the one that updates; total batch size M = r b (k + 1).

    from tb_sol_plugin.cost.goodput import fit, GoodputFunction, GradParams, SpeedupFunction

    found = fit(num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time)     # Fit; fit_perf_params(...) gives found.params
    found.params                # PerfParams(alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma), all seven as fitted
    found.identified            # name -> False where the points do not determine it: show no number for it
    found.rules, found.dropped, found.warnings, found.objective

    goodput = GoodputFunction(found.params, GradParams(sqr=..., var=...), init_batch_size)   # None for GradParams: efficiency is 1
    goodput(n, r, b, k)         # also .evaluate, .throughput(n, r, b, k), .efficiency(M); numbers or arrays that broadcast
    goodput.optimize(n, r, max_batch_size=M, atomic_bsz_range=(1, 256), accumulation=True)   # Best(goodput, atomic_bsz, accum_steps)

    speedup = SpeedupFunction(goodput, max_batch_size=M, atomic_bsz_range=(1, 256))
    speedup(n, r)               # goodput at its best there over that of one replica at its best

    leave_one_out(...), bootstrap(found), band(samples, predict)     # confidence: how far the fit can be trusted
    allocate([Job(name=..., speedup=speedup, max_replicas=64), ...], Cluster.alike(nodes=16, devices=8), p=1)       # Allocation
    replay(classes, cluster, arrivals(classes, per_hour=8, hours=24), hours=48, policy="goodput")    # Replayed: a simulation over time

What the modules hold: `model` the formulas and the search for a batch size, `fit` points to parameters, what they determine and how far to
trust it, `cluster` allocations of several jobs and a cluster over time.
"""

from __future__ import annotations

from tb_sol_plugin.cost.goodput.cluster import Allocation, Cluster, Job, Shape, allocate, over_sizes
from tb_sol_plugin.cost.goodput.confidence import Bootstrap, LeftOut, band, bootstrap, leave_one_out
from tb_sol_plugin.cost.goodput.fit import Dropped, Fit, Points, fit, fit_perf_params, objective, points
from tb_sol_plugin.cost.goodput.model import Best, GoodputFunction, GradParams, PerfParams, SpeedupFunction
from tb_sol_plugin.cost.goodput.simulate import Arrivals, JobClass, Replayed, arrivals, replay

__all__ = [
    "Allocation",
    "Arrivals",
    "Best",
    "Bootstrap",
    "Cluster",
    "Dropped",
    "Fit",
    "GoodputFunction",
    "GradParams",
    "Job",
    "JobClass",
    "LeftOut",
    "PerfParams",
    "Points",
    "Replayed",
    "Shape",
    "SpeedupFunction",
    "allocate",
    "arrivals",
    "band",
    "bootstrap",
    "fit",
    "fit_perf_params",
    "leave_one_out",
    "objective",
    "over_sizes",
    "points",
    "replay",
]
