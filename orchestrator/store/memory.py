"""`MemoryStore`: the records of one process, for tests and trials. It knows no database.

Works run on the event loop's thread, one at a time because they are synchronous; what a work did is
written down as it goes, so that a work that raises can be undone.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio.lowlevel

from orchestrator.domain.errors import Interrupted
from orchestrator.domain.event import Event
from orchestrator.ports import Tx
from orchestrator.store.listeners import Listeners
from orchestrator.store.memory_tx import MemoryTx, Records
from orchestrator.store.rules import MAX_RUNS, lost

T = TypeVar("T")


class MemoryStore:
    """A `ports.Store` whose records live as long as this object: closed and opened again, they are there."""

    def __init__(self) -> None:
        self._records = Records()
        self._listeners = Listeners()
        self._open: bool | None = None

    async def open(self) -> None:
        if self._open:
            raise RuntimeError("the store is open already")
        self._open = True

    async def close(self) -> None:
        self._open = False

    async def write(self, work: Callable[[Tx], T]) -> T:
        await anyio.lowlevel.checkpoint()
        self._require_open()
        result, events = self._committed(work)
        self._listeners.tell(events)
        return result

    async def read(self, work: Callable[[Tx], T]) -> T:
        await anyio.lowlevel.checkpoint()
        self._require_open()
        return work(MemoryTx(self._records, writable=False))

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        return self._listeners.add(listener)

    def _require_open(self) -> None:
        if not self._open:
            raise (
                RuntimeError("open the store first")
                if self._open is None
                else Interrupted("the store is closed")
            )

    def _committed(self, work: Callable[[Tx], T]) -> tuple[T, list[Event]]:
        stale = ""
        for _ in range(MAX_RUNS):
            tx = MemoryTx(self._records, writable=True)
            try:
                result = work(tx)
            except BaseException as error:
                tx.undo()
                if tx.stale is None:
                    raise
                if not isinstance(error, Exception):
                    raise
            else:
                if tx.stale is None:
                    return result, tx.appended
                tx.undo()
            stale = tx.stale
        raise lost(stale)
