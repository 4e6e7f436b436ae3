"""Short names of kernels: no two kernels of a recording share one, and what is added is what differs."""

from __future__ import annotations

import pytest

from tb_sol_plugin.metrics.time.distinct_names import short_names
from tb_sol_plugin.metrics.time.kernel_names import plain_name
from tb_sol_plugin.metrics.time.kernels import kernel_classes
from tests.support.captures import capture
from tests.support.recordings import SAMPLES, TRACES, over, path_of

FILL = "void at::native::vectorized_elementwise_kernel<{}, at::native::FillFunctor<{}>, std::array<char*, 1ul>>(int, at::native::FillFunctor<{}>)"
CK = "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_18Rmsnorm2dFwdTraitsILb1ELNS_21Rmsnorm2dFusedAddEnumE{}ELNS_8sequenceIJLi1ELi{}EEEEEEvT_"


@pytest.mark.parametrize(("names", "wanted"), [
    ([FILL.format(4, t, t) for t in ("float", "c10::Half")], ["float", "Half"]),
    ([FILL.format(n, "float", "float") for n in (2, 4)], ["2", "4"]),
    ([FILL.format(n, t, t) for n, t in ((2, "float"), (4, "float"), (4, "int"))], ["2, float", "4, float", "4, int"]),
    ([CK.format(add, 3072) for add in (0, 1)], ["0", "1"]),
    ([CK.format(0, size) for size in (1536, 3072)], ["1536", "3072"]),
    (["void k<true, false>(float*)", "void k<false, true>(float*)"], ["true", "false"]),
    (["void k<int>(float*)", "void k(float*)"], ["int", ""]),
    (["void a::k<1>()", "void b::k<1>()"], ["a", "b"]),
    (["void k<1>()", "void k<1> ()"], ["", "(2)"]),
    (["void f(x)::{lambda(int)#1}", "void f(x)::{lambda(int)#2}"], ["#1", "#2"]),
], ids=str)  # fmt: skip
def test_what_tells_kernels_apart_is_added_to_their_short_name(names: list[str], wanted: list[str]) -> None:
    # GIVEN kernels with one short name WHEN they stand in one recording THEN what differs stands behind it
    brief = {plain_name(n) for n in names}
    assert len(brief) == 1
    found = short_names(names)
    assert [text.removeprefix(brief.copy().pop()).removeprefix(" · ") for text in found] == wanted
    # AND beside others they keep it
    assert short_names([*names, "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT"]) == [*found, "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT"]


def test_names_that_are_no_templates_stay_whole() -> None:
    # GIVEN Tensile and Triton names that differ in their middle THEN nothing is cut nor added: the table shows that part
    names = [f"Cijk_Alik_Bljk_BBS_BH_UserArgs_{t}_MI16x16x1_SN_{'LDSB1_' * 20}WS64" for t in ("MT256x192x64", "MT32x32x256")]
    names += [f"triton_red_fused_{'_native_layer_norm' * 8}_{i}" for i in range(2)]
    assert short_names(names) == names


@over([n for n in SAMPLES if "gpu" in n], TRACES)
def test_no_two_kernels_of_a_recording_share_a_short_name(name: str) -> None:
    found = kernel_classes(capture(path_of(name)))
    names, short = found.names(), found.short_names()
    assert len({*short}) == len(short) == len(found) and short == short_names(names)
    assert all(one.startswith(plain_name(full)) for one, full in zip(short, names, strict=True))
