"""Secrets in names leave with the file's bytes: tables, pages and the cache hold `[redacted]`; names of program code stay."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest, redact
from tb_sol_plugin.ingest import privacy
from tb_sol_plugin.model import schemas
from tb_sol_plugin.model.capture import Capture, Facts
from tests.support.cpu_time import least
from tests.support.tiny import EVENTS, trace

TOKENS = [
    "hf_" + "aBcDeFgHiJkLmNoPqRsT1",
    "ghp_" + "0123456789abcdefghij0123456789abcdef",
    "sk-" + "proj-AbCdEfGh1234567890",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "deadbeef" * 5,
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY99",
    "Bearer " + "abcdefgh12345",
    "https://joe:" + "pa55@host",
]
CODE = [
    "ScaledDotProductFlashAttentionForCpuBackward0",
    "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128PersistentContext",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::OpaqueType<4u>, unsigned int, 1, 128, 1>()",
    "void cutlass::device_kernel<MainloopSm90TmaGmmaWarpSpecialized>(Params)",
    "sort_by_key::token: key=4, num_tokens=128 password_layer.weight",
    "transformers/hf_argparser.py(12): parse_args_into_dataclasses",
    "Bearer information, basic training step",
    "## Call CompiledFxGraph f7cpcwvbz5cyi7gaclhnwrmqrqmbnfzsmrzkudahyczdtzuxbkoh ##",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
    "/root/.cache/huggingface/hub/models--a--b/snapshots/0123456789abcdef0123456789abcdef01234567/modeling.py(7): forward",
    "[CUDA memcpy HtoD]",
    '["a","b"]',
]


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_in_a_name_is_hidden_by_its_shape(token: str) -> None:
    # GIVEN a name that holds a token WHEN it is shown THEN the token is gone and the rest stays
    shown = redact.name(f"load {token} twice")
    assert token not in shown and shown.startswith("load ") and shown.endswith(" twice") and redact.HIDDEN in shown


@pytest.mark.parametrize("text", CODE)
def test_names_of_program_code_are_left_alone(text: str) -> None:
    assert privacy._shown([text]) == {}


def test_two_names_that_differ_in_their_secrets_stay_two() -> None:
    # GIVEN three names, of which two differ in a token only, and one that looks like the outcome
    names = [f"load {TOKENS[0]}", "aten::mm", f"load {TOKENS[0]}2", "load [redacted]"]
    # WHEN they are replaced THEN each has a name of its own
    assert privacy._shown(names) == {names[0]: "load [redacted] (2)", names[2]: "load [redacted] (3)"}


def test_json_of_arguments_stays_json() -> None:
    # GIVEN arguments with tokens in texts and keys, a telling key, numbers beside it, and a login whose parts two texts hold
    args = {"url": "http://a", "to": "b:c@d", "password": "hunter2", "num_tokens": "128", TOKENS[0]: [1, TOKENS[5], None], "key": 7}
    text = json.dumps(args, separators=(",", ":"))
    # WHEN they are cleaned THEN what is left reads as JSON, with everything else in place
    assert json.loads(privacy._shown([text])[text]) == {
        "url": "http://a", "to": "b:c@d", "password": "[redacted]", "num_tokens": "128", "[redacted]": [1, "[redacted]", None], "key": 7,
    }  # fmt: skip


PIECES = [*TOKENS, *CODE, "x", " ", "\n", "é", "_", "{", "bearer x1234567", "://", "@", "a:b"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map("".join)))
def test_the_fast_choice_leaves_no_name_out(names: list[str]) -> None:
    # GIVEN any names WHEN cleaned all at once THEN the same change as when each is looked at alone
    distinct = list(dict.fromkeys(names))
    assert set(privacy._shown(distinct)) == {name for name in distinct if privacy._clean(name) != name}
    # AND the same with names that stand there twice, and where all marks are looked for at once
    assert privacy._shown([*names, *names]) == privacy._shown(distinct)
    one, other = (privacy._candidates(distinct, many=many) for many in (False, True))
    assert all(a.tolist() == b.tolist() for a, b in zip(one, other, strict=True))


def test_a_recording_without_secrets_is_the_same_object() -> None:
    host = schemas.HOST.frame({"name": pd.Categorical(CODE)})
    capture = Capture(Facts(source="kineto", file="a.json", size=1), {"host": host})
    assert privacy.without_secrets(capture) is capture


def test_tables_share_their_cleaned_texts(tmp_path: Path) -> None:
    # GIVEN a trace whose kernel, operator, thread and file name hold tokens
    text = json.dumps(EVENTS).replace("gemm", f"gemm_of {TOKENS[1]}").replace("aten::mm", f"user {TOKENS[0]}")
    events: list[dict[str, object]] = json.loads(text)
    events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": f"worker {TOKENS[2]}"}})
    # WHEN it is read THEN no table and no fact holds one, and columns that shared their texts still do
    capture = ingest.read(str(trace(tmp_path / f"job_{TOKENS[3]}.json", events)))
    held = "\n".join(table.to_csv() for table in capture.tables.values()) + repr(capture.facts)
    assert not any(token in held for token in TOKENS[:4])
    assert capture.device["name"].tolist() == ["gemm_of [redacted]"] and "user [redacted]" in capture.host["name"].tolist()
    assert capture.host["name"].cat.categories is capture.device["name"].cat.categories


@pytest.mark.parametrize("shape", ["sk-", "://", "eyJ-", "a", "bearer ", '{"key":"', "[", "hf_x1 "])
def test_names_cost_as_much_as_their_length(shape: str) -> None:
    # GIVEN one hostile name and many, doubled four times WHEN cleaned THEN at most twice the sixteenfold time
    for make in (lambda n: [shape * (n // len(shape))], lambda n: [f"{i} {shape}" for i in range(n // 20)]):

        def measure(make: Callable[[int], list[str]] = make) -> list[float]:
            spent = []
            for size in (10_000, 160_000):
                texts = make(size)
                start = time.process_time()
                privacy._shown(texts)
                spent.append(time.process_time() - start)
            return spent

        def linear(spent: list[float]) -> bool:
            return spent[1] < 32 * spent[0] + 0.03

        assert linear(least(measure, linear))


def test_many_names_are_looked_at_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN secrets in the first, a middle and the last of many names WHEN pieces hold a few names each, or all
    names = [f"void kernel_{i}<float, 4>(float*, int)" + (" " + TOKENS[0] if i in (0, 501, 999) else "") for i in range(1000)]
    whole = privacy._shown(names)
    assert list(whole) == [names[0], names[501], names[999]]
    for piece in (1, 100, 4000):
        monkeypatch.setattr(privacy, "PIECE", piece)
        pieces = list(privacy._pieces(names))
        # THEN the same is found, and each name is in one piece
        assert privacy._shown(names) == whole
        assert [a for a, _ in pieces] == [0, *(b for _, b in pieces[:-1])] and pieces[-1][1] == len(names)


def test_memory_does_not_grow_with_the_number_of_names() -> None:
    # GIVEN 10 MB of names WHEN they are searched for secrets THEN that takes what a piece takes: 30 times the text would be 300 MB
    names = [f"void some_kernel_{i}<float, 4>(float*, int, long)" for i in range(200_000)]
    tracemalloc.start()
    try:
        privacy._shown(names)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 80_000_000
