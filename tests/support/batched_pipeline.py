"""Makes recordings of a pipeline whose stages exchange activations and gradients in batches (`batch_isend_irecv`), as 1F1B of Megatron does.

    made = pipeline(stages=4, micro_batches=6, steps=2)
    made.members(folder)                       # one rank per stage, read from Kineto traces
    made.calls                                 # per stage: what each batch is, in order

Each batch is between two neighbors: one sends, one receives, or both do both. Both ends leave it together: `TRANSFER` after the later one
has come. As PyTorch does, each part is recorded by an operator on the host, and the kernel carries no arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.ranks.calls import Member
from tb_sol_plugin.metrics.ranks.summary import summary_of_rank
from tb_sol_plugin.model.query import Query
from tests.support.trace_builder import TraceBuilder

BASE_NS: Final = 1_700_000_000_000_000_000
FORWARD, BACKWARD, TRANSFER, LEAD = 1_000_000, 2_000_000, 50_000, 20_000
ELEMENTS: Final = 4_096
BYTES: Final = 2 * ELEMENTS
KERNEL: Final = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


class Call(NamedTuple):
    """A batch as it happened to one stage. instance: the same number at both ends. wait_ns: for the other end."""

    instance: int
    peer: int
    sends: bool
    receives: bool
    step: int
    start: int
    end: int
    wait_ns: int


def orders(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int, bool, bool]]:
    """What a stage does in a step: ("F" or "B", 0, ...) computes, ("X", peer, sends, receives) is a batch."""
    warm = min(stages - stage - 1, micro_batches)
    left, last = micro_batches - warm, stage == stages - 1
    before, after = stage - 1, stage + 1
    out: list[tuple[str, int, bool, bool]] = []

    def batch(peer: int, *, sends: bool = False, receives: bool = False) -> None:
        if 0 <= peer < stages:
            out.append(("X", peer, sends, receives))

    for _ in range(warm):
        batch(before, receives=True)
        out.append(("F", 0, False, False))
        batch(after, sends=True)
    if left:
        batch(before, receives=True)
    for i in range(left):
        out.append(("F", 0, False, False))
        if not last:
            batch(after, sends=True, receives=True)
        out.append(("B", 0, False, False))
        batch(before, sends=True, receives=i < left - 1)
    for _ in range(warm):
        batch(after, receives=True)
        out.append(("B", 0, False, False))
        batch(before, sends=True)
    return out


@dataclass
class Pipeline:
    """Recordings of a pipeline. computed: per stage (start, end, step). steps: per stage (start, end)."""

    stages: int
    calls: list[list[Call]]
    computed: list[list[tuple[int, int]]]
    steps: list[list[tuple[int, int]]]

    def trace(self, stage: int, *, cut: tuple[int, int] = (0, 0), offset: int = 0, seq: bool = True) -> TraceBuilder:
        """Returns the recording of a stage. cut: batches that are left out at the begin and the end. offset: of its clock."""
        t = TraceBuilder(rank=stage, world_size=self.stages, base_ns=BASE_NS - offset, origin_ns=0, header={"host_name": f"node{stage}"})
        calls = self.calls[stage]
        kept = calls[cut[0] : len(calls) - cut[1]]
        first, last = kept[0].start - LEAD - 1_000 if cut[0] else 0, kept[-1].end if cut[1] else 1 << 60
        for number, (low, high) in enumerate(self.steps[stage]):
            if high > first and low < last:
                t.step(number, max(low, first), min(high, last) - max(low, first))
        for low, high in self.computed[stage]:
            if first <= low - LEAD and high <= last:
                t.launch("gemm", at=low - LEAD, start=low, duration=high - low, call_duration=100)
        for number, one in enumerate(calls):
            if one in kept:
                self._batch(t, one, number + 1 if seq else -1)
        return t

    def _batch(self, t: TraceBuilder, one: Call, seq: int) -> None:
        at = one.start - LEAD - 900
        for name, asked in (("send", one.sends), ("recv", one.receives)):
            if asked:
                recorded(t, name, one.peer, at=at, ranks=list(range(self.stages)), seq=seq)
                at += 200
        t.annotation("nccl:coalesced", one.start - LEAD - 50, 300)
        t.launch(KERNEL, at=one.start - LEAD, start=one.start, duration=one.end - one.start, stream=20)

    def members(self, folder: Path, *, cut: int = 0, offset: int = 0, seq: bool = True) -> list[Member]:
        """Every stage as a rank on a host of its own. cut: every stage has lost up to so many batches at each end."""
        out = []
        for stage in range(self.stages):
            lost = (stage * 7 % (cut + 1), stage * 5 % (cut + 1)) if cut else (0, 0)
            t = self.trace(stage, cut=lost, offset=offset * stage, seq=seq)
            read = ingest.read(str(t.write(folder / f"rank{stage}.pt.trace.json")))
            out.append(Member(stage, f"node{stage}", summary_of_rank(read, Query())))
        return out


def recorded(t: TraceBuilder, name: str, peer: int | None, *, at: int, ranks: list[int], seq: int = -1, group: str = "3") -> None:
    """Writes the operator of one send or receive. peer: None for recorders that do not name it."""
    args: dict[str, object] = {
        "Collective name": name, "In msg nelems": ELEMENTS, "Out msg nelems": ELEMENTS, "dtype": "BFloat16", "Group size": len(ranks),
        "Process Group Name": group, "Process Group Description": "PIPELINE_MODEL_PARALLEL_GROUP", "Process Group Ranks": str(ranks),
    }  # fmt: skip
    if peer is not None:
        args["Dst Rank" if name == "send" else "Src Rank"] = peer
    if seq >= 0:
        args["Seq"] = seq
    t.op("record_param_comms", at, 150, args=args)  # type: ignore[arg-type]


def pipeline(*, stages: int, micro_batches: int, steps: int) -> Pipeline:
    """Runs a pipeline. Stages compute at different speeds, so that each waits for its neighbors."""
    at = [1_000_000] * stages
    calls: list[list[Call]] = [[] for _ in range(stages)]
    computed: list[list[tuple[int, int]]] = [[] for _ in range(stages)]
    spans: list[list[tuple[int, int]]] = [[] for _ in range(stages)]
    instance = 0
    for step in range(steps):
        todo = [orders(stage, stages, micro_batches) for stage in range(stages)]
        begin = list(at)
        while any(todo):
            for stage in range(stages):
                if not todo[stage]:
                    continue
                kind, peer, sends, receives = todo[stage][0]
                if kind != "X":
                    long = (FORWARD if kind == "F" else BACKWARD) + 37_000 * stage + 911 * len(computed[stage])
                    computed[stage].append((at[stage], at[stage] + long))
                    at[stage] += long
                    todo[stage].pop(0)
                elif todo[peer] and todo[peer][0] == ("X", stage, receives, sends):
                    end = max(at[stage], at[peer]) + TRANSFER
                    for one, other, way in ((stage, peer, (sends, receives)), (peer, stage, (receives, sends))):
                        calls[one].append(Call(instance, other, *way, step, at[one], end, end - TRANSFER - at[one]))
                        todo[one].pop(0)
                    at[stage] = at[peer] = end
                    instance += 1
        for stage in range(stages):
            spans[stage].append((begin[stage] - LEAD - 5_000, at[stage] - LEAD - 5_000))
    return Pipeline(stages, calls, computed, spans)
