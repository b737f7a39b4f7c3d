"""`SqlStore`: records in a database. Today SQLite; another dialect brings its own engines, not its own `Tx`.

Writing is one thread's work (`writer.py`), reading is done on connections of its own in worker threads,
and no transaction outlives the call that needed it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.lowlevel import EventLoopToken
from sqlalchemy import Engine

from orchestrator.domain.errors import ChangeoverError, Interrupted
from orchestrator.domain.event import Event
from orchestrator.ports import Tx
from orchestrator.store import sqlite
from orchestrator.store.failures import FOREIGN, failure
from orchestrator.store.listeners import Listeners
from orchestrator.store.migrate import bring_up_to_date
from orchestrator.store.tx import SqlTx
from orchestrator.store.writer import Job, Writer

T = TypeVar("T")


class SqlStore:
    """A `ports.Store` in the SQLite file at `location`: a path, or `sqlite:///` and a path.

    The folder must exist; the file is made, for its owner only. Several processes may share the file, and
    subscribers hear of this store's commits alone. All methods belong to the event loop that opened it.
    """

    def __init__(self, location: str | Path) -> None:
        self._path = _path(location)
        self._listeners = Listeners()
        self._opened: _Opened | None = None
        self._closed = False

    async def open(self) -> None:
        """Raises `ChangeoverError` if the database cannot be opened, is damaged or newer than the program."""
        if self._opened is not None:
            raise RuntimeError("the store is open already")
        token, readers = anyio.lowlevel.current_token(), anyio.CapacityLimiter(sqlite.READERS)
        try:
            self._opened = await anyio.to_thread.run_sync(_Opened, self._path, readers, token, self._deliver)
        except (*FOREIGN, OSError) as error:
            raise failure(error, str(self._path)) from error
        self._closed = False

    async def close(self) -> None:
        """Finishes every work that was handed over, then lets go of the file. Once closed, does nothing."""
        opened, self._opened, self._closed = self._opened, None, True
        if opened is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(opened.end)

    async def write(self, work: Callable[[Tx], T]) -> T:
        """As the port says. From the moment it is called the work counts as begun, cancelled or not."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        job = Job(work)
        self._in_use().writer.put(job)
        await job.done.wait()
        try:
            return job.outcome()
        except FOREIGN as error:
            raise failure(error, str(self._path)) from error

    async def read(self, work: Callable[[Tx], T]) -> T:
        opened = self._in_use()
        try:
            return await anyio.to_thread.run_sync(opened.read, work, limiter=opened.readers)
        except FOREIGN as error:
            raise failure(error, str(self._path)) from error

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        return self._listeners.add(listener)

    def _in_use(self) -> "_Opened":
        if self._opened is None:
            raise Interrupted("the store is closed") if self._closed else RuntimeError("open the store first")
        return self._opened

    def _deliver(self, events: Sequence[Event], jobs: Sequence[Job[Any]]) -> None:
        self._listeners.tell(events)
        for job in jobs:
            job.done.set()


class _Opened:
    """What an open store holds: two engines, the writer's thread and the readers' limit.

    Made and ended in a worker thread: both wait for the disk.
    """

    def __init__(
        self,
        path: Path,
        readers: anyio.CapacityLimiter,
        token: EventLoopToken,
        deliver: Callable[[Sequence[Event], Sequence[Job[Any]]], None],
    ) -> None:
        sqlite.create_private(path)
        bring_up_to_date(path)
        self._writing: Engine = sqlite.writing_engine(path)
        self._reading: Engine = sqlite.reading_engine(path)
        self.readers = readers
        wal = sqlite.Wal(path, self._writing)
        self.writer = Writer(self._writing, token, deliver, wal.watch)

    def read(self, work: Callable[[Tx], T]) -> T:
        with self._reading.begin() as connection:
            return work(SqlTx(connection, writable=False))

    def end(self) -> None:
        self.writer.finish()
        self._reading.dispose()
        self._writing.dispose()


def _path(location: str | Path) -> Path:
    text = str(location)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        raise ChangeoverError(
            f"{text.split('://')[0]} databases are not supported: use sqlite:/// and a path"
        )
    if text in ("", ":memory:"):
        raise ChangeoverError("a SQLite database needs a file; MemoryStore keeps records in memory")
    return Path(text)
