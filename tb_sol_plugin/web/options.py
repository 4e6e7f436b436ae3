"""What the server offers, and to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class WebOptions:
    """serve_original: whether the recordings' own bytes can be fetched; auto means yes unless the server is open to the network.

    bind_all: the server listens on every interface.
    first_wait: seconds a request waits for a file before it answers "still loading". memo_bytes: answers kept.
    """

    serve_original: Literal["auto", "on", "off"] = "auto"
    bind_all: bool = False
    first_wait: float = 0.2
    memo_bytes: int = 256_000_000

    @property
    def original(self) -> bool:
        """Whether the original bytes are served."""
        return self.serve_original == "on" or (self.serve_original == "auto" and not self.bind_all)
