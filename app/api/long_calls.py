"""Calls that compute for seconds: off the event loop, a few at a time, given up when the caller is gone; jobs where preferred."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Annotated, TypeVar

from fastapi import Header, Request

Found = TypeVar("Found")

Prefer = Annotated[
    list[str] | None,
    Header(description="`respond-async` makes a job of the call, whatever its size (RFC 7240 section 4.1)."),
]


class CallerGone(Exception):
    """Whoever asked does not wait for the answer any more."""


def wants_job(prefer: Sequence[str] | None) -> bool:
    """Whether the header asks for `respond-async`, among other preferences or alone."""
    preferences = ",".join(prefer or ()).split(",")
    return any(each.partition(";")[0].strip().lower() == "respond-async" for each in preferences)


async def unless_gone(request: Request, pool: Executor, compute: Callable[[Callable[[], bool]], Found]) -> Found:
    """What `compute` returns in a thread of the pool; it is given what says whether the caller is gone, upon which it should end."""
    gone = False
    watch = asyncio.create_task(_hangs_up(request))

    def is_gone() -> bool:
        return gone or watch.done()

    try:
        return await asyncio.get_running_loop().run_in_executor(pool, compute, is_gone)
    finally:
        gone = True  # also when this task is cancelled: the thread then stops by itself
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


async def _hangs_up(request: Request) -> None:
    """The body has been read: what comes next is that the caller hangs up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
