"""Parses device limits as a reader writes them: `KEY`, `KEY@1410MHz`, `KEY+sparse`, and `@1410MHz` or `+sparse` alone.

Recordings do not tell how a device is plugged in: `+pcie=4x8` (generation and lanes), `+pcie_gb_per_s=25` and `+link_gb_per_s=100`
(one direction; the link to one other device) do.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tb_sol_plugin.devices.rates import clock_of
from tb_sol_plugin.devices.spec import MATRIX_COLUMNS, PCIE_BYTES_PER_S, PCIE_LANES, VECTOR_COLUMNS, DeviceSpec
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.units import number

SPARSE_DTYPES: Final = ("tf32", "fp16", "bf16", "fp8", "fp4", "int8")
"""Types whose matrix units skip zeros in a 2:4 pattern; FP32 and FP64 have no such mode."""
HIGHEST_MHZ: Final = 10_000.0
HIGHEST_GB_PER_S: Final = 100_000.0
FORM: Final = (
    "write KEY, KEY@1410MHz, KEY+sparse, KEY+pcie=4x8, KEY+pcie_gb_per_s=25, or several of these; "
    "without KEY they change the limits as recorded"
)
LONGEST: Final = 200

_TAIL = re.compile(
    r"\s*(?:@\s*(?P<clock>[^@+\s]+)|[+\s]\s*(?P<sparse>sparse)|[+\s]\s*(?P<what>pcie|pcie_gb_per_s|link_gb_per_s)\s*=\s*(?P<value>[^@+\s=]+))\s*$",
    re.IGNORECASE,
)
_PCIE = re.compile(r"(?:gen|g)?\s*(\d)(?:\.0)?(?:\s*x\s*(\d{1,2}))?", re.IGNORECASE)
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)(?:\s*GB/s)?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d+(?:\.\d+)?)\s*(mhz|ghz)?", re.IGNORECASE)


class Expression(msgspec.Struct, frozen=True):
    """base: key, alias or device name, "" for the limits as recorded. clock_mhz: 0 as in the table. sparse: 2:4 matrix peaks.

    pcie: (generation, lanes), (0, 0) as in the table. pcie_gb_per_s, link_gb_per_s: one direction, 0 as in the table.
    """

    base: str = ""
    clock_mhz: float = 0.0
    sparse: bool = False
    pcie: tuple[int, int] = (0, 0)
    pcie_gb_per_s: float = 0.0
    link_gb_per_s: float = 0.0

    @property
    def tail(self) -> str:
        """What follows the key, in its canonical form."""
        generation, lanes = self.pcie
        return "".join((
            f"@{self.clock_mhz:g}MHz" if self.clock_mhz else "",
            "+sparse" if self.sparse else "",
            f"+pcie={generation}x{lanes}" if generation else "",
            f"+pcie_gb_per_s={self.pcie_gb_per_s:.12g}" if self.pcie_gb_per_s else "",
            f"+link_gb_per_s={self.link_gb_per_s:.12g}" if self.link_gb_per_s else "",
        ))


def parse(text: str) -> Expression:
    """Returns an expression from text. BadQuery where it has another form; whether the key exists is not looked at.

    A blank counts as the plus sign, which an address turns into one.
    """
    if len(text) > LONGEST:
        raise BadQuery("device limits of more than 200 characters", hint=FORM, field="device_limits")
    base, clock, sparse = text.strip(), 0.0, False
    links: dict[str, str] = {}
    while (tail := _TAIL.search(" " + base)) is not None:
        base = (" " + base)[: tail.start()].strip()
        if tail["sparse"]:
            if sparse:
                raise BadQuery(f"+sparse twice in {text!r}", hint=FORM, field="device_limits")
            sparse = True
            continue
        if tail["what"]:
            name = tail["what"].lower()
            if name in links or (name.startswith("pcie") and any(n.startswith("pcie") for n in links)):
                raise BadQuery(f"two limits of one link in {text!r}", hint=FORM, field="device_limits")
            links[name] = tail["value"]
            continue
        if clock:
            raise BadQuery(f"two clocks in {text!r}", hint=FORM, field="device_limits")
        clock = _megahertz(tail["clock"], text)
    if "@" in base or "+" in base:
        raise BadQuery(f"device limits {text!r} do not parse", hint=FORM, field="device_limits")
    pcie = _generation(links["pcie"], text) if "pcie" in links else (0, 0)
    rates = {name: _rate(links[name], text) for name in ("pcie_gb_per_s", "link_gb_per_s") if name in links}
    return Expression(base, clock, sparse, pcie, **rates)


def _generation(given: str, text: str) -> tuple[int, int]:
    match = _PCIE.fullmatch(given)
    generation, lanes = (int(match[1]), int(match[2] or 16)) if match else (0, 0)
    if generation not in PCIE_BYTES_PER_S or lanes not in PCIE_LANES:
        raise BadQuery(
            f"no PCIe {given!r} in {text!r}", hint="give generation 3 to 6 and lanes 1 to 16, as in +pcie=4x8", field="device_limits"
        )
    return generation, lanes


def _rate(given: str, text: str) -> float:
    match = _RATE.fullmatch(given)
    value = float(match[1]) if match else 0.0
    if not 0 < value <= HIGHEST_GB_PER_S:
        raise BadQuery(f"no rate {given!r} in {text!r}", hint="give GB/s of one direction, as in +pcie_gb_per_s=25", field="device_limits")
    return value


def _megahertz(given: str, text: str) -> float:
    match = _CLOCK.fullmatch(given)
    value = float(match[1]) * (1000 if (match[2] or "").lower() == "ghz" else 1) if match else 0.0
    if not 0 < value <= HIGHEST_MHZ:
        raise BadQuery(f"no clock {given!r} in {text!r}", hint="give MHz as in @1410MHz, or GHz as in @1.41GHz", field="device_limits")
    return value


def apply(spec: DeviceSpec, expression: Expression) -> DeviceSpec:
    """Returns `spec` at another clock, or with sparse matrix peaks. BadQuery where the row lacks what that takes."""
    if expression.clock_mhz:
        spec = at_clock(spec, expression.clock_mhz)
    if expression.sparse:
        spec = sparse(spec)
    if expression.pcie[0]:
        spec = plugged(spec, *expression.pcie)
    if expression.pcie_gb_per_s:
        spec = _over_pcie(spec, expression.pcie_gb_per_s * 1e9, f"PCIe of {expression.pcie_gb_per_s:g} GB/s")
    if expression.link_gb_per_s:
        spec = linked(spec, expression.link_gb_per_s * 1e9)
    return msgspec.structs.replace(spec, key=f"{spec.key}{expression.tail}") if expression.tail else spec


def at_clock(spec: DeviceSpec, mhz: float) -> DeviceSpec:
    """Returns all compute peaks at another clock: peak x mhz / clock of the row. Memory and links stay; a measured GEMM rate goes.

    Matrix peaks follow the tensor clock, vector peaks and FP64 matrix peaks the vector clock. A peak that follows from no
    clock is left out: unknown.
    """
    matrix = _scaled(spec, mhz, vector=False)
    vector = _scaled(spec, mhz, vector=True)
    if not matrix and not vector:
        what = "holds measured limits" if spec.vendor == "cpu" else "has no clock in the table"
        raise BadQuery(
            f"{spec.key} {what}: its peaks cannot be scaled", hint="give its peaks in a device file instead", field="device_limits"
        )
    changed = {MATRIX_COLUMNS[d] for d in matrix} | {VECTOR_COLUMNS[d] for d in vector} | {"boost_vector_mhz", "boost_tensor_mhz"}
    gone = [MATRIX_COLUMNS[d] for d in spec.matrix if d not in matrix] + [VECTOR_COLUMNS[d] for d in spec.vector if d not in vector]
    clocks = dict.fromkeys(f"{number(c, 0)} MHz" for c in (spec.boost_tensor_mhz, spec.boost_vector_mhz) if c)
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name} at {number(mhz, 0)} MHz",
        matrix=matrix,
        vector=vector,
        boost_tensor_mhz=mhz,
        boost_vector_mhz=mhz,
        achievable_bf16=None,
        achievable_rates={},
        provenance={
            c: "derived" if c in changed and origin != "unverified" else origin
            for c, origin in spec.provenance.items()
            if c not in gone and not c.startswith("achievable_")
        },
        notes=_and(spec.notes, f"compute peaks scaled from {' and '.join(clocks)} to {number(mhz, 0)} MHz"),
    )


def _scaled(spec: DeviceSpec, mhz: float, *, vector: bool) -> dict[str, float]:
    out = {}
    for dtype, peak in (spec.vector if vector else spec.matrix).items():
        clock = clock_of(spec, dtype, vector=vector)
        if clock:
            out[dtype] = peak * mhz / clock
    return out


def sparse(spec: DeviceSpec) -> DeviceSpec:
    """Returns matrix peaks with 2:4 structured sparsity: dense x `sparse_factor`. Everything else stays dense."""
    if not spec.sparse_factor or not any(d in spec.matrix for d in SPARSE_DTYPES):
        raise BadQuery(f"no sparse peaks are known for {spec.key}", hint="leave +sparse out", field="device_limits")
    factor = spec.sparse_factor
    columns = {MATRIX_COLUMNS[d] for d in spec.matrix if d in SPARSE_DTYPES}
    sure = "sparse_2to4_factor" not in spec.unverified
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name}, 2:4 sparse",
        matrix={d: p * factor if d in SPARSE_DTYPES else p for d, p in spec.matrix.items()},
        achievable_bf16=None,
        achievable_rates={},
        sparse_factor=None,
        sparse=True,
        unverified=spec.unverified if sure else tuple(dict.fromkeys((*spec.unverified, *sorted(columns)))),
        provenance={
            c: ("derived" if sure and origin != "unverified" else "unverified") if c in columns else origin
            for c, origin in spec.provenance.items()
            if not c.startswith("achievable_")
        },
        notes=_and(spec.notes, f"matrix peaks with 2:4 sparsity: {factor:g} × dense, reached only by pruned weights"),
    )


def plugged(spec: DeviceSpec, generation: int, lanes: int) -> DeviceSpec:
    """Returns `spec` in a PCIe slot of another generation or width: the usable peak of 16 lanes x lanes / 16, in one direction."""
    at = _over_pcie(spec, PCIE_BYTES_PER_S[generation] * lanes / 16, f"PCIe {generation}.0 x{lanes}")
    return msgspec.structs.replace(at, pcie_gen=generation, pcie_lanes=lanes)


def _over_pcie(spec: DeviceSpec, bytes_per_s: float, what: str) -> DeviceSpec:
    """Returns copies of the host go over this PCIe, also where the row has a link to the CPU of its package."""
    gone = ("pcie_gen", "pcie_x16_bidir_gb_per_s", "c2c_bidir_gb_per_s")
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name}, {what}",
        pcie_bytes_per_s=bytes_per_s,
        pcie_gen=0,
        pcie_lanes=0,
        c2c_bytes_per_s=None,
        unverified=tuple(c for c in spec.unverified if c not in gone),
        provenance={c: origin for c, origin in spec.provenance.items() if c not in gone} | {"pcie_gen": "user"},
        notes=_and(spec.notes, f"{what}, as asked for"),
    )


def linked(spec: DeviceSpec, bytes_per_s: float) -> DeviceSpec:
    """Returns `spec` with another rate to one other device, in one direction."""
    what = f"link of {bytes_per_s / 1e9:g} GB/s"
    links = spec.link_bytes_per_s / spec.peer_bytes_per_s if spec.link_bytes_per_s and spec.peer_bytes_per_s else 1
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name}, {what}",
        link_bytes_per_s=bytes_per_s * links,
        unverified=tuple(c for c in spec.unverified if c != "link_bidir_gb_per_s"),
        provenance=spec.provenance | {"link_bidir_gb_per_s": "user"},
        notes=_and(spec.notes, f"{what}, as asked for"),
    )


def _and(notes: str, more: str) -> str:
    return f"{notes}; {more}" if notes else more
