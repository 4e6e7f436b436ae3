"""How a recording was made, as names and texts: what two recordings should have in common before their numbers are compared."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.units import human

FLAGS: Final = {"record_shapes": "record_shapes", "with_stack": "with_stack", "profile_memory": "profile_memory"}
GROUPS: Final = {
    "pp": "pipeline stage", "tp": "tensor parallel", "dp": "data parallel", "ep": "expert parallel", "cp": "context parallel",
}  # fmt: skip
LONGEST: Final = 200
"""Characters of one text."""


def setting(capture: Capture) -> dict[str, str]:
    """Names and texts, in order; what is not known is left out."""
    facts, said = capture.facts, capture.facts.metadata
    own = {name.removeprefix("sol_capture."): text for name, text in said.items()}
    out: dict[str, str] = {}
    if facts.world_size:
        out["world size"] = human(facts.world_size, "count")
    for name, words in GROUPS.items():
        if own.get(f"groups.{name}"):
            out[words] = own[f"groups.{name}"]
    batch = _batch(capture)
    if batch:
        out["batch"] = batch
    if own.get("model.class"):
        out["model"] = own["model.class"]
    if own.get("model.parameters", "").isdigit():
        out["parameters"] = human(int(own["model.parameters"]), "count")
    names = list(dict.fromkeys(d.name for d in facts.devices if d.name))
    if names:
        out["device"] = ", ".join(names)
    memory = {d.memory_bytes for d in facts.devices if d.memory_bytes}
    if len(memory) == 1:
        out["memory of the device"] = human(memory.pop(), "B")
    for name, words in (("torch_version", "torch"), ("cuda_runtime_version", "CUDA"), ("hip_runtime_version", "HIP")):
        if facts.versions.get(name):
            out[words] = facts.versions[name]
    for name in ("precision.matmul", "allocator_settings"):
        if own.get(name):
            out[name.replace("_", " ").replace("precision.matmul", "precision of matrix products")] = own[name]
    steps = capture.steps if not facts.pseudo_step else capture.steps.iloc[:0]
    out["steps recorded"] = human(len(steps), "count")
    out |= {words: "on" if facts.flags[name] else "off" for name, words in FLAGS.items() if facts.flags.get(name) is not None}
    return {name: text[:LONGEST] for name, text in out.items()}


def _batch(capture: Capture) -> str:
    """Samples and tokens of an iteration, as the last one that knows them says."""
    table = capture.tables[S.ITERATIONS.name]
    parts = []
    for column, word in (("batch", "samples"), ("tokens", "tokens")):
        known = table[column].to_numpy()
        known = known[known >= 0]
        if len(known):
            parts.append(f"{human(int(known[-1]), 'count')} {word}")
    return ", ".join(parts)
