"""What a recording knows of its process: the tracked models, their device and its limits, the rank, the folder."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tb_sol_plugin.capture.hooks.module_names import models_in
from tb_sol_plugin.capture.loop.header import compiled, device_kind, rank_of
from tb_sol_plugin.capture.loop.phases import PhaseStack, nvtx_usable
from tb_sol_plugin.capture.loop.timing import EventPool, event_pool
from tb_sol_plugin.format import SUFFIX, file_name

if TYPE_CHECKING:
    from tb_sol_plugin.capture.device_specs import DeviceSpec
    from tb_sol_plugin.capture.loop.options import CaptureOptions
    from tb_sol_plugin.capture.loop.schedule import ScriptOptions
    from tb_sol_plugin.capture.report.output import Places


class TrackedModels:
    """The models that are tracked.

    given: as the script passed them, one or several in a list or dict. compiled: a part of them runs under torch.compile. inputs: (samples,
    length) of each call of the first sampled iteration that was called with token ids.
    """

    def __init__(self) -> None:
        self.given: object = None
        self.models: list[object] = []
        self.compiled = False
        self.inputs: Sequence[tuple[int, int]] = ()

    def same(self, given: object) -> bool:
        """Return whether these are the very models that are tracked already."""
        models = list(models_in(given))
        return len(models) == len(self.models) and all(a is b for a, b in zip(models, self.models, strict=True))

    def set(self, given: object) -> None:
        """Track these models from now on."""
        self.given, self.models = given, list(models_in(given))
        self.compiled = compiled(self.models)

    def clear(self) -> None:
        """Let go of the models."""
        self.given, self.models = None, []


class Environment:
    """The device of the tracked models, its limits, the rank of the process and the folder of its files.

    device: whose limits to judge by, see `find_device`. kind: type of the device in use (cuda, cpu), "" before the first look. events: its
    timing events, None where the clock of the host is used.
    """

    def __init__(
        self, options: CaptureOptions, places: Places, tracked: TrackedModels, phases: PhaseStack, note: Callable[[str, str], None]
    ) -> None:
        self.places, self.device, self.rank = places, options.device, options.rank
        self.assume_sparsity = options.assume_sparsity
        self.kind = ""
        self.events: EventPool | None = None
        self._tracked, self._phases, self._note = tracked, phases, note
        self._limits: tuple[DeviceSpec | None, str] | None = None

    @property
    def logdir(self) -> str | None:
        """The folder of the capture file; None where none is written."""
        return self.places.logdir

    def take(self, script: ScriptOptions) -> None:
        """Take from the script's arguments what the constructor of the tracker left open."""
        if self.places.logdir is None:
            self.places.logdir = script.logdir
        if self.device == "auto" and script.device:
            self.device = script.device
        if self.rank is None:
            self.rank = script.rank

    def find_events(self) -> None:
        """Look at which device the models are, and let phases be timed and marked there."""
        kind = device_kind(self._tracked.models)
        if kind != self.kind:
            self.kind, self._limits = kind, None
            self.events = event_pool(kind)
        self._phases.events = self.events
        self._phases.nvtx = nvtx_usable()

    def limits(self) -> tuple[DeviceSpec | None, str]:
        """Return the limits of the device, or None and the reason why they are unknown."""
        if self._limits is None:
            from tb_sol_plugin.capture.device_specs import find_device

            found = find_device(self.device, assume_sparsity=self.assume_sparsity, logdir=self.logdir or "", where=self.kind)
            for text in found.notes:
                self._note("device", text)
            self._limits = found.spec, found.reason
        return self._limits

    def ranks(self) -> tuple[int, int]:
        """Return (rank, world size)."""
        rank, world = rank_of()
        return (rank, world) if self.rank is None else (self.rank, max(world, self.rank + 1))

    def is_first_rank(self) -> bool:
        """Return whether metrics are logged here."""
        return self.ranks()[0] == 0

    def worker(self) -> str:
        """Return `<host>_rank<rank>`, as the capture file is called."""
        return file_name(socket.gethostname(), self.ranks()[0], 0, 0).removesuffix(f"_0_0{SUFFIX}")
