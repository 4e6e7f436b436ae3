"""Layouts on the same devices, against the stages one by one."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.cost.transformer.memory import PRESETS, Layout, Model, stages
from tb_sol_plugin.cost.transformer.query import MOST_WAYS, divisors, layouts

LLAMA = PRESETS["llama-7b"]


def test_divisors():
    assert divisors(1) == [1] and divisors(12) == [1, 2, 3, 4, 6, 12] and divisors(49) == [1, 7, 49]


def test_layouts_of_four_devices_by_hand():
    # GIVEN four devices WHEN LLaMA-7B is spread over them THEN tp x pp x dp = 4 in six ways, each with four micro-batches and three kinds
    frame = pd.DataFrame(layouts(LLAMA, Layout(), 4))
    ways = {(1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1)}
    assert set(zip(frame["tp"], frame["pp"], frame["dp"], strict=True)) == ways and len(frame) == 6 * 4 * 3
    # and the one of the worked example: 30.32 GB of state and 3.867 GB of activations on the first stage
    one = frame[(frame["tp"] == 2) & (frame["pp"] == 2) & (frame["micro_batch"] == 1) & (frame["recompute"] == "selective")].iloc[0]
    assert one["first_bytes"] / 1e9 == pytest.approx(30.324 + 3.867, abs=0.01)
    assert frame["middle_bytes"].isna().tolist() == (frame["pp"] < 3).tolist()


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(PRESETS)), st.sampled_from([6, 8, 64]), st.sampled_from([0, 4]), st.sampled_from([1, 2]), st.booleans())
def test_every_row_is_what_the_stages_say(name, world, microbatches, vpp, parallel):
    model = PRESETS[name]
    asked = Layout(pp=2, dp=world // 2, vpp=vpp, microbatches=microbatches, sequence_parallel=parallel, sharding="optimizer")
    for row in layouts(model, asked, world, (1, 4)):
        own = replace(
            asked, tp=row.tp, pp=row.pp, dp=row.dp, vpp=row.vpp, micro_batch=row.micro_batch, microbatches=row.microbatches,
            recompute=row.recompute,
        )  # fmt: skip
        every = [s.total_bytes for s in stages(model, own)]
        assert own.world == world and (not microbatches or row.microbatches * row.micro_batch * row.dp == microbatches * world // 2)
        assert (row.first_bytes, row.last_bytes, row.largest_bytes) == (every[0], every[-1], max(every))
        if row.pp > 2:
            assert row.middle_bytes == max(every[1:-1])


def test_a_world_without_a_layout_and_a_large_one():
    assert layouts(LLAMA, Layout(cp=3), 4) == []
    # no number of devices up to 4 096 has more ways than are looked at: the most are those of 3 360 = 2^5 · 3 · 5 · 7, C(7, 2) · 3^3
    model = Model(hidden=5040 * 2, layers=10080, vocab=10080 * 5, ffn=10080 * 4, heads=10080, channels=1)
    whole = layouts(model, Layout(sequence_parallel=False), 3360, (1,))
    assert len({(s.tp, s.pp) for s in whole}) == 21 * 27 < MOST_WAYS
    assert len({(s.tp, s.pp) for s in layouts(model, Layout(sequence_parallel=False), 10080 * 10080, (1,))}) == MOST_WAYS
    many = layouts(PRESETS["gpt3-175b"], Layout(sequence_parallel=False), 3840)  # 2^8 · 3 · 5
    assert len(many) > 300
