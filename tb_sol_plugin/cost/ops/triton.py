"""Kernels of the inductor compiler: their buffers, and the operations that their names list.

`triton_poi_fused_add_mul_3(buffers..., numbers of elements)`: each buffer counts once, with at most one element per point of the
iteration space (a table that is gathered from is not read as a whole). A buffer that the kernel changes in place (`in_out_ptr0`) is read
and written: it counts twice. The record has no names of arguments, but an order: buffers changed in place, inputs, results. Where it
tells that the first one is in place, it counts so (`_in_place`), else once. Bytes are a lower bound. Vector FLOP = points x operations
named in the kernel; a name lists each ATen operator once, however often it occurs, and counts operations after a reduction as if they ran
over all of it. Sizes of the space come from the last recorded numbers; without them a pointwise kernel covers no more points than its
blocks do, where these and their size are recorded.

Where the compiler recorded its own figures (`kernel_num_gb`, `kernel_flop`, written when it benchmarks kernels), they are used.
Templates (`triton_tem_fused_mm_0`) are products: M, N, K from the buffers, where just one assignment fits.
Source of the names and figures: torch/_inductor/codegen/triton.py and runtime/triton_heuristics.py of torch 2.13.
Limits: a name says which operations, not how often; whether `x + y` goes to a new buffer or to that of x is not
recorded; autotuned variants are not told apart.
"""

from __future__ import annotations

import re
from itertools import permutations
from math import prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, model, pattern, unknown
from tb_sol_plugin.cost.ops.norm import BACKWARD, FORWARD, SOFTMAX, SOFTMAX_BACKWARD
from tb_sol_plugin.cost.ops.pointwise import BINARY, MOVES, TERNARY, UNARY, vector

OPERATIONS: Final = {
    **{name: 0 if name in MOVES else 1 for name in (*UNARY, *BINARY, *TERNARY)},
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "argmax", "argmin", "cumsum", "where",
                     "masked_fill", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward",
                     "native_dropout_backward", "scatter_add", "index_put", "index_add", "abs", "sigmoid"), 1),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
                     "_native_batch_norm_legit_functional", "_fused_rms_norm"), FORWARD),
    **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward",
                     "_fused_rms_norm_backward"), BACKWARD),
    "_softmax": SOFTMAX, "_log_softmax": SOFTMAX, "_softmax_backward_data": SOFTMAX_BACKWARD,
    "_log_softmax_backward_data": SOFTMAX_BACKWARD,
    "native_dropout": 2, "var": 3, "var_mean": 4, "std": 3, "logsumexp": 3, "linalg_vector_norm": 2,
}  # fmt: skip
"""FLOP per point of the operators that a kernel's name may list. What is not here moves data only."""

NAMED: Final = "a compiled kernel: each buffer once, operations as its name lists them"
IN_PLACE: Final = "a compiled kernel: the first buffer changed in place, each other one once, operations as its name lists them"
POINTWISE: Final = "triton_poi_fused"
"""How names of pointwise kernels begin: those whose blocks are looked at."""
_BLOCK: Final = re.compile(r"\b[XYZ]BLOCK=(\d{1,9})\b")
NO_SPACE: Final = "a compiled kernel without recorded sizes of its loops: each buffer once, operations as its name lists them"
RECORDED: Final = "bytes as the compiler recorded them, operations as the kernel's name lists them"
_KERNEL: Final = re.compile(r"triton_(?P<form>[a-z]+)_fused_(?P<names>.*?)(_\d+)?$")
_CREATES: Final = frozenset(
    ("full", "zeros", "ones", "empty", "zero", "fill", "arange", "iota", "rand", "randn", "randint", "random", "randperm", "seed", "seeds",
     "bernoulli", "uniform", "normal", "exponential", "eye", "linspace", "tensor", "indices", "native_dropout", "dropout")
)  # fmt: skip
"""Words of operators that make numbers out of nothing: a kernel with one of them may write a buffer that it never read."""
_SCATTERS: Final = frozenset(("scatter", "put", "index_put", "scatter_add", "index_add", "embedding", "slice_scatter", "select_scatter"))
"""Words of operators that change some places of a result that is not as large as the loops."""
_OF_TWO: Final = frozenset(
    ("threshold_backward", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward", "native_dropout_backward")
)
"""Operators of two tensors, neither of which can be a number: the incoming gradient and what the forward pass kept."""
_PICKS: Final = frozenset(("embedding", "index", "gather", "slice", "select", "split", "narrow", "unbind", "index_select"))


def operations(kernel: str) -> tuple[str, ...]:
    """Operator names in the name of a compiled kernel, known ones as a whole (`bitwise_and`), others word by word."""
    found = _KERNEL.match(kernel)
    if found is None:
        return ()
    words = found["names"].split("_")
    out: list[str] = []
    at = 0
    while at < len(words):
        length = next((n for n in range(len(words) - at, 0, -1) if "_".join(words[at : at + n]) in OPERATIONS), 1)
        out.append("_".join(words[at : at + length]))
        at += length
    return tuple(w for w in out if w)


def _space(call: Inputs, buffers: list[Tensor], reduces: bool) -> int | None:
    """Points of the iteration space: the product of the last one to four recorded numbers, whichever is as large as a buffer."""
    sizes: list[int] = []
    for at in range(len(call.values) - 1, -1, -1):
        value = call.value(at)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1 or call.tensor(at) is not None:
            break
        sizes.append(value)
    least = 2 if reduces else 1
    products = [prod(sizes[:n]) for n in range(least, min(len(sizes), 4) + 1)]
    if not products:
        return None
    elements = sorted({t.numel for t in buffers}, reverse=True)
    return next((e for e in elements if e in products), products[0])


def _in_place(names: tuple[str, ...], buffers: list[Tensor], points: int, *, pointwise: bool, reduces: bool) -> bool:
    """Whether the first buffer is certainly read and written. points: of the iteration space as recorded, 0 unknown.

    The compiler (torch/_inductor/codegen/common.py, `KernelArgs.python_argdefs`) gives buffers in the order in place, inputs, results:
    - one buffer, and operators that read one: a result must go somewhere;
    - a pointwise kernel writes results as large as its loops: where the last buffer is smaller (a bias), none of them is a result;
    - a single operator of two tensors, and two buffers: both are read;
    - the result of a product, which `_unsafe_view` names, is a matrix: where only the last buffer is one, it is that and no result.
    """
    words = frozenset(names)
    if len(buffers) == 1:
        return reduces or (bool(words & OPERATIONS.keys()) and not words & (_CREATES | _SCATTERS))
    if not pointwise or not points or buffers[0].numel < points or words & _SCATTERS:
        return False
    full = [t for t in buffers if t.numel >= points]
    if buffers[-1].numel < points:
        return True
    if len(buffers) == len(full) == 2 and words and words <= _OF_TWO:
        return True
    matrices = [len(t.shape) == 2 for t in full]
    return "unsafe_view" in "_".join(names) and "clone" not in words and matrices == [False] * (len(full) - 1) + [True]


def _number(call: Inputs, key: str) -> float:
    value = call.metadata(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18 else 0.0


def _reach(call: Inputs) -> int:
    """Points that the blocks of the one launched pointwise kernel cover: blocks by the block sizes that it was compiled with.

    A number above all buffers where blocks or their sizes are not recorded.
    """
    sizes = _BLOCK.findall(str(call.metadata("kernel_kwargs") or ""))
    if len(call.launched) != 1 or not call.launched[0].grid or not sizes:
        return 2**62
    return prod(call.launched[0].grid) * prod(map(int, sizes))


def _fused(call: Inputs, *, reduces: bool) -> Cost | None:
    buffers = call.flat
    if not buffers:
        return None
    names = operations(call.name)
    space = _space(call, buffers, reduces)
    recorded = _number(call, "kernel_num_gb")
    if space is None and not recorded and _PICKS.intersection(names):
        return unknown("a compiled kernel that picks elements, without recorded sizes of its loops")
    points = space if space is not None else min(max(t.numel for t in buffers), _reach(call))
    again = _in_place(names, buffers, space or 0, pointwise=call.name.startswith("triton_poi"), reduces=reduces)
    traffic = [size_of(min(t.unique, points), t.dtype) for t in (*buffers, *buffers[: int(again)])]
    work = points * sum(OPERATIONS.get(name, 0) for name in names) if names else None
    dtype = next((t.dtype for t in buffers if t.shape), buffers[0].dtype)
    if recorded:
        return vector(dtype, work, round(recorded * 1e9), reason=RECORDED)
    return vector(dtype, work, total(*traffic), reason=IN_PLACE if again else NAMED if space is not None else NO_SPACE)


@pattern(r"triton_(poi|for|unk)_fused_.*", kind="elementwise")
def pointwise_kernel(call: Inputs) -> Cost | None:
    """triton_poi_fused_...(buffers..., sizes...): points = the sizes of its loops."""
    return _fused(call, reduces=False)


@pattern(r"triton_(red|per|mix|spl)_fused_.*", kind="elementwise")
def reduction_kernel(call: Inputs) -> Cost | None:
    """triton_red_fused_...(buffers..., sizes...): points = kept times reduced elements."""
    return _fused(call, reduces=True)


@pattern(r"triton_tem_fused_.*", kind="gemm")
def template(call: Inputs) -> Cost | None:
    """triton_tem_fused_addmm_relu_2(a, b, [more,] out, ...): 2 M N K where a[M,K], b[K,N] and the last buffer of M N elements fit.

    Batched operands likewise. What fits in no way or in several (convolutions, several products) has an answer only where the compiler
    recorded `kernel_flop`.
    """
    buffers = call.flat
    if not buffers:
        return None
    traffic, flop = total(*(t.bytes for t in buffers)), _number(call, "kernel_flop")
    recorded = _number(call, "kernel_num_gb")
    found = _operands(buffers)
    if found is not None:
        macs, dtype = found
        return Cost(
            flop=2 * macs, bytes=traffic, dtype=dtype, kind="gemm", estimated=True, reason="sizes of the product read off the buffers"
        )
    if flop:
        return Cost(
            flop=round(flop), bytes=round(recorded * 1e9) if recorded else traffic, dtype=compute_dtype(buffers[0]), kind="gemm",
            estimated=True, reason="operations as the compiler recorded them",
        )  # fmt: skip
    return unknown("a compiled template whose operands cannot be told from its buffers")


def _operands(buffers: list[Tensor]) -> tuple[int, str] | None:
    """(multiply-adds, compute type) of the one product that the matrices among the buffers can form; None if none or several do."""
    out = buffers[-1]
    fits: set[tuple[int, str]] = set()
    for a, b in permutations([t for t in buffers[:-1] if len(t.shape) in (2, 3)], 2):
        if len(a.shape) == len(b.shape) and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]:
            results = prod(a.shape[:-1]) * b.shape[-1]
            if results == out.numel:
                fits.add((results * a.shape[-1], compute_dtype(a, b)))
    return fits.pop() if len(fits) == 1 else None


@model("CompiledFunction", "CompiledFunctionBackward", kind="other", wrapper=True)
def compiled_graph(call: Inputs) -> Cost | None:
    """A compiled graph as one call: no answer; its kernels have one each where they were recorded as operators (torch 2.5 and later)."""
    return unknown("a compiled graph whose kernels were not recorded as operators")
