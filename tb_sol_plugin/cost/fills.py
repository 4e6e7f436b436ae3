"""Fills: the result written once. Sizes of new tensors come from the recorded values, element types from the dtype argument.

A random fill writes its result; drawing the numbers counts one FLOP per element.
Source: native_functions.yaml of PyTorch for the positions.
Limits: the cost of a random generator's rounds is not counted.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, size_of
from tb_sol_plugin.cost.model import Cost, model
from tb_sol_plugin.cost.parts import count, like, moved, read

DEFAULT_TYPE: Final = "element type not given: FP32, the default of torch, assumed"


@model("aten::fill_", "aten::zero_", "aten::fill", "aten::zero", kind="other")
def fill(call: Inputs) -> Cost | None:
    """fill_(x, value): written once."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, like(x))


@model("aten::normal_", "aten::uniform_", "aten::random_", "aten::exponential_", "aten::log_normal_", "aten::cauchy_", "aten::geometric_",
       "aten::_philox_normal_", "aten::_philox_uniform_", kind="other")  # fmt: skip
def random(call: Inputs) -> Cost | None:
    """uniform_(x, from, to): written once; n FLOP."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, like(x), flop=x.numel)


@model("aten::bernoulli_", kind="other")
def bernoulli_(call: Inputs) -> Cost | None:
    """bernoulli_(x, p): written once, probabilities in a tensor read; n FLOP."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, like(x), *read(call.tensor(1)), flop=x.numel)


@model("aten::bernoulli", "aten::poisson", "aten::_standard_gamma", kind="other")
def bernoulli(call: Inputs) -> Cost | None:
    """bernoulli(p): probabilities read, as many results written; n FLOP."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x), flop=x.numel)


def _new(call: Inputs, sizes_at: int, dtype_at: int, *, draws: bool = False) -> Cost | None:
    sizes = call.ints(sizes_at)
    if sizes is None or min(sizes, default=0) < 0:
        return None
    asked = call.dtype(dtype_at)
    dtype, out = asked or "fp32", prod(sizes)
    return moved(dtype, size_of(out, dtype), flop=out if draws else 0, reason="" if asked else DEFAULT_TYPE)


@model("aten::zeros", "aten::ones", kind="other", wrapper=True)
def zeros(call: Inputs) -> Cost | None:
    """zeros(size, dtype, ...), where no fill was recorded below it."""
    return _new(call, 0, 1)


@model("aten::full", kind="other", wrapper=True)
def full(call: Inputs) -> Cost | None:
    """full(size, value, dtype, ...), where no fill was recorded below it."""
    return _new(call, 0, 2)


@model("aten::rand", "aten::randn", kind="other", wrapper=True)
def rand(call: Inputs) -> Cost | None:
    """rand(size, dtype, ...), where no draw was recorded below it."""
    return _new(call, 0, 1, draws=True)


@model("aten::randint", kind="other", wrapper=True)
def randint(call: Inputs) -> Cost | None:
    """randint([low], high, size, dtype, ...), where no draw was recorded below it: int64 where no type is given."""
    at = 1 if isinstance(call.value(1), tuple) else 2
    sizes = call.ints(at)
    if sizes is None or isinstance(call.value(at), int) or min(sizes, default=0) < 0:
        return None
    dtype, out = call.dtype(at + 1) or "int64", prod(sizes)
    return moved(dtype, size_of(out, dtype), flop=out)


@model("aten::scalar_tensor", kind="other")
def scalar_tensor(call: Inputs) -> Cost | None:
    """scalar_tensor(value, dtype, ...): one element written."""
    dtype = call.dtype(1)
    return moved(dtype or "fp32", size_of(1, dtype or "fp32"), reason="" if dtype else DEFAULT_TYPE)


def _resembling(call: Inputs, dtype_at: int, *, draws: bool = False) -> Cost | None:
    x = call.tensor(0)
    if x is None:
        return None
    dtype = call.dtype(dtype_at) or x.dtype
    return moved(dtype, size_of(x.numel, dtype), flop=x.numel if draws else 0)


@model("aten::zeros_like", "aten::ones_like", kind="other", wrapper=True)
def zeros_like(call: Inputs) -> Cost | None:
    """zeros_like(x, dtype, ...), where no fill was recorded below it."""
    return _resembling(call, 1)


@model("aten::full_like", kind="other", wrapper=True)
def full_like(call: Inputs) -> Cost | None:
    """full_like(x, value, dtype, ...), where no fill was recorded below it."""
    return _resembling(call, 2)


@model("aten::rand_like", "aten::randn_like", kind="other", wrapper=True)
def rand_like(call: Inputs) -> Cost | None:
    """rand_like(x, dtype, ...), where no draw was recorded below it."""
    return _resembling(call, 1, draws=True)


def _new_like(call: Inputs, dtype_at: int) -> Cost | None:
    x, sizes = call.tensor(0), call.ints(1)
    if x is None or sizes is None or min(sizes, default=0) < 0:
        return None
    dtype = call.dtype(dtype_at) or x.dtype
    return moved(dtype, size_of(prod(sizes), dtype))


@model("aten::new_zeros", "aten::new_ones", kind="other", wrapper=True)
def new_zeros(call: Inputs) -> Cost | None:
    """new_zeros(x, size, dtype, ...): typed like x unless another type is given."""
    return _new_like(call, 2)


@model("aten::new_full", kind="other", wrapper=True)
def new_full(call: Inputs) -> Cost | None:
    """new_full(x, size, value, dtype, ...)."""
    return _new_like(call, 3)


@model("aten::arange", "aten::range", kind="other")
def arange(call: Inputs) -> Cost | None:
    """arange(end, ...), arange(start, end, ...) or arange(start, end, step, ...): as many elements as fit; int64 unless given.

    Four options follow the numbers (dtype, layout, device, pinned), or the tensor that is filled, which is empty before the call.
    """
    into = call.tensor(len(call.slots) - 1)
    numbers = len(call.slots) - (1 if into is not None else 4)
    if into is not None and into.numel:
        return moved(into.dtype, like(into))
    values = [v for v in map(call.value, range(max(numbers, 0))) if isinstance(v, int | float) and not isinstance(v, bool)]
    if not 1 <= numbers <= 3 or len(values) != numbers or not all(abs(v) < 2**53 for v in values):
        return None
    start, end, step = (0, values[0], 1) if numbers == 1 else (values[0], values[1], values[2] if numbers == 3 else 1)
    if not step:
        return None
    count = max(ceil((end - start) / step), 0)
    dtype = into.dtype if into is not None else call.dtype(numbers) or ("int64" if all(isinstance(v, int) for v in values) else "fp32")
    return moved(dtype, size_of(count, dtype))


@model("aten::linspace", "aten::logspace", kind="other")
def linspace(call: Inputs) -> Cost | None:
    """linspace(start, end, steps, dtype, ...)."""
    steps, dtype = count(call, 2), call.dtype(3)
    if steps is None:
        return None
    return moved(dtype or "fp32", size_of(steps, dtype or "fp32"), reason="" if dtype else DEFAULT_TYPE)


@model("aten::randperm", kind="other")
def randperm(call: Inputs) -> Cost | None:
    """randperm(n, ...): int64 written once: a lower bound."""
    n = count(call, 0)
    return moved("int64", 8 * n, flop=n, reason="one pass counted: a lower bound") if n is not None else None


@model("aten::multinomial", kind="other")
def multinomial(call: Inputs) -> Cost | None:
    """multinomial(p[..., n], samples, replacement): probabilities read, int64 samples written: one pass, a lower bound."""
    p, samples = call.tensor(0), count(call, 1)
    if p is None or not p.shape or samples is None:
        return None
    rows = prod(p.shape[:-1])
    return moved(p.dtype, p.bytes, 8 * rows * samples, flop=p.numel, reason="one pass counted: a lower bound")
