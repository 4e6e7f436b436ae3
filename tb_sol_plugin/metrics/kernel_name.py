"""A short name for a kernel: what a person calls it, without parameters and most template arguments.

The full name stays the key everywhere; two kernels may share a short name.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\(anonymous class\)::|_GLOBAL__N__\w+::")
LAMBDA: Final = re.compile(r"::\{lambda.*$|::operator\(\).*$|::\'lambda.*$")
DULL: Final = re.compile(
    r"^-?\d+\w*$|^\(.*\)-?\d+\w*$|^(true|false|nullptr|decltype\(nullptr\))$"
    r"|^(unsigned )?(bool|char|short|int|long|long long|float|double|signed char|unsigned|void)[ *&]*(const[ *&]*)?$"
    r"|^(\w+::)*(Half|BFloat16|half|half_t|bfloat16_t|__nv_bfloat16|__half|float2|float4|half2|__hip_bfloat16|tfloat32_t|Float8\w*|complex)"
    r"(<.*>)?( const)?[ *&]*$"
    r"|^(\w+::)*(Array|array|OffsetCalculator|TrivialOffsetCalculator|TensorListMetadata|LoadWithoutCast|StoreWithoutCast|integer_sequence)(<.*>)?$"
)
"""Template arguments that do not tell kernels apart for a person."""
WRAPPERS: Final = frozenset(
    ("gpu_kernel_impl", "gpu_kernel_impl_nocast", "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "ReduceOp", "func_wrapper_t")
)
"""Names that say nothing by themselves: the argument within speaks for them."""
BARE: Final = frozenset(("Kernel", "Kernel2", "device_kernel", "kernel", "run_kernel", "kernel_impl"))
"""Entry points whose first argument is the kernel."""
LONGEST: Final = 96


@cache
def short_name(name: str) -> str:
    """`void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(int, …)` becomes
    `vectorized_elementwise_kernel<CUDAFunctor_add>`; a name that is no C++ stays, cut in the middle when very long."""
    text = plain_name(name)
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST // 2] + "…" + text[-(LONGEST // 2 - 1) :]


@cache
def plain_name(name: str) -> str:
    """The short name, uncut."""
    text = _mangled(name.strip()) if name.startswith("_Z") else name.strip()
    text = ANONYMOUS.sub("", text)
    if "(" in text or "<" in text:
        text = _short(re.sub(r"^(void|std::enable_if<.*?>::type|static) +", "", text), 0) or text
    return text


def _short(text: str, depth: int) -> str:
    head, arguments = _apart(text)
    base = head.rpartition("::")[2].strip() or head
    inner = next((a for a in arguments if not DULL.match(a)), "")
    if not inner or depth > 3:
        return base
    said = _short(inner, depth + 1)
    if base in BARE and said.endswith(("Params", "ParamsEx")):  # the argument is no kernel: the namespace tells more
        return "::".join(head.split("::")[-2:])
    if base in WRAPPERS or base in BARE:
        return said
    return f"{base}<{said}>" if depth == 0 and said else base


def _apart(text: str) -> tuple[str, list[str]]:
    """The name before its first template list or parameter list, and the members of that template list."""
    text = LAMBDA.sub("", text) if not text.startswith("{") else text
    for at, char in enumerate(text):
        if char == "(":
            return text[:at], []
        if char == "<" and not text[:at].endswith("operator"):
            end = _closing(text, at)
            rest = text[end + 1 :]
            if rest.startswith("::"):  # a member of a template: its own name counts
                head, arguments = _apart(rest[2:])
                return (head, arguments) if arguments else (head, _members(text[at + 1 : end]))
            return text[:at], _members(text[at + 1 : end])
    return text, []


def _closing(text: str, at: int) -> int:
    depth = 0
    for i in range(at, len(text)):
        if text[i] == "<":
            depth += 1
        elif text[i] == ">" and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i
    return len(text)


def _members(text: str) -> list[str]:
    out, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "<({[":
            depth += 1
        elif char in ">)}]":
            depth -= 1
        elif char == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    return [a for a in (*out, text[start:].strip()) if a]


def _mangled(name: str) -> str:
    """The nested name of an Itanium-mangled symbol, with the first template argument where the name alone says nothing;
    the symbol itself where it does not parse."""
    found = re.match(r"_ZN?K?", name)
    parts, at = _identifiers(name, found.end() if found else 2)
    if not parts:
        return name
    if parts[-1] in BARE or parts[-1] == "kentry":
        for inner in re.finditer(r"N(?:S\w?_)?(?=\d)", name[at:]):
            said, _ = _identifiers(name, at + inner.end())
            if said:
                return said[-1]
    return "::".join(parts)


def _identifiers(name: str, at: int) -> tuple[list[str], int]:
    """The length-prefixed identifiers from a position on, and where they end."""
    parts = []
    while number := re.match(r"\d+", name[at:]):
        length, at = int(number[0]), at + number.end()
        parts.append(name[at : at + length])
        at += length
    return [p for p in parts if p and not p.startswith("_GLOBAL__N")], at
