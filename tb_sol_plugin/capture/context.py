"""Starts a tracker: `with sol.capture(logdir, model=model) as tracker`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tb_sol_plugin.capture.loop.options import CaptureOptions, Mode, Sizes
from tb_sol_plugin.capture.loop.schedule import REPORT_INTERVAL
from tb_sol_plugin.capture.tracker import SOLTracker


def capture(
    logdir: str | None = None,
    *,
    model: object = None,
    every_n_steps: int = 100,
    profile: bool = False,
    phases: bool = True,
    device: str = "auto",
    mode: Mode = "auto",
    report_interval: int | None = None,
    assume_sparsity: bool = False,
    time_layers: bool = True,
    traces: int = 3,
    trace_stacks: bool = True,
    tensorboard: object = True,
    wandb: bool = True,
    console: bool | Literal["rich"] = True,
    rank: int | None = None,
    batch: Sizes = None,
    tokens: Sizes = None,
    first_iteration: int = 0,
    copies: bool = True,
    sample_random: bool = False,
    memory: bool = False,
    memory_every: int | None = None,
    memory_peaks: bool = False,
    optimizer: object = None,
    plan: Mapping[str, object] | None = None,
) -> SOLTracker:
    """Return a tracker that runs from here on; leaving its `with` ends it.

    logdir: folder of the capture file, a run of TensorBoard; None writes none. model: one or several (list, dict), None for work
    outside of modules. every_n_steps: iterations 0, 1 and every n-th are sampled. profile: trace the iteration after a sampled one,
    at most `traces` times. phases: False makes `tracker.phase` do nothing. report_interval: default every_n_steps, but no less than
    100; the last sampled iteration is reported at the end in any case. The others are those of `SOLTracker`.

    >>> with capture("runs/first", model=model) as tracker:
    ...     for batch in loader:
    ...         with tracker.phase("forward"):
    ...             loss = model(batch).mean()
    ...         loss.backward()
    ...         tracker.step()
    """
    options = CaptureOptions(
        device=device,
        mode=mode,
        logdir=logdir,
        every_n_steps=every_n_steps,
        report_interval=report_interval or max(REPORT_INTERVAL, every_n_steps),
        assume_sparsity=assume_sparsity,
        time_layers=time_layers,
        profile="after_sampled" if profile else "off",
        traces=traces,
        trace_stacks=trace_stacks,
        tensorboard=tensorboard,
        wandb=wandb,
        console=console,
        rank=rank,
        batch=batch,
        tokens=tokens,
        first_iteration=first_iteration,
        copies=copies,
        sample_random=sample_random,
        memory=memory,
        memory_every=memory_every,
        memory_peaks=memory_peaks,
        optimizer=optimizer,
        plan=plan,
        phases=phases,
    )
    tracker = SOLTracker.of(options)
    tracker.initialize(model)
    return tracker
