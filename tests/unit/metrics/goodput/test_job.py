"""What proves that two runs are one job, what speaks against it, and what is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.goodput.job import Identity, difference, identity_of, unproven
from tb_sol_plugin.model.recordings import ReducedFacts
from tests.support.trace_builder import TraceBuilder

MS = 1_000_000


def facts(*devices: str, vendor: str = "nvidia") -> ReducedFacts:
    return ReducedFacts("kineto", 0, 1, "", vendor, devices, 0, True, (0, 1))


H100 = facts("NVIDIA H100 80GB HBM3")


def identity(tmp_path: Path, *, steps: int = 2, micro: int = 1, layers: int = 3, batch: int = 8, names: tuple[str, ...] = ()) -> Identity:
    """A recording of `steps` steps of `micro` micro-steps each, of a model of one embedding and `layers` equal layers."""
    t = TraceBuilder()
    for step in range(steps):
        t.step(step, step * 10 * MS, 10 * MS)
        at = step * 10 * MS + MS
        for _ in range(micro):
            t.op("aten::embedding", at, 1000, shapes=[[100, 16], [batch, 4]], types=["float", "long"])
            for layer in range(layers):
                t.op("aten::linear", at + 2000 * (layer + 1), 1000, shapes=[[batch, 4, 16], [16, 16], [16]], types=["float"] * 3)
            at += MS
        t.annotation("Optimizer.step#AdamW.step", at, 1000)
    for i, name in enumerate(names):
        t.module(name, 1000 * i, 900, module_id=i)
    return identity_of(ingest.read(str(t.write(tmp_path / f"{steps}{micro}{layers}{batch}{len(names)}.pt.trace.json.gz"))))


def test_weights_are_those_of_the_model_whatever_was_recorded_of_it(tmp_path: Path) -> None:
    # GIVEN one model recorded for 2 steps, for 3 of 4 micro-steps each, with another batch WHEN read THEN all show the same weights
    one = identity(tmp_path)
    assert one.weights == ("aten::embedding [100, 16] x 1", "aten::linear [16, 16] x 3") and one.optimizer == "AdamW"
    assert identity(tmp_path, steps=3, micro=4).weights == one.weights == identity(tmp_path, batch=32).weights
    # AND one of more layers of the same sizes shows others
    assert identity(tmp_path, layers=6).weights == ("aten::embedding [100, 16] x 1", "aten::linear [16, 16] x 6")


def test_what_wraps_a_model_is_no_part_of_it(tmp_path: Path) -> None:
    bare = identity(tmp_path, names=("Net_0", "Linear_0", "Linear_1"))
    wrapped = identity(tmp_path, names=("DistributedDataParallel_0", "Net_0", "Linear_0", "Linear_1"))
    assert bare.modules == wrapped.modules == ("Linear x 2", "Net x 1")


KNOWN = Identity(1000, ("aten::linear [16, 16] x 3",), ("Linear x 3",), "AdamW")


@pytest.mark.parametrize(
    ("other", "on", "words"),
    [
        ({"parameters": 2000}, H100, "its model has 2 000 parameters, that of `a` 1 000"),
        ({"weights": ("aten::linear [16, 16] x 6",)}, H100, "its weights are not those of `a`: 6 aten::linear [16, 16] instead of 3"),
        ({"modules": ("Conv2d x 1", "Linear x 3")}, H100, "its modules are not those of `a`: 1 Conv2d instead of none"),
        ({"optimizer": "SGD"}, H100, "its optimizer is SGD, that of `a` AdamW"),
        ({}, facts("AMD Instinct MI300X", vendor="amd"), "it ran on AMD Instinct MI300X, `a` on NVIDIA H100 80GB HBM3"),
        ({}, facts(vendor=""), "it ran on a CPU"),
    ],
)  # fmt: skip
def test_anything_known_that_differs_makes_two_jobs(other: dict[str, Any], on: ReducedFacts, words: str) -> None:
    its = Identity(**{name: other.get(name, getattr(KNOWN, name)) for name in Identity.__struct_fields__})
    assert words in difference(its, on, KNOWN, H100, "a").replace("\u202f", " ")
    assert difference(KNOWN, H100, KNOWN, H100, "a") == ""


@pytest.mark.parametrize("shared", ["parameters", "weights", "modules"])
def test_one_thing_known_of_both_models_proves_that_they_are_one(shared: str) -> None:
    # GIVEN two recordings that share the parameters, the weights or the modules and nothing else THEN they are proven to be of one model
    one = Identity(**{shared: getattr(KNOWN, shared)})
    assert unproven(one, H100, KNOWN, H100, "a") == ""
    # AND an optimizer alone proves none, nor does a device that is not recorded
    assert "no parameters, weights or modules" in unproven(Identity(optimizer="AdamW"), H100, KNOWN, H100, "a")
    assert "a device is not recorded" in unproven(KNOWN, facts(vendor="amd"), KNOWN, H100, "a")
