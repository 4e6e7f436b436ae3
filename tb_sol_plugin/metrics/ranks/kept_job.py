"""Turns a job into plain values and arrays that a file can hold, and back: matches, clocks, waits, the model and the suspects are kept.

What was made of a thousand ranks takes seconds; as a file whose arrays are mapped it is there at once, and a page reads only what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.ranks.batches import Batch
from tb_sol_plugin.metrics.ranks.calls import Calls, JobGroup
from tb_sol_plugin.metrics.ranks.clocks import Clocks
from tb_sol_plugin.metrics.ranks.matching import Matched
from tb_sol_plugin.metrics.ranks.own_time import Pieces
from tb_sol_plugin.metrics.ranks.replay import Model
from tb_sol_plugin.metrics.ranks.stragglers import Path, Peers, SlowHost, Stragglers, Suspect
from tb_sol_plugin.metrics.ranks.summary import STEPS, RankSummary
from tb_sol_plugin.metrics.ranks.waiting import Waits
from tb_sol_plugin.tables import members

T = TypeVar("T")
Values = dict[str, Any]


def values_of(waited: Waits, found: Stragglers | None) -> Values:
    """Returns waits and stragglers as values. found: of the same calls; None where those are of a part of them."""
    calls, matched, clock = waited.found.calls, waited.found, waited.clocks
    out: Values = {
        "calls": _calls(calls), "found": _plain(matched, "calls", "because"), "because": list(matched.because.items()),
        "clocks": _plain(clock, "calls"), "waits": _plain(waited, "found", "clocks"), "exposed_wait_by_step": waited.exposed_wait_by_step,
    }  # fmt: skip
    if found is not None:
        out |= {
            "model": _plain(found.model, "waits") | {"unchanged_ns": found.model.unchanged_ns}, "peers": _plain(found.peers),
            "path": found.path._asdict(), "suspects": [_plain(one) for one in found.suspects], "hosts": [list(h) for h in found.hosts],
            **{name: getattr(found, name) for name in _SUMS},
        }  # fmt: skip
    return out


_SUMS: Final = ("path_excess", "arrived_last", "excess_by_step")
"""Properties of stragglers that are kept."""


def waits_of(values: Values) -> tuple[Waits, Stragglers | None]:
    """Returns waits and stragglers again. Other errors than ValueError do not come: the values are those of `values_of`."""
    try:
        calls = _calls_of(values["calls"])
        found = Matched(calls=calls, because={int(i): str(why) for i, why in values["because"]}, **values["found"])
        clock = values["clocks"]
        waited = Waits(found=found, clocks=Clocks(calls=calls, **(clock | {"grade": tuple(clock["grade"])})), **values["waits"])
        _set(waited, exposed_wait_by_step=values["exposed_wait_by_step"])
        if "model" not in values:
            return waited, None
        own = dict(values["model"])
        unchanged = own.pop("unchanged_ns")
        model = _set(Model(waits=waited, **own), unchanged_ns=unchanged)
        hosts = tuple(SlowHost(domain, cause, tuple(ranks), saved) for domain, cause, ranks, saved in values["hosts"])
        suspects = tuple(Suspect(**one) for one in values["suspects"])
        made = Stragglers(model, Peers(**values["peers"]), Path(**values["path"]), suspects, hosts)
        return waited, _set(made, **{name: values[name] for name in _SUMS})
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a job: {error}") from None


def _plain(value: Any, *without: str) -> Values:
    """Returns the fields of a dataclass, tuples as lists."""
    own = ((f.name, getattr(value, f.name)) for f in fields(value) if f.name not in without)
    return {name: list(one) if isinstance(one, tuple) else one for name, one in own}


def _set(value: T, **properties: Any) -> T:
    """Gives an object cached properties as they were computed before."""
    value.__dict__.update(properties)
    return value


def _calls(calls: Calls) -> Values:
    counts = [len(one["step"]) for one in calls.steps]
    steps = {name: np.concatenate([one[name] for one in calls.steps] or [np.zeros(0, np.dtype(kind))]) for name, kind in STEPS.items()}
    return {
        "ranks": calls.ranks, "shift_ns": calls.shift_ns, "domain": calls.domain, "domains": list(calls.domains),
        "origin_ns": calls.origin_ns, "at": calls.at, "columns": calls.columns, "pieces": calls.pieces._asdict(), "steps": steps,
        "step_counts": np.array(counts, np.int64), "summaries": msgspec.msgpack.encode(calls.summaries), "left_out": calls.left_out,
        "batches": msgspec.msgpack.encode(calls.batches),
        "groups": [[g.key, g.description, members.text_of(g.ranks), g.size, g.backward] for g in calls.groups],
    }  # fmt: skip


def _calls_of(values: Values) -> Calls:
    groups = tuple(JobGroup(key, text, members.members_of(ranks), *rest) for key, text, ranks, *rest in values["groups"])
    return Calls(
        values["ranks"], values["shift_ns"], values["domain"], tuple(values["domains"]), values["origin_ns"], groups, values["at"],
        values["columns"], Pieces(**values["pieces"]), _parted(values["steps"], values["step_counts"]),
        msgspec.msgpack.decode(values["summaries"], type=tuple[RankSummary, ...]), values["left_out"],
        msgspec.msgpack.decode(values["batches"], type=tuple[Batch, ...]),
    )  # fmt: skip


def _parted(columns: Mapping[str, npt.NDArray[Any]], counts: Sequence[int]) -> tuple[dict[str, npt.NDArray[Any]], ...]:
    edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).tolist()
    return tuple({name: column[low:high] for name, column in columns.items()} for low, high in pairwise(edges))
