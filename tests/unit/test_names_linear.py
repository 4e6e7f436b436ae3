"""Texts of a recording or an address, made to backtrack, are understood in time that grows with their length at most."""

from __future__ import annotations

import ast
import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin import cost
from tb_sol_plugin.cost import inputs
from tb_sol_plugin.cost.ops import attention
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.ingest.kineto import rules
from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.memory import sources
from tb_sol_plugin.metrics.rules.time import matmul
from tb_sol_plugin.metrics.time import distinct_names, kernel_names
from tb_sol_plugin.metrics.work import ownership
from tb_sol_plugin.tables import arrays
from tests.support.cpu_time import least


def _modelled(text: str) -> object:
    return cost.model_for(text)


CASES: list[tuple[Callable[[str], object], str, str, str]] = [
    (lambda t: rules.copy_of(t, False), "(", " ", "x"),
    (lambda t: rules.copy_of(t, False), "(", "a->", "x"),
    (lambda t: rules.copy_of(t, True), "(", " ", "x"),
    (lambda t: rules.copy_of(t, True), "", "(", "x"),
    (rules.COPY_KERNEL.search, "", "__amd_rocclr_", "x"),
    (sources.span, "1", " ", "x"),
    (records.kinds_of, "a", " ", "x"),
    (records.api_name, "", "_ptds", "x"),
    (inputs._REAL.match, "", "1", "x"),
    (kernel_names.DULL.match, "", "1", "!"),
    (lambda t: kernel_names.ANONYMOUS.sub("", t), "", "_GLOBAL__N__", "!"),
    (lambda t: sum(1 for _ in distinct_names._MANGLED.finditer(t)), "", "1", "!"),
    (matmul.tile_of, "", "gemm_", "!"),
    (matmul.tile_of, "", "nvjet_", "!"),
    (kernel_names.plain_name, "", "a<>::", ""),
    (kernel_names.plain_name, "", "operator<", ""),
    (kernel_names.plain_name, "", "<", ""),
    (kernel_names.plain_name, "a<", "::{lambda", "\nx"),
    (kernel_names.plain_name, "a<", "b,", ">"),
    (kernel_names.plain_name, "a<", "(,", ""),
    (kernel_names.plain_name, "_ZN", "1a", "!"),
    (kernel_names.plain_name, "_ZN6kernel", "N1", "!"),
    (kernel_names.plain_name, "_ZN", "9", ""),
    (kernel_names.matrix_of, "", "sm90_", "!"),
    (kernel_names.matrix_of, "", "Cijk_", "!"),
    (kernel_names.matrix_of, "", "aiter", "!"),
    (matmul.FP32_KERNEL.search, "", "wgrad", "!"),
    (_modelled, "triton_tem_", "flex_attention", "!"),
    (_modelled, "triton_tem_", "flex_attention", "backward"),
    (_modelled, "triton_tem_", "flex_attention_backward", "!"),
    (_modelled, "flashinfer::", "paged", "!"),
    (ownership.CHECKPOINT.fullmatch, "", "checkpoint", "!"),
]


@pytest.mark.parametrize(("call", "before", "piece", "after"), CASES)
def test_a_hostile_text_costs_as_much_as_its_length(call: Callable[[str], object], before: str, piece: str, after: str) -> None:
    # GIVEN a text of 5 kB and one of 80 kB WHEN both are understood THEN the longer takes at most twice sixteen times as long
    def measure() -> list[float]:
        spent = []
        for size in (5_000, 80_000):
            text = before + piece * (size // len(piece)) + after
            start = time.process_time()
            with contextlib.suppress(BadQuery):
                call(text)
            spent.append(time.process_time() - start)
        return spent

    def linear(spent: list[float]) -> bool:
        return spent[1] < 32 * spent[0] + 0.03

    assert linear(least(measure, linear))


@pytest.mark.parametrize("digits", [9, 10, 4_400, 50_000])
def test_a_mangled_name_of_many_digits_is_a_name_like_others(digits: int) -> None:
    # Python refuses to read a number of more than 4,300 digits; no name is so long that its length has ten
    names = [f"_ZN{'9' * digits}a", f"_ZN{'9' * digits}ab", "_ZN3abc"]
    assert len(set(distinct_names.short_names(names))) == 3


PIECES_OF_NAMES = (
    "void ",
    "at::native::",
    "(",
    ")",
    "<",
    ">",
    "::",
    ",",
    "{lambda(int)#1}",
    "operator()",
    "Kernel",
    "Functor",
    "float",
    "_ZN",
    "4abcd",
    "conv",
    "Convert",
    "Conve",
    "norm",
    "normal_",
    "norma",
    "Normalize",
    "sm90_",
    "_gemm_",
    "kernel",
    "16816",
    "Cijk_",
    "_MI16x16x1",
    "triton_poi_",
    "ü",
    "\n",
    "nccl",
)
PIECES = st.lists(
    st.sampled_from(
        ["(", ")", " ", "->", "\u2192", ">", "Memset", "Device", "Host", "HtoD", "\n", "1", ".", "e", "-", "ms", "a", "E", "_v2"]
    ),
    max_size=12,
)


@given(PIECES.map("".join))
def test_the_linear_forms_understand_what_the_plain_ones_do(text: str) -> None:
    # GIVEN any short text WHEN understood by the quadratic pattern and by the linear one THEN the same
    plain = re.search(r"\(\s*([^()]*?)\s*->\s*([^()]*?)\s*\)", text)
    if not rules._SET.search(text):
        assert rules.copy_of(text, False)[1:] == ((plain[1], plain[2]) if plain else ("", ""))
    number = re.match(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$", text)
    assert (inputs._REAL.match(text) is None) == (number is None)
    parts = re.split(r"\s*(?:\u2192|->|>)\s*", text.strip())
    kinds = tuple("" if p == "?" else p for p in parts)
    assert records.kinds_of(text) == (kinds if len(kinds) == 2 else None)
    one = r"(-?\d{1,18}(?:\.\d{1,9})?)\s*(ns|us|µs|ms|s)?"
    window, found = re.fullmatch(rf"{one}\s*[-–~:]\s*{one}", text), sources._WINDOW.fullmatch(text)
    assert (window and window.groups()) == (found and found.groups())
    mangled = re.compile(distinct_names._MANGLED.pattern.replace(r"(?<!\d)", ""), re.DOTALL)
    assert [m.groups() for m in mangled.finditer(text)] == [m.groups() for m in distinct_names._MANGLED.finditer(text)]


@given(
    st.lists(
        st.lists(st.sampled_from(
            ["nccl", "RCCL", "cross_device_", "reduce", "multimem_", "nvshmem", "nv\u017fhmem", "deep", "_ep", "EP", "all", "_", "gather", "scatter", "to",
             "one", "two", "_shot", "_\u017fhot", "x", "mult\u0131mem_", "mult\u0130mem_", "__amd_rocclr_", "__AMD_rocclr_", "copy", "Copy"]
        ), max_size=6).map("".join),
        max_size=5,
    ),
    st.sampled_from([0, 1, 2, arrays.AT_ONCE - 2, arrays.AT_ONCE]),
)  # fmt: skip
def test_kernels_of_communication_and_copies_are_those_that_the_plain_patterns_say(names: list[str], before: int) -> None:
    # GIVEN names behind others, of one piece that is looked through at once or of two
    every = ["x"] * before + names
    assert rules.communicating(every) == [i for i, name in enumerate(every) if rules.WIDE.search(name)]
    assert rules.copying(every) == [i for i, name in enumerate(every) if rules.COPY_KERNEL.search(name)]


@given(
    st.lists(st.lists(st.sampled_from([*PIECES_OF_NAMES]), max_size=8).map("".join), min_size=1, max_size=40),
    st.sampled_from(["", "nvidia", "amd"]),
)
def test_many_names_are_judged_as_each_alone(names: list[str], vendor: str) -> None:
    # GIVEN names WHEN judged one by one, and all at once as from 1,000 on THEN alike
    many = names * (kernel_names.MANY // len(names) + 1)
    place, known = kernel_names.matrix_places(many, vendor)
    assert [known[i] for i in place[: len(names)].tolist()] == [kernel_names.matrix_of(n, vendor) for n in names]
    assert kernel_names.plain_names(many) == [kernel_names.plain_name(n) for n in many]
    assert kernel_names.kinds_of([kernel_names.plain_name(n) for n in many])[: len(names)] == [kernel_names.kind_of(n) for n in names]


def test_nothing_keeps_every_text_that_it_was_asked_about() -> None:
    # GIVEN the functions of the package that keep their answers without a bound and take arguments
    package = Path(kernel_names.__file__).parents[2]
    unbounded = ("cache", "lru_cache(maxsize=None)")
    found = {
        f"{file.relative_to(package).as_posix()}:{node.name}"
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.args.args and any(ast.unparse(d) in unbounded for d in node.decorator_list)
    }
    # THEN none of them is asked about texts of a recording: they take classes of queries, names of tables, patterns and texts of ours, or run
    # beside the training loop itself
    assert found <= {
        "model/query.py:fields",
        "model/capture.py:_without_rows",
        "model/capture.py:empty",
        "metrics/time/kernel_names.py:_bounded",
        "metrics/work/work.py:_fixed",
        "tables/compiled.py:_note",
        "capture/work/costs.py:has_model",
        "capture/work/costs.py:op_type_of",
    }, found


@given(st.lists(st.sampled_from(["flex_attention", "_backward", "backward", "_", "a", "!", "flex_"]), max_size=6).map("".join))
def test_templates_of_attention_are_known_as_by_the_plain_patterns(text: str) -> None:
    # GIVEN any name of a template WHEN its model is looked up THEN the one that the patterns say which look at everything behind each place
    found = cost.model_for(f"triton_tem_{text}")
    forward = re.fullmatch(r"triton_tem_\w*flex_attention(?!\w*backward)\w*", f"triton_tem_{text}")
    backward = re.fullmatch(r"triton_tem_\w*flex_attention_backward\w*", f"triton_tem_{text}")
    expected = attention.flex if forward else attention.flex_backward if backward else None
    assert (found.formula if found else None) is expected
