"""Layers that run along a sequence: LSTM, GRU and RNN of the vendor libraries, causal 1-d convolution, Mamba's scans.

FLOP: the matrix products only; gates and activations are not counted. Bytes: operands read and results written once, weights once for
the whole sequence. Source: two products per step and layer; Gu and Dao, Mamba (2023) and Mamba-2 (2024) for the scans.
Limits: states that a library keeps for the backward pass are not counted. A weight list has no element type in a recording: its
matrices are taken in the type of the input.
"""

from __future__ import annotations

from math import prod

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, model, unknown


def _layers(x: Tensor | None, weights: tuple[Tensor, ...], direction: Direction) -> Cost | None:
    """Every weight matrix meets every element of the batch at every step, forward once, backward twice."""
    if x is None or len(x.shape) != 3:
        return None
    matrices = [w for w in weights if len(w.shape) == 2]
    if not matrices:
        return unknown("sizes of argument 1 (a tensor list) not recorded")
    steps = x.shape[0] * x.shape[1]
    held = sum(w.numel for w in weights)
    times = 1 if direction == "fwd" else 2
    # The last recurrent matrix is [gates x hidden, hidden]: its columns are the width of the result.
    out = steps * matrices[-1].shape[1]
    return Cost(
        flop=2 * times * steps * sum(w.numel for w in matrices), dtype=compute_dtype(x), kind="gemm", direction=direction,
        bytes=total(times * (x.bytes or 0) if x.dtype else None, size_of(times * (held + out), x.dtype)), estimated=True,
        reason="weights counted in the type of the input",
    )  # fmt: skip


@model("aten::_cudnn_rnn", "aten::miopen_rnn", kind="gemm")
def rnn(call: Inputs) -> Cost | None:
    """_cudnn_rnn(x[T,B,I] 0, weights 1, ...): 2 T B x the elements of all weight matrices."""
    return _layers(call.tensor(0), call.tensors(1), "fwd")


@model("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward", kind="gemm")
def rnn_backward(call: Inputs) -> Cost | None:
    """_cudnn_rnn_backward(x[T,B,I] 0, weights 1, ...): twice the forward."""
    return _layers(call.tensor(0), call.tensors(1), "bwd")


@model("aten::mkldnn_rnn_layer", kind="gemm")
def mkldnn_layer(call: Inputs) -> Cost | None:
    """mkldnn_rnn_layer(x[T,B,I] 0, input weight 1, recurrent weight 2, biases 3 and 4, ...): 2 T B x both matrices."""
    weights = tuple(w for at in (1, 2, 3, 4) if (w := call.tensor(at)) is not None)
    return _layers(call.tensor(0), weights, "fwd")


@model("aten::mkldnn_rnn_layer_backward", kind="gemm")
def mkldnn_layer_backward(call: Inputs) -> Cost | None:
    """mkldnn_rnn_layer_backward(x[T,B,I] 0, input weight 1, recurrent weight 2, biases 3 and 4, ...): twice the forward."""
    weights = tuple(w for at in (1, 2, 3, 4) if (w := call.tensor(at)) is not None)
    return _layers(call.tensor(0), weights, "bwd")


def _causal_conv(x: Tensor | None, weight: Tensor | None, bias: Tensor | None, direction: Direction) -> Cost | None:
    if x is None or weight is None or len(weight.shape) != 2 or not x.shape:
        return None
    if weight.shape[0] not in x.shape:
        return unknown(f"sizes contradict: a weight for {weight.shape[0]} channels")
    times = 1 if direction == "fwd" else 2
    traffic = [x.bytes, weight.bytes, 0 if bias is None else bias.bytes, size_of(x.numel, x.dtype)]
    if direction == "bwd":
        traffic += [size_of(x.numel, x.dtype), weight.bytes, 0 if bias is None else bias.bytes]
    return Cost(
        flop=2 * times * x.numel * weight.shape[1], bytes=total(*traffic), dtype=compute_dtype(x, weight), kind="conv", direction=direction
    )  # fmt: skip


@model(
    "DaoAILab::_causal_conv1d_fwd_cpp", "_C::causal_conv1d_fwd", "sgl_kernel::causal_conv1d_fwd", "CausalConv1dFn", kind="conv"
)  # fmt: skip
def causal_conv1d(call: Inputs) -> Cost | None:
    """causal_conv1d_fwd(x[B,d,T] 0, weight[d,k] 1, bias 2, ...): 2 B T d k."""
    return _causal_conv(call.tensor(0), call.tensor(1), call.tensor(2), "fwd")


@model("DaoAILab::_causal_conv1d_bwd_cpp", kind="conv")
def causal_conv1d_backward(call: Inputs) -> Cost | None:
    """causal_conv1d_bwd(x[B,d,T] 0, weight[d,k] 1, bias 2, dout 3, ...): twice the forward."""
    return _causal_conv(call.tensor(0), call.tensor(1), call.tensor(2), "bwd")


@model("DaoAILab::_causal_conv1d_update_cpp", "_C::causal_conv1d_update", "sgl_kernel::causal_conv1d_update", kind="conv")
def causal_conv1d_update(call: Inputs) -> Cost | None:
    """causal_conv1d_update(x[B,d] or [B,d,T] 0, state 1, weight[d,k] 2, bias 3, ...): 2 k per element of x; as many states of k are
    read and written."""
    x, weight = call.tensor(0), call.tensor(2)
    found = _causal_conv(x, weight, call.tensor(3), "fwd")
    if found is None or found.flop is None or x is None or weight is None:
        return found
    states = (x.shape[0] if x.shape else 0) * weight.numel
    return Cost(flop=found.flop, bytes=total(found.bytes, size_of(2 * states, x.dtype)), dtype=found.dtype, kind="conv")


@model("MambaChunkScanCombinedFn", kind="gemm")
def chunk_scan(call: Inputs) -> Cost | None:
    """MambaChunkScanCombinedFn(x[B,T,H,P] 0, dt[B,T,H] 1, A[H] 2, B[B,T,G,N] 3, C[B,T,G,N] 4, chunk 5):
    2 B (G T chunk N + H T chunk P + 2 H T N P). Without a recorded chunk the sizes do not tell it."""
    x, b, c, chunk = call.tensor(0), call.tensor(3), call.tensor(4), call.value(5)
    if x is None or b is None or c is None or len(x.shape) != 4 or len(b.shape) != 4:
        return None
    if not isinstance(chunk, int) or isinstance(chunk, bool) or chunk <= 0:
        return unknown("chunk size not recorded")
    batch, time, heads, width = x.shape
    groups, states = b.shape[2:]
    flop = 2 * batch * time * (groups * chunk * states + heads * chunk * width + 2 * heads * states * width)
    tensors = [t.bytes for at in range(5) if (t := call.tensor(at)) is not None]
    return Cost(flop=flop, bytes=total(*tensors, size_of(x.numel, x.dtype)), dtype=compute_dtype(x, b, c), kind="gemm")


@model("_C::selective_scan_fwd", "SelectiveScanFn", kind="other")
def selective_scan(call: Inputs) -> Cost | None:
    """selective_scan_fwd(u[B,D,T] 0, delta 1, A[D,N] 2, B 3, C 4, ...): 9 B T D N vector operations."""
    u, a = call.tensor(0), call.tensor(2)
    if u is None or a is None or len(a.shape) != 2 or not u.shape:
        return None
    tensors = [t.bytes for at in range(5) if (t := call.tensor(at)) is not None]
    return Cost(
        flop_vector=9 * prod(u.shape) * a.shape[1], bytes=total(*tensors, size_of(u.numel, u.dtype)), dtype=u.dtype, kind="other"
    )  # fmt: skip
