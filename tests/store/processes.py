"""Other processes that use a store's file; run by the tests as `python processes.py COMMAND PATH …`."""

import functools
import json
import os
import signal
import sqlite3
import sys
import time
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
from sqlalchemy import Engine, event

from orchestrator.domain.event import EventType, NewEvent
from orchestrator.domain.identity import SERVICE
from orchestrator.domain.thread import Message, Origin, Status, Thread
from orchestrator.ports import Tx
from orchestrator.store import SqlStore

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SHARED = "shared"


def thread(id_: str) -> Thread:
    return Thread(id=id_, origin=Origin.RELAY, sender=SERVICE, created_at=NOW)


def message(thread_id: str) -> Message:
    return Message(thread_id=thread_id, sequence_no=0, author=SERVICE, text="x" * 200, created_at=NOW)


async def acknowledge(path: str) -> None:
    """Writes for ever and prints the id of each thread once its write has returned."""
    store = SqlStore(path)
    await store.open()

    async def keep_writing(writer: int) -> None:
        n = 0
        while True:
            n += 1
            await store.write(functools.partial(create, f"t{writer}.{n}"))
            os.write(1, f"t{writer}.{n}\n".encode())

    def create(id_: str, tx: Tx) -> None:
        tx.insert_thread(thread(id_))
        tx.append_message(message(id_))

    async with anyio.create_task_group() as tasks:
        for writer in range(8):
            tasks.start_soon(keep_writing, writer)


async def share(path: str, name: str, writers: str, seconds: str) -> None:
    """Opens once a line is read, makes every kind of write for a while, and prints what was acknowledged."""
    sys.stdin.readline()
    store = SqlStore(path)
    await store.open()
    seen: dict[str, Any] = {"messages": 0, "threads": 0, "changes": 0, "errors": [], "slowest_s": 0.0}
    until = time.monotonic() + float(seconds)
    async with anyio.create_task_group() as tasks:
        for writer in range(int(writers)):
            tasks.start_soon(_use, store, f"{name}.{writer}", until, seen)
    await store.close()
    print(json.dumps(seen))


async def _use(store: SqlStore, name: str, until: float, seen: dict[str, Any]) -> None:
    n = 0
    while time.monotonic() < until:
        n += 1
        id_ = f"{name}.{n}"
        works = {
            "threads": lambda tx, id_=id_: tx.insert_thread(thread(id_)),
            "messages": functools.partial(_post, SHARED),
            "changes": functools.partial(_accept, id_),
        }
        for kind, work in works.items():
            began = time.monotonic()
            try:
                await store.write(work)
                seen[kind] += 1
            except Exception as error:  # reported to the test, which wants none
                seen["errors"].append(repr(error))
            seen["slowest_s"] = max(seen["slowest_s"], time.monotonic() - began)


def _post(thread_id: str, tx: Tx) -> None:
    if tx.thread(thread_id) is None:
        tx.insert_thread(thread(thread_id))
    tx.append_message(message(thread_id))
    tx.append_event(NewEvent(type=EventType.MESSAGE, at=NOW, by=SERVICE, thread_id=thread_id))


def _accept(thread_id: str, tx: Tx) -> None:
    old = tx.thread(thread_id)
    assert old is not None
    tx.replace_thread(old, msgspec.structs.replace(old, status=Status.ACCEPTED, version=old.version + 1))


async def start(path: str, name: str) -> None:
    """Opens the store once a line is read and leaves a thread in it."""
    sys.stdin.readline()
    store = SqlStore(path)
    await store.open()
    await store.write(lambda tx: tx.insert_thread(thread(name)))
    await store.close()


def die_migrating(path: str) -> None:
    """Has a child killed at the first statement of the migration, the next at the second, until one gets by.

    Prints how many were killed. All use one file, so each meets what the one before has left.
    """
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            _open_and_die_at(path, killed + 1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            print(killed if status == 0 else f"failed after {killed}")
            return
        tables = sqlite3.connect(path).execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables:
            print(f"{tables} tables were left by a kill at statement {killed + 1}")
            return
        killed += 1


def _open_and_die_at(path: str, fatal: int) -> None:
    count = 0

    def before(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        nonlocal count
        if statement.lstrip().startswith(
            ("CREATE", "INSERT", "UPDATE", "ALTER", "DROP", "PRAGMA foreign_key_check")
        ):
            count += 1
            if count == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", before)
    try:
        store = SqlStore(path)
        anyio.run(store.open)
        anyio.run(store.close)
        os._exit(0)
    finally:
        os._exit(1)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "die_migrating":
        die_migrating(*arguments)
    else:
        anyio.run({"acknowledge": acknowledge, "share": share, "start": start}[command], *arguments)
