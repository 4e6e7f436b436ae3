"""Reads what serving engines write into the annotation around one iteration: its kind, its requests and its tokens.

The patterns are data: one row per engine and spelling. Groups of a pattern are read by name; `facts` holds `key=value` pairs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

PREFILL: Final = "prefill"
DECODE: Final = "decode"
MIXED: Final = "mixed"
DIFFUSION: Final = "diffusion step"
OTHER: Final = "other"
UNKNOWN: Final = -1


class Pattern(Struct, frozen=True):
    """One spelling of an iteration's annotation. witness: an annotation as that engine wrote it."""

    engine: str
    pattern: re.Pattern[str]
    witness: str


PATTERNS: Final = (
    Pattern(
        "vLLM",
        re.compile(
            r"execute(?:_(?P<tokens>\d{1,15}))?_context_(?P<context>\d{1,15})\((?P<of_context>[^()]{0,200})\)"
            r"_generation_(?P<generation>\d{1,15})\((?P<of_generation>[^()]{0,200})\)$"
        ),
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
    ),
    Pattern("SGLang", re.compile(r"step\[(?P<kind>DECODE|EXTEND|MIXED)\b(?P<facts>[^\]]{0,200})\]$"), "step[DECODE bs=8]"),
    Pattern("ATOM", re.compile(r"(?P<kind>prefill|decode)\[(?P<facts>[^\]]{0,200})\]$"), "decode[bs=32 tok=32]"),
    Pattern("xDiT", re.compile(r"execute_diffusion_(?P<batch>\d{1,15})_(?P<size>\d{1,9}(?:x\d{1,9})?)$"), "execute_diffusion_1_1024x1024"),
)
"""In the order in which they are looked for."""

_KINDS: Final = {"DECODE": DECODE, "EXTEND": PREFILL, "MIXED": MIXED, "PREFILL": PREFILL}
_FIRST: Final = re.compile(r"(?:sq)?(\d{1,15})(?:$|[_s])")
_KEYS: Final = re.compile(r"sk(\d{1,15})(?:$|s)")
_PAIR: Final = re.compile(r"(\w{1,20})=(\d{1,15})(?!\w)")


class Iteration(Struct, frozen=True):
    """What an annotation says of one iteration; UNKNOWN (-1) where it does not.

    batch: what a captured graph is chosen by: requests of a decode step, tokens of any other. key_tokens: lengths of the keys that its
    queries see, summed. contradicts: its numbers exclude each other; then those that do are unknown.
    """

    engine: str
    kind: str
    requests: int = UNKNOWN
    context_tokens: int = UNKNOWN
    generation_tokens: int = UNKNOWN
    batch: int = UNKNOWN
    key_tokens: int = UNKNOWN
    contradicts: bool = False


@lru_cache(maxsize=65536)
def iteration_of(name: str) -> Iteration | None:
    """Returns what the name of an annotation says of an iteration; None where no engine writes such a name."""
    for one in PATTERNS:
        found = one.pattern.match(name)
        if found is not None:
            groups = found.groupdict()
            if "context" in groups:
                return _by_lengths(one.engine, groups)
            if "size" in groups:
                return Iteration(one.engine, DIFFUSION, requests=int(groups["batch"]), batch=int(groups["batch"]))
            return _by_facts(one.engine, _KINDS[groups["kind"].upper()], groups["facts"])
    return None


def _by_lengths(engine: str, groups: dict[str, str | None]) -> Iteration:
    """Returns the iteration of `execute_N_context_C(…)_generation_G(…)`: C and G requests, in brackets their tokens first."""
    context, generation = int(groups["context"] or 0), int(groups["generation"] or 0)
    brackets = [groups["of_context"] or "", groups["of_generation"] or ""]
    context_tokens, generation_tokens = (_number(_FIRST.match(text)) for text in brackets)
    keys = [_number(_KEYS.search(text)) for text in brackets]
    kind = MIXED if context and generation else PREFILL if context else DECODE if generation else OTHER
    if generation and generation_tokens in (0, UNKNOWN):  # older versions count one token per request without saying so
        generation_tokens = generation
    stated = UNKNOWN if groups["tokens"] is None else int(groups["tokens"])
    known = context_tokens != UNKNOWN and generation_tokens != UNKNOWN
    tokens = context_tokens + generation_tokens if known else stated
    odd = any(_odd(*pair) for pair in ((context, context_tokens), (generation, generation_tokens)))
    if odd or (known and UNKNOWN < stated < tokens):  # more than that is padding
        return Iteration(engine, kind, context + generation, contradicts=True)
    return Iteration(
        engine,
        kind,
        context + generation,
        context_tokens,
        generation_tokens,
        generation if kind == DECODE and tokens == generation else tokens,
        sum(keys) if UNKNOWN not in keys else UNKNOWN,
    )


def _odd(requests: int, tokens: int) -> bool:
    """Whether so many requests cannot have so many tokens."""
    return tokens != UNKNOWN and (tokens < requests or (not requests and tokens > 0))


def _by_facts(engine: str, kind: str, text: str) -> Iteration:
    """Returns the iteration of `step[DECODE bs=8]`, `step[EXTEND bs=2 toks=812]`, `decode[bs=32 tok=32]`."""
    facts: dict[str, int] = {}
    wrong = False
    for key, value in _PAIR.findall(text):
        wrong |= facts.setdefault(key, int(value)) != int(value)
    requests = facts.get("bs", facts.get("batch", UNKNOWN))
    tokens = next((facts[key] for key in ("toks", "tok", "tokens") if key in facts), UNKNOWN)
    wrong |= tokens != UNKNOWN and tokens < requests
    if wrong:
        return Iteration(engine, kind, contradicts=True)
    if kind == DECODE:
        tokens = requests if tokens == UNKNOWN else tokens
        return Iteration(engine, kind, requests, 0, tokens, requests)
    return Iteration(engine, kind, requests, tokens if kind == PREFILL else UNKNOWN, 0 if kind == PREFILL else UNKNOWN, tokens)


def _number(found: re.Match[str] | None) -> int:
    return int(found.group(1)) if found is not None else UNKNOWN
