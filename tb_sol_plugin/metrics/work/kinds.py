"""Words for work: its kinds and its directions, in the order of their codes."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost import Kind

KINDS: Final[tuple[Kind, ...]] = ("gemm", "attention", "conv", "norm", "elementwise", "other")
DIRECTIONS: Final = ("fwd", "bwd")
