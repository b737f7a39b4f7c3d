"""SQLite: its connections, how a write begins when several processes share the file, and its log's size.

Two engines on one file. The writer's transactions begin with the write lock, because one that began by
reading cannot be upgraded: SQLite refuses that at once, whatever the busy timeout. Readers begin plainly.
"""

import logging
import os
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from orchestrator.store.columns import decode_json, encode_json
from orchestrator.store.failures import is_busy

logger = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long a lock held by another process is waited for before the caller is told."""
READERS = 4
WAL_RESTART_BYTES = 16 * 2**20
"""Above this the writer waits briefly for readers to finish, so that the log can start over."""
WAL_BOUND_BYTES = 64 * 2**20
"""Above this it is said in the log: something holds a read transaction open."""


def create_private(path: Path) -> None:
    """Makes the file, readable by its owner only, unless it is there; SQLite gives its log the same mode.

    A file that is there is not even opened: closing it would drop the locks that SQLite holds on it for
    another store of this process.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return


def writing_engine(path: Path) -> Engine:
    # The write lock is waited for in `_begin_immediate`; this timeout bounds the waiting in `Wal.watch`.
    engine = _engine(path, pool_size=1, timeout_s=0.2)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def migrating_engine(path: Path) -> Engine:
    """As the writer's, without foreign keys: SQLite alters a table by making it anew under its name."""
    engine = writing_engine(path)

    def ignore_foreign_keys(dbapi_connection: sqlite3.Connection, _record: Any) -> None:
        dbapi_connection.execute("PRAGMA foreign_keys = OFF")

    event.listen(engine, "connect", ignore_foreign_keys)
    return engine


def reading_engine(path: Path) -> Engine:
    engine = _engine(path, pool_size=READERS, timeout_s=PATIENCE_S)

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    def forbid_writes(dbapi_connection: sqlite3.Connection, _record: Any) -> None:
        dbapi_connection.execute("PRAGMA query_only = ON")

    event.listen(engine, "begin", begin)
    event.listen(engine, "connect", forbid_writes)
    return engine


def use_wal(path: Path) -> None:
    """Turns on the write-ahead log, which is kept in the file. SQLite does not wait for its lock here."""
    give_up = time.monotonic() + PATIENCE_S
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
    try:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
                time.sleep(random.uniform(0.001, 0.02))  # noqa: S311
    finally:
        connection.close()


class Wal:
    """Keeps the log of the file bounded; called by the writer thread between transactions."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._wal = Path(f"{path}-wal")
        self._engine = engine
        self._act_at = WAL_RESTART_BYTES

    def watch(self) -> None:
        """SQLite's own checkpoints never wait, so readers that overlap all the time let the log grow.

        A reader that stays would cost the wait at each commit, so it is tried again only after more growth.
        """
        size = self._bytes()
        if size < self._act_at:
            self._act_at = max(WAL_RESTART_BYTES, min(self._act_at, size + WAL_RESTART_BYTES))
            return
        self._start_over()
        size = self._bytes()
        self._act_at = size + WAL_RESTART_BYTES
        if size > WAL_BOUND_BYTES:
            logger.warning(
                "%s has %d MiB: a reader holds it open, or a single change was that large",
                self._wal,
                size >> 20,
            )

    def _bytes(self) -> int:
        try:
            return self._wal.stat().st_size
        except FileNotFoundError:
            return 0

    def _start_over(self) -> None:
        connection = self._engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()


def _engine(path: Path, *, pool_size: int, timeout_s: float) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path.absolute())),
        connect_args={"timeout": timeout_s, "check_same_thread": False, "isolation_level": None},
        pool_size=pool_size,
        max_overflow=0,
        json_serializer=encode_json,
        json_deserializer=decode_json,
        hide_parameters=True,
    )
    event.listen(engine, "connect", _prepare)
    return engine


def _prepare(dbapi_connection: sqlite3.Connection, _record: Any) -> None:
    for pragma in ("synchronous = FULL", "foreign_keys = ON", "wal_autocheckpoint = 1000"):
        dbapi_connection.execute(f"PRAGMA {pragma}")
    dbapi_connection.execute(f"PRAGMA journal_size_limit = {WAL_RESTART_BYTES}")


def _begin_immediate(connection: Connection) -> None:
    """Takes the write lock, waiting for other processes in short random steps.

    SQLite's own wait doubles its steps up to 100 ms, which starves a process that others keep overtaking.
    """
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        except OperationalError as error:
            if not is_busy(error) or time.monotonic() > give_up:
                raise
        time.sleep(random.uniform(0.0005, 0.003))  # noqa: S311
