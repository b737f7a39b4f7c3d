"""Work that a caller who goes away must not cut in two: what is stored has to be set going."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def unbroken(work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, which runs to its end even if the caller is cancelled meanwhile."""
    done: list[T] = []
    with anyio.CancelScope(shield=True):
        done.append(await work())
    return done[0]
