"""Advises in the options of a serving engine, where the annotations of a recording say which one ran."""

from __future__ import annotations

import re
from typing import Final

from tb_sol_plugin.metrics.time.scope import engine_of
from tb_sol_plugin.model.capture import Capture

EXPERTS: Final = re.compile(r"moe|experts|matmul_ogs", re.IGNORECASE)
"""Operators and kernels of a mixture of experts."""
_CUSTOM: Final = re.compile(r"(?!aten::|triton_|c10d::|nccl:)\w+::|aiter|_C::")
"""Operators that a package registers for a kernel of its own: a compiler does not see into them."""
_TILES: Final = {
    "vLLM": "# benchmarks/kernels/benchmark_moe.py --tune of vLLM picks tiles for these sizes where its own kernel runs",
    "SGLang": "# benchmark/kernels/fused_moe_triton of SGLang tunes tiles for these sizes where its own kernel runs",
}
_OTHERS_TILES: Final = "# tune the tiles of the experts' kernel for these sizes"
_MORE: Final = "; more tokens per step read the same experts once"
_LARGER: Final = {
    "vLLM": """vllm serve --compilation-config '{"cudagraph_capture_sizes": […]}'  # up to these batches, without --enforce-eager""",
    "SGLang": "python -m sglang.launch_server --cuda-graph-max-bs …  # up to these batches, without --disable-cuda-graph",
}
_WARM: Final = "# send some requests first, then POST /start_profile: what happens once stays out of the recording"
_UNCUSTOM: Final = {
    "vLLM": """vllm serve --compilation-config '{"custom_ops": ["none"]}'  # Inductor writes them and fuses them with their neighbors""",
}
_FUSED_BY_HAND: Final = "# each is one custom kernel already: only one that fuses it with its neighbors saves the launch and the traffic"


def expert_fix(capture: Capture, name: str) -> str:
    """Returns one line of advice for the products of a mixture of experts; "" for any other operator."""
    if EXPERTS.search(name) is None:
        return ""
    return _TILES.get(engine_of(capture), _OTHERS_TILES) + _MORE


def custom_fix(capture: Capture, name: str) -> str:
    """Returns one line of advice for small work of a custom operator in compiled code; "" for any other operator."""
    return _UNCUSTOM.get(engine_of(capture), _FUSED_BY_HAND) if _CUSTOM.match(name) else ""


def warm_fix(capture: Capture) -> str:
    """Returns how to record an engine that is warm; "" where none is known or it has no such address."""
    return _WARM if engine_of(capture) in ("vLLM", "SGLang") else ""


def eager_fix(capture: Capture) -> str:
    """Returns the option that lets graphs launch more iterations; "" without an engine that has one."""
    return _LARGER.get(engine_of(capture), "")
