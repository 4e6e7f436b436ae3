"""Reads and writes memory by its address inside of compiled loops: eight bytes of a text as a number, thirty-two as a mask.

Arrays passed along between compiled functions are counted by numba at every call, which costs more than the work; an address is a number.
Nothing here tests an index: the caller proves that all bytes lie within the memory.
"""

from __future__ import annotations

from typing import Any

from tb_sol_plugin.tables.compiled import import_numba

import_numba()  # before what is imported from it here

from llvmlite import ir  # noqa: E402
from numba import types  # noqa: E402
from numba.core import cgutils  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

WIDE = 32
"""Bytes that a mask looks at."""
_LANES = ir.VectorType(ir.IntType(8), WIDE)


def _place(builder: Any, args: Any, kind: Any, size: int) -> Any:
    """Returns a pointer to one of the values of `size` bytes each: arguments (address, number of the value)."""
    offset = builder.mul(args[1], ir.Constant(ir.IntType(64), size))
    return builder.inttoptr(builder.add(args[0], offset), kind.as_pointer())


def _getter(bits: int, result: types.Type) -> Any:
    """Returns an intrinsic: value number `index` of the memory at `address`."""

    def get(_context, address, index):  # type: ignore[no-untyped-def]
        def codegen(_, builder, signature, args):  # type: ignore[no-untyped-def]
            loaded = builder.load(_place(builder, args, ir.IntType(bits), bits // 8))
            loaded.align = bits // 8
            return builder.sext(loaded, ir.IntType(64)) if bits < 64 and result == types.int64 else loaded

        return result(types.int64, types.int64), codegen

    return intrinsic(get)


def _putter(bits: int) -> Any:
    """Returns an intrinsic that writes value number `index` of the memory at `address`."""

    def put(_context, address, index, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            small = builder.trunc(args[2], ir.IntType(bits)) if bits < 64 else args[2]
            builder.store(small, _place(builder, args, ir.IntType(bits), bits // 8)).align = bits // 8
            return context.get_dummy_value()

        return types.none(types.int64, types.int64, types.int64), codegen

    return intrinsic(put)


byte = _getter(8, types.uint8)
get32, get64, word = _getter(32, types.int64), _getter(64, types.int64), _getter(64, types.uint64)
put8, put32, put64 = _putter(8), _putter(32), _putter(64)


def _text(builder: Any, args: Any, kind: Any) -> Any:
    """Returns a value of type `kind` from any byte of a text: arguments (address, index)."""
    loaded = builder.load(_place(builder, args, kind, 1))
    loaded.align = 1
    return loaded


@intrinsic
def eight(_context, text, index):  # type: ignore[no-untyped-def]
    """Returns the eight bytes of a text from `index` on as one number, the first byte lowest."""

    def codegen(_, builder, signature, args):  # type: ignore[no-untyped-def]
        return _text(builder, args, ir.IntType(64))

    return types.uint64(types.int64, types.int64), codegen


def _every(value: int) -> ir.Constant:
    return ir.Constant(_LANES, [value] * WIDE)


def _mask(test: Any) -> Any:
    """Returns an intrinsic: bit k of its result is `test(builder, lanes)` of byte index + k of a text, of `WIDE` bytes."""

    def mask(_context, text, index):  # type: ignore[no-untyped-def]
        def codegen(_, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.bitcast(test(builder, _text(builder, args, _LANES)), ir.IntType(WIDE))

        return types.uint32(types.int64, types.int64), codegen

    return intrinsic(mask)


quotes = _mask(lambda b, x: b.or_(b.icmp_unsigned("==", x, _every(34)), b.icmp_unsigned("==", x, _every(92))))
"""Which bytes are a quote or a backslash."""
solids = _mask(lambda b, x: b.icmp_unsigned(">", x, _every(32)))
"""Which bytes are more than a space or control character."""
no_digits = _mask(lambda b, x: b.icmp_unsigned(">", b.sub(x, _every(48)), _every(9)))
"""Which bytes are no decimal digit."""


@intrinsic
def lowest(_context, mask):  # type: ignore[no-untyped-def]
    """Returns the place of the lowest bit that is set; the mask is not 0."""

    def codegen(_, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.zext(builder.cttz(args[0], cgutils.true_bit), ir.IntType(64))

    return types.int64(types.uint32), codegen


@intrinsic
def fold(_context, a, b):  # type: ignore[no-untyped-def]
    """Returns the halves of the 128-bit product of two words, one upon the other by xor: every bit of the result depends on both."""

    def codegen(_, builder, signature, args):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(x, wide) for x in args))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(builder.trunc(product, ir.IntType(64)), high)

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def bits(_context, number):  # type: ignore[no-untyped-def]
    """Returns the bits of a float64 as int64."""

    def codegen(_, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen
