"""Operations that move data: no FLOP, each element read once and written once.

Copies between host and device are bound by the link, not by device memory: whoever knows the direction decides that. Views,
and `to` or `contiguous` (which move nothing themselves: a copy below them does), have no model.
Source: native_functions.yaml of PyTorch for the positions.
Limits: a layout that reads or writes in pieces of less than a cache sector moves more.

Fills: the result written once. Sizes of new tensors come from the recorded values, element types from the dtype argument.

A random fill writes its result; drawing the numbers counts one FLOP per element.
Source: native_functions.yaml of PyTorch for the positions.
Limits: the cost of a random generator's rounds is not counted.

Operators of serving engines that move or convert: quantization, writes into the key/value cache.

A quantization reads its input once and writes result and scales; 2 FLOP per element (find the largest, scale), 1 where the scale is
given. A cache write touches the slots of its tokens only, never the cache.
Source: operator schemas of vLLM, SGLang, sgl-kernel, aiter and FBGEMM (fbgemm_gpu 0.6 to 1.3; its later home is MSLK).
Limits: a cache in another layout than its tokens moves whole sectors. A scale of the whole tensor is found in a pass of its own, which
reads the input a second time: not counted, a lower bound.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, size_of
from tb_sol_plugin.cost.model import Cost, model, pattern, unknown
from tb_sol_plugin.cost.ops.pointwise import axis, count, like, moved, read, repeated, vector


@model("aten::copy_", "aten::_copy_from", "aten::copy", kind="other")
def copy_(call: Inputs) -> Cost | None:
    """copy_(target, source): the unique elements of the source read, the target written."""
    target, source = call.tensor(0), call.tensor(1)
    if target is None or source is None:
        return None
    return moved(target.dtype, source.bytes, like(target))


@model("aten::clone", "aten::lift_fresh_copy", kind="other", wrapper=True)
def clone(call: Inputs) -> Cost | None:
    """clone(x), where no copy was recorded below it: the unique elements read, every element written."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x))


@model("aten::_to_copy", kind="other", wrapper=True)
def to_copy(call: Inputs) -> Cost | None:
    """_to_copy(x, dtype, ...), where no copy was recorded below it: read in its type, written in the given one."""
    x = call.tensor(0)
    if x is None:
        return None
    dtype = call.dtype(1) or x.dtype
    return moved(dtype, x.bytes, like(x, dtype))


@model("aten::permute_copy", "aten::t_copy", "aten::transpose_copy", "aten::view_copy", "aten::_reshape_copy", "aten::expand_as_copy",
       "aten::unsqueeze_copy", "aten::squeeze_copy", "aten::pixel_shuffle", "aten::pixel_unshuffle", "aten::channel_shuffle",
       "aten::native_channel_shuffle", "aten::flip", "aten::fliplr", "aten::flipud", "aten::roll", "aten::rot90", "aten::tril",
       "aten::triu",       "aten::view_as_real_copy", "aten::view_as_complex_copy", "aten::fft_fftshift",
       "aten::fft_ifftshift", kind="other")  # fmt: skip
def rearranged(call: Inputs) -> Cost | None:
    """flip(x, dims), tril(x, diagonal), a transposing copy: every element read and written once."""
    x = call.tensor(0)
    return None if x is None else moved(x.dtype, x.bytes, like(x))


@model("aten::tril_", "aten::triu_", kind="other")
def tril_(call: Inputs) -> Cost | None:
    """tril_(x, diagonal): in place; counted as one pass over x."""
    return rearranged(call)


@model("aten::expand_copy", "aten::repeat", "aten::tile", kind="other")
def repeat(call: Inputs) -> Cost | None:
    """repeat(x, times): x read once, the result written. `expand_copy` names the sizes of the result instead, -1 to keep one."""
    x, times = call.tensor(0), call.ints(1)
    if x is None or times is None:
        return None
    out = x.numel * prod(times)
    return moved(x.dtype, x.bytes, size_of(out, x.dtype)) if out >= 0 else None


@model("aten::repeat_interleave", kind="other")
def repeat_interleave(call: Inputs) -> Cost | None:
    """repeat_interleave(x, times, dim): exact for one number of times; for a tensor of them, x and the counts read: a lower bound."""
    x, times, counts = call.tensor(0), count(call, 1), call.tensor(1)
    if x is None:
        return None
    if times is not None:
        return moved(x.dtype, x.bytes, size_of(x.numel * times, x.dtype))
    return moved(x.dtype, *read(x, counts), reason="size of the result depends on the data: left out, a lower bound")


@model("aten::constant_pad_nd", "aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d", "aten::replication_pad1d",
       "aten::replication_pad2d", "aten::replication_pad3d", kind="other")  # fmt: skip
def pad(call: Inputs) -> Cost | None:
    """constant_pad_nd(x, pad, value): x read, the padded result written. Pairs of sides from the last dimension on, negative crops."""
    x, out = call.tensor(0), _padded(call.tensor(0), call.ints(1))
    if x is None or out is None:
        return None
    return moved(x.dtype, size_of(min(x.unique, out), x.dtype), size_of(out, x.dtype))


@model("aten::pad", "aten::_pad_enum", "aten::_pad_circular", kind="other", wrapper=True)
def pad_wrapper(call: Inputs) -> Cost | None:
    """pad(x, pad, mode, value), where nothing below it was recorded."""
    return pad(call)


def _padded(x: Tensor | None, sides: tuple[int, ...] | None) -> int | None:
    if x is None or sides is None or len(sides) % 2 or len(sides) // 2 > len(x.shape):
        return None
    shape = list(x.shape)
    for at in range(len(sides) // 2):
        shape[-1 - at] += sides[2 * at] + sides[2 * at + 1]
    return prod(shape) if min(shape, default=0) >= 0 else None


@model("aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward", "aten::reflection_pad3d_backward",
       "aten::replication_pad1d_backward", "aten::replication_pad2d_backward", "aten::replication_pad3d_backward",
       kind="other")  # fmt: skip
def pad_backward(call: Inputs) -> Cost | None:
    """reflection_pad2d_backward(grad, x, pad): the gradient read and added up into one like x; one FLOP per element of the gradient."""
    grad, x = call.tensor(0), call.tensor(1)
    if grad is None or x is None:
        return None
    return moved(grad.dtype, grad.bytes, like(x, grad.dtype), flop=grad.numel, direction="bwd")


def _placed_back(call: Inputs, sizes_at: int) -> Cost | None:
    grad, sizes = call.tensor(0), call.ints(sizes_at)
    if grad is None:
        return None
    whole = size_of(prod(sizes), grad.dtype) if sizes is not None and min(sizes, default=0) >= 0 else grad.bytes
    reason = "" if sizes is not None else "size of the whole not recorded: only the part is counted, a lower bound"
    return moved(grad.dtype, grad.bytes, whole, grad.bytes, direction="bwd", reason=reason)


@model("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward", "aten::unfold_backward", kind="other")
def slice_backward(call: Inputs) -> Cost | None:
    """slice_backward(grad, sizes, ...): the whole is zeroed, then the gradient copied into its part."""
    return _placed_back(call, 1)


@model("aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter", "aten::as_strided_scatter", kind="other")
def slice_scatter(call: Inputs) -> Cost | None:
    """slice_scatter(x, source, ...): x copied, then the source copied into its part."""
    x, source = call.tensor(0), call.tensor(1)
    if x is None or source is None:
        return None
    return moved(x.dtype, x.bytes, like(x), source.bytes, like(source, x.dtype))


@model("aten::unfold_copy", "aten::im2col", kind="other")
def im2col(call: Inputs) -> Cost | None:
    """im2col(x[N, C, H, W], kernel, dilation, padding, stride): x read, N C prod(kernel) L elements written."""
    x = call.tensor(0)
    if x is None or len(x.shape) not in (3, 4):
        return None
    kernel, dilation, padding, stride = (repeated(call.ints(i), 2) for i in (1, 2, 3, 4))
    if kernel is None or dilation is None or padding is None or stride is None or min(stride) < 1:
        return None
    blocks = prod(
        (size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, d, p, s in zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    )
    out = prod(x.shape[:-2]) * prod(kernel) * blocks
    return moved(x.dtype, x.bytes, size_of(out, x.dtype)) if blocks >= 0 else None


@model("aten::col2im", kind="other")
def col2im(call: Inputs) -> Cost | None:
    """col2im(x[N, C k, L], size, kernel, ...): columns read and added up into N C prod(size) elements; one FLOP per column element."""
    x, size, kernel = call.tensor(0), repeated(call.ints(1), 2), repeated(call.ints(2), 2)
    if x is None or size is None or kernel is None or len(x.shape) < 2 or prod(kernel) < 1:
        return None
    out = prod(x.shape[:-1]) // prod(kernel) * prod(size)
    return moved(x.dtype, x.bytes, size_of(out, x.dtype), flop=x.numel)


@model("aten::diag_embed", "aten::diag", "aten::block_diag", kind="other")
def diag_embed(call: Inputs) -> Cost | None:
    """diag_embed(x): x read, the square matrix written. `diag` of a matrix reads its diagonal."""
    x = call.tensor(0)
    if x is None or not x.shape:
        return None
    if len(x.shape) == 2 and len(call.slots) == 2:
        side = size_of(min(x.shape), x.dtype)
        return moved(x.dtype, side, side)
    return moved(x.dtype, x.bytes, size_of(x.numel * x.shape[-1], x.dtype))


@model("aten::one_hot", kind="other", wrapper=True)
def one_hot(call: Inputs) -> Cost | None:
    """one_hot(x, classes): int64 results, zeroed and one per row set; with classes -1 the largest value decides: unknown."""
    x, classes = call.tensor(0), count(call, 1)
    if x is None or classes is None:
        return None
    return moved("int64", x.bytes, 8 * x.numel * classes, 8 * x.numel)


@model("aten::take_along_dim", kind="other", wrapper=True)
def take_along_dim(call: Inputs) -> Cost | None:
    """take_along_dim(x, indices, dim), where no gather was recorded below it."""
    x, index = call.tensor(0), call.tensor(1)
    if x is None or index is None or (call.value(2) is not None and axis(x, call.value(2)) is None):
        return None
    return moved(x.dtype, size_of(min(index.numel, x.unique), x.dtype), size_of(index.numel, x.dtype), index.bytes)


# -- Fills -----------------------------------------------------------------------------------------------------------


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
    given = call.dtype(dtype_at)
    dtype, out = given or "fp32", prod(sizes)
    return moved(dtype, size_of(out, dtype), flop=out if draws else 0, reason="" if given else DEFAULT_TYPE)


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


# -- Operators of serving engines that move or convert ---------------------------------------------------------------


def _quantized(out: Tensor | None, x: Tensor | None, *scales: Tensor | None, per_element: int) -> Cost | None:
    if out is None or x is None or not 1 <= x.numel // max(out.numel, 1) <= 2:
        return None
    return vector(x.dtype, per_element * x.numel, *read(out, x, *scales))


@model("_C::static_scaled_fp8_quant", "_C::static_scaled_int8_quant", "aiter::static_per_tensor_quant", kind="elementwise")
def static_quantization(call: Inputs) -> Cost | None:
    """static_scaled_fp8_quant(out, x, scale): n FLOP."""
    return _quantized(call.tensor(0), call.tensor(1), call.tensor(2), per_element=1)


@model("_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant", "_C::dynamic_scaled_int8_quant",
       "aiter::dynamic_per_token_scaled_quant", "aiter::dynamic_per_tensor_quant", kind="elementwise")  # fmt: skip
def dynamic_quantization(call: Inputs) -> Cost | None:
    """dynamic_per_token_scaled_fp8_quant(out, x, scales, ...): 2 n FLOP."""
    return _quantized(call.tensor(0), call.tensor(1), call.tensor(2), per_element=2)


@model("_C::scaled_fp4_quant", "sgl_kernel::scaled_fp4_quant", "aiter::dynamic_per_group_scaled_quant_fp4", kind="elementwise")
def fp4_quantization(call: Inputs) -> Cost | None:
    """scaled_fp4_quant(out, x, block scales, scale): two numbers per byte written; 2 n FLOP."""
    return _quantized(call.tensor(0), call.tensor(1), call.tensor(2), per_element=2)


@model("sgl_kernel::sgl_per_token_group_quant_8bit", "sgl_kernel::sgl_per_token_group_quant_fp8", "sgl_kernel::sgl_per_token_quant_fp8",
       "sgl_kernel::sgl_per_tensor_quant_fp8", "_C::per_token_group_fp8_quant", "_C::per_token_group_quant_int8",
       kind="elementwise")  # fmt: skip
def group_quantization(call: Inputs) -> Cost | None:
    """sgl_per_token_group_quant_8bit(x, out, scales, ...): the input comes first; 2 n FLOP."""
    return _quantized(call.tensor(1), call.tensor(0), call.tensor(2), per_element=2)


@model("primus_turbo::quantize_fp8_tensorwise", "primus_turbo_cpp_extension::quantize_fp8_tensorwise", kind="elementwise")
def new_quantization(call: Inputs) -> Cost | None:
    """quantize_fp8_tensorwise(x, ...): a new result of one byte per element; 2 n FLOP. The pass that finds the scale is not counted."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 2 * x.numel, x.bytes, x.numel)


@model("primus_turbo::quantize_mxfp4_dual", "primus_turbo_cpp_extension::quantize_mxfp4_dual", "primus::quantize_mxfp4_dual",
       kind="elementwise")  # fmt: skip
def dual_quantization(call: Inputs) -> Cost | None:
    """quantize_mxfp4_dual(x, ...): two new results, by rows and by columns, half a byte per element and a byte per 32; 4 n FLOP."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 4 * x.numel, x.bytes, 2 * (-(-x.numel // 2) + -(-x.numel // 32)))


@model("aiter::smoothquant_fwd", kind="elementwise")
def smooth_quantization(call: Inputs) -> Cost | None:
    """smoothquant_fwd(out, x, scales of columns, scales of rows): 3 n FLOP (smooth, find the largest, scale)."""
    return _quantized(call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(3), per_element=3)


@model("vllm::rocm_aiter_per_tensor_quant", "vllm::rocm_aiter_per_token_quant", kind="elementwise")
def aiter_new(call: Inputs) -> Cost | None:
    """rocm_aiter_per_token_quant(x, type, scale): a byte per element, new; where no scale is given, one FP32 per tensor or row as well and
    2 n FLOP, else n."""
    x, scale = call.tensor(0), call.tensor(2)
    if x is None or not x.shape:
        return None
    rows = x.numel // max(x.shape[-1], 1) if call.name.endswith("token_quant") else 1
    return _byte_each(x, 2 if scale is None else 1, rows if scale is None else 0, scale)


@model("vllm::rocm_aiter_group_fp8_quant", "vllm::triton_per_token_group_quant_fp8", kind="elementwise")
def aiter_by_group(call: Inputs) -> Cost | None:
    """rocm_aiter_group_fp8_quant(x, group): a byte per element and an FP32 scale per group, new; 2 n FLOP."""
    x, group = call.tensor(0), count(call, 1)
    if x is None or not x.shape or not group:
        return None
    return _byte_each(x, 2, x.numel // max(x.shape[-1], 1) * -(-x.shape[-1] // group))


def _byte_each(x: Tensor, per_element: int, scales: int, *more: Tensor | None) -> Cost:
    """x (and small tensors with it) read; one byte per element and FP32 scales written."""
    return vector(x.dtype, per_element * x.numel, x.bytes, x.numel, 4 * scales, *read(*more))


@pattern(r"(fbgemm|mslk)::quantize_fp8_per_(tensor|row|col)", kind="elementwise")
def fbgemm_fp8(call: Inputs) -> Cost | None:
    """quantize_fp8_per_row(x[..., M, K], sizes 1, bound 2, ...): a byte per element and FP32 scales: one per row, per column, or per tensor
    (per matrix of a batch); 2 n FLOP."""
    x = call.tensor(0)
    if x is None:
        return None
    if len(x.shape) not in (2, 3):
        return unknown("fbgemm quantizes 2 or 3 dimensions")
    batch, rows, columns = (*(1, *x.shape)[-3:],)
    scales = batch * {"row": rows, "col": columns}.get(call.name.rpartition("_")[2], 1)
    return _byte_each(x, 2, scales, call.tensor(1), call.tensor(2))


@pattern(r"(fbgemm|mslk)::(quantize_fp8_per_tensor_fixed_scale|per_tensor_quantize_i8)", kind="elementwise")
def fbgemm_fixed(call: Inputs) -> Cost | None:
    """quantize_fp8_per_tensor_fixed_scale(x, scale, sizes, ...), per_tensor_quantize_i8(x, scale): a byte per element; n FLOP."""
    x = call.tensor(0)
    return None if x is None else _byte_each(x, 1, 0, call.tensor(1), call.tensor(2))


@pattern(r"(fbgemm|mslk)::per_tensor_dynamic_quantize_i8", kind="elementwise")
def fbgemm_dynamic(call: Inputs) -> Cost | None:
    """per_tensor_dynamic_quantize_i8(x): a byte per element and one FP32 scale; 2 n FLOP."""
    x = call.tensor(0)
    return None if x is None else _byte_each(x, 2, 1)


@pattern(r"(fbgemm|mslk)::get_fp8_per_tensor_scale", kind="elementwise")
def fbgemm_scale(call: Inputs) -> Cost | None:
    """get_fp8_per_tensor_scale(x, sizes, bound): x read, one FP32 scale written; n FLOP."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, x.numel, x.bytes, 4, *read(call.tensor(1), call.tensor(2)))


@pattern(r"(fbgemm|mslk)::silu_mul_quantize_i8", kind="elementwise")
def fbgemm_gated(call: Inputs) -> Cost | None:
    """silu_mul_quantize_i8(x1, x2, scale): both read, a byte per element written; 3 n FLOP (silu, product, scale)."""
    gate, up = call.tensor(0), call.tensor(1)
    if gate is None or up is None:
        return None
    return _byte_each(gate, 3, 0, up) if gate.shape == up.shape else unknown("sizes contradict: the two inputs")


@pattern(r"(fbgemm|mslk)::scaled_fp4_quant", kind="elementwise")
def fbgemm_fp4(call: Inputs) -> Cost | None:
    """scaled_fp4_quant(out, x, block scales, scale): two numbers per byte written; 2 n FLOP."""
    return _quantized(call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(3), per_element=2)


@pattern(r"fbgemm::(Float|Half|BFloat16|FloatOrHalf)To(Fused8Bit|FP8)RowwiseQuantized", kind="elementwise")
def fbgemm_rowwise(call: Inputs) -> Cost | None:
    """FloatToFused8BitRowwiseQuantized(x[..., K]): a byte per element, and 8 bytes of scale and bias at the end of each row; 2 n FLOP. Rows
    are padded to 4 bytes on GPUs: left out."""
    x = call.tensor(0)
    if x is None or not x.shape:
        return None
    return _byte_each(x, 2, 2 * prod(x.shape[:-1]))


@model("aten::fake_quantize_per_tensor_affine", "aten::fake_quantize_per_channel_affine", kind="elementwise", wrapper=True)
def fake_quantization(call: Inputs) -> Cost | None:
    """fake_quantize_per_tensor_affine(x, scale, zero, low, high), where nothing below it was recorded: 4 n FLOP."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 4 * x.numel, x.bytes, like(x))


@model("aten::fake_quantize_per_tensor_affine_cachemask", "aten::fake_quantize_per_channel_affine_cachemask",
       "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", kind="elementwise")  # fmt: skip
def fake_quantization_with_mask(call: Inputs) -> Cost | None:
    """fake_quantize_per_tensor_affine_cachemask(x, ...): a mask of one byte per element as well; 4 n FLOP."""
    x = call.tensor(0)
    return None if x is None else vector(x.dtype, 4 * x.numel, x.bytes, like(x), x.numel)


@model("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "aiter::reshape_and_cache",
       "aiter::reshape_and_cache_flash", kind="other")  # fmt: skip
def cache_write(call: Inputs) -> Cost | None:
    """reshape_and_cache_flash(key, value, key_cache, value_cache, slots, ...): tokens read, the same elements written into the cache."""
    key, value, cache = call.tensor(0), call.tensor(1), call.tensor(2)
    if key is None or value is None or cache is None:
        return None
    return moved(key.dtype, key.bytes, value.bytes, size_of(key.numel + value.numel, cache.dtype), *read(call.tensor(4)))


@model("sglang::store_cache", kind="other")
def slot_write(call: Inputs) -> Cost | None:
    """store_cache(k[T, D] 0, v[T, D] 1, k_cache[S, D] 2, v_cache[S, D] 3, slots[T] 4, ...): rows of tokens read, as many elements written
    into the caches, in their types. A slot of -1 is not written: the record does not tell how many there are."""
    key, value, slots = call.tensor(0), call.tensor(1), call.tensor(4)
    caches = call.tensor(2), call.tensor(3)
    if key is None or value is None or caches[0] is None or caches[1] is None or slots is None:
        return None
    for row, cache in ((key, caches[0]), (value, caches[1])):
        if not row.shape or not cache.shape or row.shape[0] != slots.numel or prod(row.shape[1:]) != prod(cache.shape[1:]):
            return unknown("sizes contradict: rows of tokens, slots and rows of the cache")
    written = size_of(key.numel, caches[0].dtype), size_of(value.numel, caches[1].dtype)
    return moved(key.dtype, *read(key, value, slots), *written)


@model("sgl_kernel::store_kv_cache", "sgl_kernel::set_kv_buffer_kernel", kind="other")
def cache_first_write(call: Inputs) -> Cost | None:
    """store_kv_cache(k_cache 0, v_cache 1, slots[T] 2, k[T, ...] 3, v[T, ...] 4): tokens read, as many elements written into the caches."""
    caches, slots, rows = (call.tensor(0), call.tensor(1)), call.tensor(2), (call.tensor(3), call.tensor(4))
    if slots is None or caches[0] is None or caches[1] is None or rows[0] is None or rows[1] is None:
        return None
    if any(not row.shape or row.shape[0] != slots.numel for row in rows if row is not None):
        return unknown("sizes contradict: rows of tokens and slots")
    written = size_of(rows[0].numel, caches[0].dtype), size_of(rows[1].numel, caches[1].dtype)
    return moved(rows[0].dtype, *read(*rows, slots), *written)


@model("_C_cache_ops::concat_and_cache_mla", "aiter::concat_and_cache_mla", kind="other")
def latent_cache_write(call: Inputs) -> Cost | None:
    """concat_and_cache_mla(latent, rope part, cache, slots, ...): both read and written side by side."""
    latent, turned, cache = call.tensor(0), call.tensor(1), call.tensor(2)
    if latent is None or turned is None or cache is None:
        return None
    return moved(latent.dtype, latent.bytes, turned.bytes, size_of(latent.numel + turned.numel, cache.dtype), *read(call.tensor(3)))
