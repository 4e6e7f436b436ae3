"""Posts the sizes of a job and its model of goodput as JSON to a scheduler that the user names.

    set_supervisor("https://supervisor.example:8080", job_id="team/job-1")     # or TB_SOL_SUPERVISOR_URL and ADAPTDL_JOB_ID
    post_sched_hints(hints, job_id)                                            # else every fit posts by itself

Without a URL or a job nothing is sent. A report takes no longer than its time limit, on a thread of its own; one at a time, of those that
wait the newest. What goes wrong is logged once. TB_SOL_SUPERVISOR_TOKEN, where it is set, goes along as `Authorization: Bearer`.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import IO, Final, Literal

from tb_sol_plugin.capture.goodput.state import PERF, MetricsState
from tb_sol_plugin.capture.loop.guard import log

DEFAULTS: Final[dict[str, object]] = {
    "initBatchSize": 0,
    "localBszBounds": None,
    "globalBatchSize": None,
    "maxBatchSize": 0,
    "maxProfiledReplicas": 0,
    "gradientAccumulation": False,
    "gradParams": None,
    "perfParams": None,
}
"""All keys, and what stands for what is not known. gradParams: {norm, var}, norm is the squared norm. perfParams: the seven."""
URL: Final = "TB_SOL_SUPERVISOR_URL"
JOB: Final = "ADAPTDL_JOB_ID"
TOKEN: Final = "TB_SOL_SUPERVISOR_TOKEN"
PATH: Final = "/hints/{job_id}"
TIMEOUT_S: Final = 10.0
BACKOFF_S: Final = 1.0
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS: Final = 3


def hints_of(state: MetricsState, global_batch_size: int | None = None) -> dict[str, object]:
    """Return the hints of a state; gradient statistics below 0 count as 0."""
    known = state.grad_sqr is not None and state.grad_var is not None
    return {
        "initBatchSize": state.init_batch_size or 0,
        "localBszBounds": None if state.local_bsz_bounds is None else list(state.local_bsz_bounds),
        "globalBatchSize": global_batch_size,
        "maxBatchSize": state.max_batch_size or 0,
        "maxProfiledReplicas": max((key.num_replicas for key, c in state.profile.items() if c.optim_count), default=0),
        "gradientAccumulation": state.gradient_accumulation,
        "gradParams": {"norm": max(state.grad_sqr or 0.0, 0.0), "var": max(state.grad_var or 0.0, 0.0)} if known else None,
        "perfParams": None if state.perf_params is None else dict(zip(PERF, state.perf_params, strict=True)),
    }


def check_hints(hints: Mapping[str, object]) -> None:
    """Check hints.

    ValueError for keys that are unknown or missing inside, TypeError for values of the wrong type; keys left out are as in DEFAULTS.
    """
    unknown = [str(key)[:40] for key in hints if key not in DEFAULTS]
    if unknown:
        raise ValueError(f"unknown keys: {', '.join(unknown)}; known are {', '.join(DEFAULTS)}")
    for name in ("initBatchSize", "maxBatchSize", "maxProfiledReplicas"):
        if name in hints:
            _whole(hints[name], name)
    if hints.get("globalBatchSize") is not None:
        _whole(hints["globalBatchSize"], "globalBatchSize")
    bounds = hints.get("localBszBounds")
    if bounds is not None:
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise TypeError("localBszBounds must be [least, most] or null")
        for value in bounds:
            _whole(value, "localBszBounds")
        if bounds[0] > bounds[1]:
            raise ValueError(f"localBszBounds {list(bounds)} must rise")
    if not isinstance(hints.get("gradientAccumulation", False), bool):
        raise TypeError("gradientAccumulation must be true or false")
    for name, keys in (("gradParams", ("norm", "var")), ("perfParams", PERF)):
        inner = hints.get(name)
        if inner is None:
            continue
        if not isinstance(inner, Mapping):
            raise TypeError(f"{name} must be an object or null")
        if set(inner) != set(keys):
            raise ValueError(f"{name} must have the keys {', '.join(keys)}")
        for key, value in inner.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name}.{key} must be a number")
            if not math.isfinite(value):
                raise ValueError(f"{name}.{key} is not finite")


def post_sched_hints(
    hints: Mapping[str, object],
    job_id: str | None = None,
    *,
    url: str | None = None,
    path: str = PATH,
    method: Literal["POST", "PUT"] = "POST",
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    wait: bool = False,
) -> bool | None:
    """Send hints to `<url><path>`. url: argument, else the environment, else none; job_id: argument, else the environment, else none.

    None where nothing is sent (no url, no job) or, without `wait`, where it is on its way on another thread; with `wait`, whether it
    arrived. ValueError and TypeError as of `check_hints`, before anything is sent; nothing else is raised.
    """
    check_hints(hints)
    return Supervisor(url, job_id, path=path, method=method, headers=dict(headers or {}), timeout_s=timeout_s).post(hints, wait=wait)


@dataclass
class Supervisor:
    """Sends hints. headers: in addition to that of the token. backoff_s: before the one repetition."""

    url: str | None = None
    job_id: str | None = None
    path: str = PATH
    method: Literal["POST", "PUT"] = "POST"
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = TIMEOUT_S
    backoff_s: float = BACKOFF_S

    def post(self, hints: Mapping[str, object], *, wait: bool = False) -> bool | None:
        """Send hints, see `post_sched_hints`."""
        check_hints(hints)
        request = self._request(json.dumps({**DEFAULTS, **hints}, allow_nan=False).encode())
        if request is None:
            return None
        if wait:
            return self._send(request)
        _mailbox.put(self, request)
        return None

    def _request(self, body: bytes) -> urllib.request.Request | None:
        url = (self.url or os.environ.get(URL, "")).strip().rstrip("/")
        job = (self.job_id or os.environ.get(JOB, "")).strip()
        if not url or not job:
            return None
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            _warned("url", "the supervisor's URL must be http://host or https://host: nothing is sent")
            return None
        if any(piece in ("", ".", "..") for piece in job.split("/")):
            _warned("job", f"no job id: {job[:80]!r}: nothing is sent")
            return None
        where = url + self.path.replace("{job_id}", urllib.parse.quote(job, safe="/"))
        token = os.environ.get(TOKEN, "")
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {}), **self.headers}
        return urllib.request.Request(where, data=body, headers=headers, method=self.method)

    def _send(self, request: urllib.request.Request) -> bool:
        for attempt in (0, 1):
            if attempt:
                time.sleep(self.backoff_s)
            problem, again = _attempt(request, self.timeout_s)
            if not problem:
                return True
            if not again:
                break
        host = urllib.parse.urlsplit(request.full_url).hostname
        _warned(f"send {host}", f"the supervisor at {host} did not get the hints: {problem}")
        return False


def _attempt(request: urllib.request.Request, timeout_s: float) -> tuple[str, bool]:
    """Send once; returns ("", False) where it arrived, else what went wrong and whether to try again."""
    try:
        urllib.request.build_opener(_SameHost).open(request, timeout=timeout_s).close()
        return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP status {error.code}", error.code in _AGAIN
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        return f"{type(reason).__name__}: {reason}"[:200], True
    except ValueError as error:
        return f"{type(error).__name__}: {error}"[:200], False


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects that keep method and body, on the same scheme, host and port, and no others."""

    max_redirections = _REDIRECTS

    def http_error_308(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: object) -> object:
        return self.http_error_302(req, fp, code, msg, headers)  # type: ignore[arg-type]

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        same = (old.scheme, old.hostname, old.port) == (new.scheme, new.hostname, new.port) and "@" not in new.netloc
        if not same or code not in (307, 308):
            return None
        return urllib.request.Request(newurl, data=req.data, headers=dict(req.header_items()), method=req.get_method())


class _Mailbox:
    """Sends on one thread; of the requests that wait for it, the newest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: tuple[Supervisor, urllib.request.Request] | None = None
        self._thread: threading.Thread | None = None

    def put(self, to: Supervisor, request: urllib.request.Request) -> None:
        with self._lock:
            self._next = to, request
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="tb-sol-hints", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                found, self._next = self._next, None
                if found is None:
                    self._thread = None
                    return
            try:
                found[0]._send(found[1])
            except Exception as error:
                _warned("thread", f"hints were not sent: {type(error).__name__}: {error}")


_mailbox: Final = _Mailbox()
_warned_of: Final[set[str]] = set()


def _warned(what: str, text: str) -> None:
    if what not in _warned_of:
        _warned_of.add(what)
        log.warning("goodput: %s", text)


def _whole(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} must not be below 0")
