"""Reads the recordings of a run on a Dask cluster: only what is compared over ranks, not what a page of one recording shows.

    executor = cluster("dask://scheduler:8786")       # the extra `dask`

A task reads one recording and returns what was reduced from it, at most 2 MiB; this process keeps it in its cache. So workers need to
reach the recordings under the same path (a shared folder, or an object store) and nothing else. Dask runs the tasks of a worker that
dies on another one; where a recording ends three of them, that one recording fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pickle import PicklingError
from typing import Any, Final, TypeVar

from tb_sol_plugin.errors import BadInput, BadQuery

T = TypeVar("T")
PREFIX: Final = "dask://"
SECONDS: Final = 20.0
"""Within which a scheduler answers."""
WITHOUT: Final = "start it again, or read with processes of this machine (no --executor); what was read is kept"
ELSE: Final = "read with processes of this machine (no --executor), and report this"
AHEAD: Final = 2
"""Tasks handed out per thread of the cluster: none waits for this process."""


class ClusterExecutor(Executor):
    """Runs tasks on the workers that a Dask client is connected to.

    Who waits for a task is told in a thread of this executor: in that of the client, which may ask the scheduler nothing, a lock that
    another thread holds while it asks would never be given back.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._done = ThreadPoolExecutor(1, "cluster")

    @property
    def count(self) -> int:
        """How many tasks to hand out at a time: workers may come and go."""
        if self._gone:
            return 1
        try:
            return max(AHEAD * int(sum(self._client.nthreads().values())), 1)
        except Exception:  # of many kinds: the scheduler ended just now
            return 1

    @property
    def _gone(self) -> bool:
        """Whether nobody answers the client any more: who asked it then would wait for seconds."""
        return getattr(self._client, "status", "running") != "running"

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Runs a task on the cluster; a task fails at once where its scheduler is gone."""
        here = Future[T]()
        there, why = None, ""
        try:
            there = None if self._gone else self._executor.submit(fn, *args, **kwargs)
        except (TypeError, AttributeError, PicklingError) as error:  # nothing that can be sent
            why = f"{type(error).__name__}: {str(error)[:200]}"
        except Exception:  # of many kinds: the scheduler ended just now
            there = None
        if there is None:
            gone = BadInput("the scheduler of the Dask cluster does not answer any more", hint=WITHOUT)
            here.set_exception(BadInput(f"a task cannot be sent to the Dask cluster ({why})", hint=ELSE) if why else gone)
            return here
        here.add_done_callback(lambda one: there.cancel() if one.cancelled() else None)
        there.add_done_callback(lambda one: self._tell(one, here))
        return here

    def _tell(self, there: Future[T], here: Future[T]) -> None:
        """Has the outcome of a task passed on; after the executor is closed nobody waits for it."""
        with contextlib.suppress(RuntimeError):
            self._done.submit(_pass_on, there, here)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with contextlib.suppress(Exception):  # a scheduler that is gone is told nothing
            self._executor.shutdown(wait=wait)
            self._client.close()
        self._done.shutdown(wait=False)


def _pass_on(there: Future[T], here: Future[T]) -> None:
    if here.set_running_or_notify_cancel():
        try:
            here.set_result(there.result(timeout=0))
        except BaseException as error:
            here.set_exception(error)


def cluster(address: str) -> ClusterExecutor:
    """Returns what runs tasks on the cluster of a scheduler. address: `dask://HOST:PORT`.

    BadQuery for another form, BadInput where the package is missing or nobody answers.
    """
    place = address.removeprefix(PREFIX)
    if not address.startswith(PREFIX) or not place:
        hint = f"give the scheduler of a Dask cluster as {PREFIX}HOST:PORT"
        raise BadQuery(f"no executor {address[:100]!r}", hint=hint, field="executor")
    try:
        from distributed import Client
    except ImportError:
        raise BadInput("a Dask cluster needs the package `distributed`", hint="pip install 'tb-sol-plugin[dask]'") from None
    try:
        client: Any = Client(f"tcp://{place}", timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        why = f"no Dask scheduler answers at {place[:100]} ({type(error).__name__})"
        raise BadInput(why, hint="start one with `dask scheduler`, and see that its port can be reached from here") from None
    return ClusterExecutor(client)
