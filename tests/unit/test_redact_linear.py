"""No text holds the interpreter while secrets are looked for, and what is found is what the plain patterns find."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from flask.testing import FlaskClient
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import redact
from tests.support.cpu_time import least
from tests.unit.web.conftest import shared  # noqa: F401

# -- the slow reference: one regular expression per rule, cubic on some texts --------------------------------------------

SHAPES = re.compile(
    r"""
      \bhf_[A-Za-z0-9]{8,}
    | \bgh[pousr]_[A-Za-z0-9]{12,} | \bgithub_pat_\w{12,}
    | \bglpat-[\w-]{12,}
    | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}
    | \b[sr]k_(?:live|test)_[A-Za-z0-9]{8,}
    | \b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}
    | \bAIza[\w-]{20,} | \bya29\.[\w-]{12,}
    | \bxox[abeprs]-[\w-]{8,}
    | \b(?:npm|dop_v1|shpat|r8|nvapi|wandb_v\d)[_-][A-Za-z0-9_-]{16,} | \bpypi-[\w-]{16,}
    | \beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----(?:[\s\S]*?-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|[\s\S]*)
    """,
    re.VERBOSE,
)
LOGIN = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@")
LOGIN_TOKEN = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/@:]{16,}@")
LABELED = re.compile(
    r"""(["']?[\w.-]*(?:token|secret|password|passwd|passphrase|pwd|credential|key|authorization|cookie|signature)[\w.-]*["']?\s*[=:]\s*)"""
    r"""("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|(?:bearer\s+|basic\s+)?[^\s,;&}\])]+)""",
    re.IGNORECASE,
)
BEARER = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)
LONG = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_=-]{32,}(?![\w+/=-])")


def by_patterns(line: str) -> str:
    line = SHAPES.sub("[redacted]", line)
    line = LOGIN.sub(r"\1[redacted]@", line)
    line = LOGIN_TOKEN.sub(r"\1[redacted]@", line)
    line = LABELED.sub(r"\1[redacted]", line)
    line = BEARER.sub(r"\1\2[redacted]", line)
    return LONG.sub(lambda m: "[redacted]" if redact._random(m.group()) else m.group(), line)


PIECES = [
    "token", "key", "password", "a", "é", "A", "9", " ", "  ", "\n", "\t", "\\", '"', "'", "=", ":", "://", "x://", "@", "/", ".", "-", "_", ",", "&", "}",
    "bearer ", "BASIC  ", "baſic ", "hf_", "ghp_", "sk-", "pk_live_", "AKIA", "AIza", "ya29.", "xoxb-", "npm_", "eyJ", "eyJhbGciOi", "abcdefgh", "ABCDEFGH12",
    "-----BEGIN ", "RSA ", "PRIVATE KEY-----", "-----END ", "0x", "deadbeef" * 4, "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW", "+", "\u212a", "\x85",
]  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_short_texts_are_redacted_as_by_the_plain_patterns(line: str) -> None:
    assert redact.text(line) == by_patterns(line)


# -- texts made to hold the interpreter ----------------------------------------------------------------------------------

HOSTILE = [
    "token", "a", "eyJ-", "a.a", "a.", "token=", "token:,", 'key="\\', "://", "a://", "a.a://", "a:a@", "x://y:", "bearer ", "basic\n", "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----", "PRIVATE KEY", "hf_", "sk-a ", "aA9+/", "A9f0", "key \t", "x=1,", "'", '"', "secret'", "é-", "=", "-", "_Z", "/a",
    "key:'\\'", "key='a", "eyJaaaaaa.", "0", " ", "\\",
]  # fmt: skip


def seconds(call: Callable[[str], str], line: str) -> float:
    """The CPU seconds of a call."""
    start = time.process_time()
    call(line)
    return time.process_time() - start


def filled(shape: str, size: int) -> str:
    return (shape * (size // len(shape) + 1))[:size]


@pytest.mark.parametrize("shape", HOSTILE)
def test_the_time_of_a_hostile_text_grows_with_its_length_at_most(shape: str) -> None:
    # GIVEN a text made to backtrack, 5 kB and sixteen times that WHEN all of it is looked at THEN at most twice sixteen times the time
    def linear(taken: list[float]) -> bool:
        return taken[1] < 32 * taken[0] + 0.005

    taken = least(lambda: [seconds(redact._redacted, filled(shape, size)) for size in (5_000, 80_000)], linear)
    assert linear(taken), taken
    # AND what is shown of a text is bounded: 1 MB and 10 MB take the same, under 50 ms (three times that here)
    for size in (1_000_000, 10_000_000):
        line = filled(shape, size)
        assert least(lambda line=line: [seconds(redact.text, line)], lambda taken: taken[0] < 0.15)[0] < 0.15  # type: ignore[misc]
        assert len(redact.text(line)) < 2 * redact.LONGEST_LINE


@pytest.mark.parametrize(
    ("secret", "before"),
    [
        ("hf_" + "aBcDeFgHiJkLmNoPqRsT", " "),
        ("deadbeef" * 5, '{"a":"'),
        ("https://joe:" + "pa55word" * 2 + "@host/x", ","),
        ("eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "("),
        ("AKIA" + "IOSFODNN7EXAMPLE", "\n"),
    ],
)
def test_a_secret_that_the_cut_splits_is_not_shown(secret: str, before: str) -> None:
    # GIVEN a long text with a secret across the place where it is cut, split after each of its characters WHEN shown THEN no part of it is
    for inside in range(1, len(secret)):
        line = "x " * redact.LONGEST_LINE
        shown = redact.text(line[: redact.LONGEST_LINE - inside - len(before)] + before + secret + line)
        assert secret[:6] not in shown and shown.endswith("…")
        assert len(shown) > redact.LONGEST_LINE - 600


@pytest.mark.parametrize("shape", ["token", "a", "eyJ-", "a.a", "%", "a=b&", "/", "key:%20"])
def test_a_long_address_is_answered_at_once(shared: FlaskClient, shape: str) -> None:  # noqa: F811
    # GIVEN parameters of 64 kB that an error text quotes WHEN asked for THEN an error under 100 ms of CPU (three times that here), short
    assert shared.get("/api/v1/analysis/health", query_string={"run": "job", "worker": "rank2", "wait": 20}).status_code == 200
    for parameter in ("run", "worker", "steps"):
        query = {"run": "job", "worker": "rank2", parameter: filled(shape, 64_000)}

        def asked(query: dict[str, str] = query) -> list[float]:
            start = time.process_time()
            reply = shared.get("/api/v1/analysis/health", query_string=query)
            assert reply.status_code in (400, 404) and len(reply.data) < 40_000
            return [time.process_time() - start]

        assert least(asked, lambda taken: taken[0] < 0.3)[0] < 0.3
