"""Collectives: no FLOP (the additions of a reduction are not counted), a payload, and what crosses the link per rank.

Sizes come from what the communication library writes beside its kernels: elements in, elements out, element type and group size.
The payload of a collective is the buffer that its bandwidth is quoted for; with group size n the least traffic over a rank's link
is the payload times a factor:

| kind | payload | factor |
|---|---|---|
| all_reduce | in | 2 (n - 1) / n |
| all_gather | out (what all ranks hold afterwards) | (n - 1) / n |
| reduce_scatter | in | (n - 1) / n |
| all_to_all | in | (n - 1) / n |
| gather, scatter | the larger of in and out, which is what the root holds | (n - 1) / n |
| broadcast, reduce, send, recv | the message | 1 |
| barrier | 0 | 0 |

Source: the bus bandwidth of NVIDIA's nccl-tests (doc/PERFORMANCE.md), which derives the factors from what any algorithm has to
move; a ring reaches them exactly. In-network reduction (NVLink SHARP, `multimem`) sends less per rank than the factor of
all_reduce says, so such a collective may come out faster than the link allows.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Final, Literal, TypeAlias

from tb_sol_plugin.cost.inputs import size_of
from tb_sol_plugin.cost.model import Cost

CollectiveKind: TypeAlias = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "broadcast", "reduce", "send", "recv", "barrier"
]

_NAMES: Final[tuple[tuple[str, CollectiveKind], ...]] = (
    (r"all_?reduce|cross_device_reduce", "all_reduce"),
    (r"reduce_?scatter", "reduce_scatter"),
    (r"all_?gather", "all_gather"),
    (r"all_?to_?all", "all_to_all"),
    (r"broad_?cast|bcast", "broadcast"),
    (r"barrier", "barrier"),
    (r"(?<![a-z])gather", "gather"),
    (r"(?<![a-z])scatter", "scatter"),
    (r"(?<![a-z])(?<!send_)i?recv", "recv"),
    (r"(?<![a-z])i?send(?!_?recv)", "send"),
    (r"(?<![a-z])reduce", "reduce"),
)
"""Parts of names in lower case, the longer ones first."""

_ELEMENTS: Final = {
    "float": "fp32", "float32": "fp32", "double": "fp64", "float64": "fp64", "half": "fp16", "float16": "fp16", "bfloat16": "bf16",
    "long": "int64", "int64": "int64", "int": "int32", "int32": "int32", "short": "int16", "char": "int8", "int8": "int8",
    "byte": "uint8", "uint8": "uint8", "bool": "bool", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
    "float8_e4m3fn": "fp8_e4m3", "float8_e4m3fnuz": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float8_e5m2fnuz": "fp8_e5m2",
    "complexhalf": "complex32", "complexfloat": "complex64", "complexdouble": "complex128",
}  # fmt: skip
"""Element types as the communication library names them (`BFloat16`, `Long`), in lower case."""


def collective_kind(name: str) -> CollectiveKind | None:
    """What a collective does, by any of its names: `_allgather_base`, `nccl:all_reduce`, `ncclDevKernel_SendRecv`, `c10d::broadcast_`.

    None where the name tells nothing (a coalesced group, `wait`) or names a pair of transfers whose direction is unknown (`SendRecv`).
    """
    stem = re.split(r"[<(]", name, maxsplit=1)[0].rsplit("::", 1)[-1]
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stem).lower()
    return next((kind for regex, kind in _NAMES if re.search(regex, plain)), None)


def element_type(dtype: str) -> str:
    """Short name (`bf16`) of an element type as the communication library or a recorder writes it, "" if it is not known."""
    plain = dtype.removeprefix("c10::").removeprefix("torch.").lower()
    return _ELEMENTS.get(plain, dtype if size_of(1, dtype) is not None else "")


def payload(name: str, in_elements: int, out_elements: int, dtype: str) -> int | None:
    """Bytes that the bandwidth of a collective is quoted for; None where kind, type or sizes (negative: not recorded) are unknown."""
    kind = collective_kind(name)
    if kind is None:
        return None
    if kind == "barrier":
        return 0
    elements = {"all_reduce": in_elements, "reduce_scatter": in_elements, "all_to_all": in_elements, "all_gather": out_elements}.get(
        kind, max(in_elements, out_elements)
    )
    return size_of(elements, element_type(dtype)) if elements >= 0 else None


def collective(name: str, in_elements: int, out_elements: int, dtype: str, group_size: int) -> Cost:
    """The work of one collective on one rank: 0 FLOP, `bytes` = its payload, independent of device memory.

    name: of the collective or its kernel. in_elements, out_elements: per rank, negative where not recorded. dtype: as recorded
    (`BFloat16`, `float`). group_size: ranks, less than 1 where unknown. With one rank nothing is moved: 0 bytes.
    """
    size = 0 if group_size == 1 else payload(name, in_elements, out_elements, dtype)
    reason = ""
    if size is None:
        reason = "kind of the collective not known" if collective_kind(name) is None else "size or element type of the message not recorded"
    return Cost(bytes=size, dtype=element_type(dtype), kind="other", estimated=bool(reason), reason=reason)


def wire_bytes(name: str, in_elements: int, out_elements: int, dtype: str, group_size: int) -> int | None:
    """Least bytes that one rank sends (and receives) over its link: payload times the factor of the table above, rounded up.

    None where payload or group size (less than 1) is unknown; 0 for a group of one.
    """
    size, kind = payload(name, in_elements, out_elements, dtype), collective_kind(name)
    if size is None or group_size < 1:
        return None
    if group_size == 1 or kind in (None, "barrier"):
        return 0
    part = Fraction(group_size - 1, group_size)
    factor = {
        "all_reduce": 2 * part, "all_gather": part, "reduce_scatter": part, "all_to_all": part, "gather": part, "scatter": part,
    }.get(str(kind), Fraction(1))  # fmt: skip
    return ceil(size * factor)
