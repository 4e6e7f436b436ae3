"""What names of kernels say about the type that they compute in."""

from __future__ import annotations

import re
from typing import Final

TF32: Final = re.compile(r"tf32|_s1688(gemm|fprop|dgrad|wgrad)|xf32", re.IGNORECASE)
"""Names of kernels that multiply FP32 operands in TF32."""
