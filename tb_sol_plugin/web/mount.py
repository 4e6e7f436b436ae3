"""Mounts the web application below a path prefix: what TensorBoard's start needs of it. It imports neither Flask nor pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


@dataclass(frozen=True)
class WebOptions:
    """serve_original: whether the recordings' own bytes can be fetched; auto means yes unless the server is open to the network.

    bind_all: others on the network can reach the server. Where they cannot, requests must name this machine or one of `hosts`: `*` for any.
    first_wait: seconds a request waits for a file before it answers "still loading". memo_bytes: answers kept. rows_bytes: columns of
    large tables kept, for their pages.
    """

    serve_original: Literal["auto", "on", "off"] = "auto"
    bind_all: bool = False
    hosts: tuple[str, ...] = ()
    first_wait: float = 0.2
    memo_bytes: int = 256_000_000
    rows_bytes: int = 128_000_000

    @property
    def original(self) -> bool:
        """Whether the original bytes are served."""
        return self.serve_original == "on" or (self.serve_original == "auto" and not self.bind_all)


class Mount:
    """A WSGI app that makes its inner app (built by `make` at the first request) see addresses without `prefix`."""

    def __init__(self, make: Callable[[], WSGIApplication], prefix: str) -> None:
        self._make = make
        self._prefix = prefix

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == self._prefix or path.startswith(self._prefix + "/"):
            inner = path[len(self._prefix) :] or "/"
            environ = {**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + self._prefix, "PATH_INFO": inner}
        return self._make()(environ, start_response)


def host_names(text: str) -> tuple[str, ...]:
    """Returns the names of a list `NAME,NAME` as a flag gives it."""
    return tuple(filter(None, text.replace(" ", "").split(",")))
