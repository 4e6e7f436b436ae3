"""The peak held by one module."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.metrics.memory.holders import answers, holders
from tb_sol_plugin.metrics.memory.rules.case import Answer, Case, Lack, MemoryFinding
from tb_sol_plugin.metrics.memory.rules.limits import FEWEST_MODULES, ONE_MODULE
from tb_sol_plugin.units import human

HOW: Final = "record with profile(profile_memory=True, with_stack=True)"


def one_module(case: Case) -> Answer:
    """One module that holds a third of the peak or more: what it allocated itself, without the modules inside of it."""
    curve = next((c for c in case.memory.curves if c.source == "events" and "module" in answers(case.capture, c)), None)
    if curve is None:
        return Lack("one_module", "which module holds memory was not recorded", HOW)
    found = holders(case.capture, curve, "module")
    rows = found.rows[(found.rows["kind"] == "row") & ~found.rows["name"].str.startswith("(")]
    if len(rows) < FEWEST_MODULES or found.total <= 0:
        return None
    top, second = rows.iloc[0], rows.iloc[1]
    size = int(top["bytes"])
    if size < ONE_MODULE * found.total:
        return None
    inside = holders(case.capture, curve, "operator")
    operator = inside.rows[inside.rows["kind"] == "row"].iloc[0]
    said = (
        f"`{top['name']}` holds {human(size, 'B')} of {human(found.total, 'B')} at the peak, the next one, `{second['name']}`, "
        f"{human(int(second['bytes']), 'B')}. Of all operators `{operator['name']}` allocated most of the peak, "
        f"{human(int(operator['bytes']), 'B')}."
    )
    chunks = "torch.cat([module(part) for part in x.split(size)])  # in chunks"
    fix = "torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)  # or in chunks" if case.trains else chunks
    return MemoryFinding(
        "one_module", "One module holds most of the peak", said, fix, size, size / found.total, "memory", "What is held at the peak",
        query=(("by", "module"),), candidate=True, color="attention",
    )  # fmt: skip
