"""The side of a tracker that training code sees between its start and its end: parts, phases, and what was captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tb_sol_plugin.capture.boundary import Boundary
from tb_sol_plugin.capture.operation_registry import CapturedFunctionalOp, CapturedOp, OpRecord
from tb_sol_plugin.capture.output import Output
from tb_sol_plugin.capture.phase_range import PhaseRange
from tb_sol_plugin.capture.phases import PhaseStack

if TYPE_CHECKING:
    from tb_sol_plugin.capture.analysis import Analysis
    from tb_sol_plugin.capture.functional_patcher import FunctionalPatcher
    from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks
    from tb_sol_plugin.capture.ledger import Ledger
    from tb_sol_plugin.capture.watch import Watch


class Parts:
    """Parts of a tracker by their names, its phases, and its records. Nothing here raises into training."""

    boundary: Boundary
    output: Output
    phases: PhaseStack
    watch: Watch
    off: bool
    _kept: Sequence[OpRecord]
    _range: type[PhaseRange]

    def _tell(self) -> None:
        """Tell the others what went the short way."""
        raise NotImplementedError

    def unwound(self, kind: type[BaseException]) -> None:
        """An exception left the outermost phase."""
        raise NotImplementedError

    @property
    def hooks(self) -> LayerSOLHooks:
        return self.watch.hooks

    @property
    def patcher(self) -> FunctionalPatcher:
        return self.watch.patcher

    @property
    def ledger(self) -> Ledger:
        return self.watch.ledger

    @property
    def analysis(self) -> Analysis | None:
        """Of the last iteration that was sampled, or did the same work as a sampled one. None before."""
        self.boundary.attempt("analysis", self._tell, None)
        return self.boundary.attempt("analysis", lambda: self.output.analysis, None)

    @property
    def sampled(self) -> bool:
        """Whether the work of the iteration that runs now is counted."""
        return self.watch.on

    def push_phase(self, name: object) -> None:
        """Enter a phase; `/` in its name nests it on pages."""
        try:
            self.phases.push(name)
        except Exception as error:
            self.boundary.failed("push_phase", error, vital=True)

    def pop_phase(self) -> None:
        """Leave the innermost phase. With none open this is noted once."""
        try:
            self.phases.pop()
        except Exception as error:
            self.boundary.failed("pop_phase", error, vital=True)

    def phase(self, name: object) -> PhaseRange:
        """The phase of a `with` block, left also when an exception flies."""
        return self._range(self, self.phases, name)

    @property
    def records(self) -> list[OpRecord]:
        """The ledger of the iteration that runs, if it is sampled; else what the last one left, see `log_analysis`."""
        if self.watch.on and self.ledger.rows:
            return self.boundary.attempt("records", self.watch.records, [])
        return list(self._kept)

    @property
    def captured_ops(self) -> list[CapturedOp]:
        """`records` summed up by supported layer."""
        return self.boundary.attempt("records", lambda: self.hooks.records(self.records), [])

    @property
    def captured_functional_ops(self) -> list[CapturedFunctionalOp]:
        """`records` summed up by patched function."""
        return self.boundary.attempt("records", lambda: self.patcher.records(self.records), [])
