"""One file, several processes, kills, upgrades: what only the SQLite store has to stand."""

import json
import logging
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

from orchestrator.domain.errors import ChangeoverError, StateChanged
from orchestrator.domain.thread import Actor, Move, advance
from orchestrator.ports import Tx
from orchestrator.store import SqlStore
from orchestrator.store.sqlite import WAL_BOUND_BYTES, WAL_RESTART_BYTES, writing_engine
from orchestrator.store.tables import METADATA

pytestmark = pytest.mark.anyio

PROCESSES = 3
WRITERS_EACH = 10
SHARING_SECONDS = 2
SLOWEST_S = 2.0
ACKNOWLEDGED_BEFORE_THE_KILL = 200
STARTING_AT_ONCE = 4
LARGE_TEXT = "x" * 2_000_000
LARGE_TEXTS = 38


def run(command: str, *arguments: object) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("processes.py")
    return subprocess.Popen(
        [sys.executable, str(script), command, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def go(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Lets processes that wait for a line begin together, and returns what each printed."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=60)[0] for process in processes]


def query(database: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def content(database: Path) -> bytes:
    return database.read_bytes()


def overwrite(database: Path, offset: int, content: bytes) -> None:
    database.touch()
    with database.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def wal_bytes(database: Path) -> int:
    wal = Path(f"{database}-wal")
    return wal.stat().st_size if wal.exists() else 0


async def test_whatever_was_acknowledged_survives_a_kill(database: Path) -> None:
    writer = run("acknowledge", database)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip() for _ in range(ACKNOWLEDGED_BEFORE_THE_KILL)]
    writer.kill()
    # A line that the kill cut short acknowledges nothing.
    acknowledged += [line.strip() for line in writer.stdout if line.endswith("\n")]
    writer.communicate()
    store = SqlStore(database)
    await store.open()
    for id_ in acknowledged:
        found = await store.read(lambda tx, id_=id_: (tx.thread(id_), tx.messages(id_)))
        assert found[0] is not None
        assert len(found[1]) == 1
    await store.close()
    assert query(database, "PRAGMA integrity_check") == [("ok",)]
    assert query(
        database,
        "SELECT count(*) FROM threads t WHERE NOT EXISTS (SELECT 1 FROM messages WHERE thread_id = t.id)",
    ) == [(0,)]


@pytest.mark.promise("F1")
async def test_processes_that_write_to_one_file_never_meet_its_lock_and_lose_nothing(database: Path) -> None:
    writers = [run("share", database, f"p{n}", WRITERS_EACH, SHARING_SECONDS) for n in range(PROCESSES)]
    reader = SqlStore(database)
    await reader.open()
    printed: list[str] = []
    pages = 0

    async def collect() -> None:
        printed.extend(await anyio.to_thread.run_sync(go, writers))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(collect)
        while not printed:
            before: str | None = None
            while page := await reader.read(lambda tx, before=before: tx.threads(before=before, limit=50)):
                before = page[-1].id
                pages += 1
                if printed:
                    break
    await reader.close()
    seen = [json.loads(each) for each in printed]
    assert [each["errors"] for each in seen] == [[]] * PROCESSES
    assert pages > 0
    assert query(database, "SELECT count(*) FROM threads WHERE id != 'shared'") == [
        (sum(each["threads"] for each in seen),)
    ]
    assert query(database, "SELECT count(*) FROM threads WHERE status = 'accepted'") == [
        (sum(each["changes"] for each in seen),)
    ]
    posted = sum(each["messages"] for each in seen)
    assert query(database, "SELECT count(*), max(sequence_no) FROM messages") == [(posted, posted)]
    assert query(database, "SELECT count(*), max(id) FROM events") == [(posted, posted)]
    assert all(each["messages"] for each in seen), "a process was starved"
    assert max(each["slowest_s"] for each in seen) < SLOWEST_S


async def test_a_write_waits_for_a_lock_that_another_holds(sql: SqlStore, database: Path, make: Any) -> None:
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    done: list[str] = []

    async def write() -> None:
        await sql.write(lambda tx: tx.insert_thread(make.thread()))
        done.append("written")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for _ in range(20):
            assert await sql.read(lambda tx: tx.threads()) == []
        assert done == []
        holder.execute("ROLLBACK")
        holder.close()
    assert done == ["written"]


async def test_two_stores_on_one_file_let_one_session_accept(
    sql: SqlStore, database: Path, make: Any
) -> None:
    other = SqlStore(database)
    await other.open()
    await sql.write(lambda tx: tx.insert_thread(make.thread()))
    outcomes: list[str] = []

    async def accept(store: SqlStore, session: str) -> None:
        def work(tx: Tx) -> None:
            old = tx.thread("t1")
            assert old is not None
            actor = Actor(principal=make.bob, session=session)
            tx.replace_thread(old, advance(old, Move.ACCEPT, actor, make.now))

        try:
            await store.write(work)
            outcomes.append("won")
        except StateChanged:
            outcomes.append("lost")

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(accept, (sql, other)[n % 2], f"s{n}")
    await other.close()
    assert sorted(outcomes) == ["lost"] * 19 + ["won"]


async def test_the_log_stays_small_while_readers_overlap(sql: SqlStore, database: Path, make: Any) -> None:
    await sql.write(lambda tx: tx.insert_thread(make.thread()))
    largest = 0
    written = anyio.Event()

    async def keep_reading() -> None:
        while not written.is_set():
            await sql.read(lambda tx: tx.messages("t1", limit=3))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(keep_reading)
        for _ in range(LARGE_TEXTS):
            await sql.write(lambda tx: tx.append_message(make.message(text=LARGE_TEXT)))
            largest = max(largest, wal_bytes(database))
        written.set()
    assert largest < WAL_BOUND_BYTES


async def test_a_reader_of_another_program_that_stays_is_warned_of_and_the_log_shrinks_when_it_ends(
    sql: SqlStore, database: Path, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await sql.write(lambda tx: tx.insert_thread(make.thread()))
    reader = sqlite3.connect(database, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM threads").fetchall()
    with caplog.at_level(logging.WARNING, logger="orchestrator.store"):
        for _ in range(LARGE_TEXTS):
            await sql.write(lambda tx: tx.append_message(make.message(text=LARGE_TEXT)))
    assert any("a reader holds it open" in record.message for record in caplog.records)
    reader.close()
    for _ in range(3):
        await sql.write(lambda tx: tx.append_message(make.message()))
    assert wal_bytes(database) <= WAL_RESTART_BYTES


async def test_processes_that_start_at_once_on_a_new_file_all_come_up_and_migrate_once(
    database: Path,
) -> None:
    processes = [run("start", database, f"p{n}") for n in range(STARTING_AT_ONCE)]
    go(processes)
    assert [process.returncode for process in processes] == [0] * STARTING_AT_ONCE
    assert query(database, "SELECT id FROM threads ORDER BY id") == [
        (f"p{n}",) for n in range(STARTING_AT_ONCE)
    ]
    assert len(query(database, "SELECT * FROM alembic_version")) == 1


async def test_a_kill_at_any_statement_of_a_migration_leaves_nothing_half_done(
    database: Path, make: Any
) -> None:
    (killed,) = go([run("die_migrating", database)])
    assert int(killed) > len(METADATA.tables)
    store = SqlStore(database)
    await store.open()
    await store.write(lambda tx: tx.insert_thread(make.thread()))
    assert await store.read(lambda tx: tx.thread("t1")) == make.thread()
    await store.close()


async def test_the_migrations_make_the_tables_that_the_program_uses(sql: SqlStore, database: Path) -> None:
    engine = create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


async def test_a_database_newer_than_the_program_is_refused_and_untouched(database: Path) -> None:
    store = SqlStore(database)
    await store.open()
    await store.close()
    newer = sqlite3.connect(database)
    newer.execute("UPDATE alembic_version SET version_num = 'from the future'")
    newer.commit()
    newer.close()
    before = content(database)
    with pytest.raises(ChangeoverError, match=r"store\.db was made by a newer version .*from the future"):
        await store.open()
    assert content(database) == before
    assert modes(database.parent) == {"store.db": 0o600}


async def test_a_database_of_another_program_is_refused_and_untouched(database: Path) -> None:
    query(database, "CREATE TABLE recipes (name)")
    before = content(database)
    with pytest.raises(ChangeoverError, match=r"store\.db is another program's .*recipes"):
        await SqlStore(database).open()
    assert content(database) == before


async def test_a_file_that_is_no_database_is_named_in_the_error(database: Path) -> None:
    overwrite(database, 0, b"Dear diary, " * 1000)
    before = content(database)
    with pytest.raises(ChangeoverError, match=r"store\.db is not a SQLite database"):
        await SqlStore(database).open()
    assert content(database) == before


async def test_a_damaged_database_is_named_in_the_error(database: Path, make: Any) -> None:
    store = SqlStore(database)
    await store.open()
    await store.write(lambda tx: tx.insert_thread(make.thread()))
    await store.close()
    overwrite(database, 4096, b"\xff" * (len(content(database)) - 4096))

    async def use() -> None:
        await store.open()
        await store.read(lambda tx: tx.thread("t1"))

    with pytest.raises(ChangeoverError, match=r"store\.db is damaged"):
        await use()
    await store.close()


@pytest.mark.parametrize("where", ["missing/store.db", "."])
async def test_a_place_where_no_file_can_be_made_is_named_in_the_error(tmp_path: Path, where: str) -> None:
    with pytest.raises(ChangeoverError, match=str(tmp_path)):
        await SqlStore(tmp_path / where).open()


@pytest.mark.parametrize("location", ["postgresql://host/db", ":memory:", "sqlite:///", ""])
def test_a_location_that_is_no_file_is_refused_when_it_is_named(location: str) -> None:
    with pytest.raises(ChangeoverError):
        SqlStore(location)


async def test_only_the_owner_can_read_the_files(tmp_path: Path, make: Any) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    await store.open()
    await store.write(lambda tx: tx.insert_thread(make.thread()))
    assert modes(tmp_path) == {"store.db": 0o600, "store.db-shm": 0o600, "store.db-wal": 0o600}
    await store.close()
    assert modes(tmp_path) == {"store.db": 0o600}


@pytest.mark.usefixtures("sql")
async def test_commits_go_to_the_write_ahead_log_and_are_flushed_to_the_disk(database: Path) -> None:
    engine = writing_engine(database)
    with engine.connect() as connection:
        names = ("journal_mode", "synchronous", "foreign_keys")
        assert [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names] == ["wal", 2, 1]
    engine.dispose()


async def test_an_error_of_the_database_itself_reaches_the_caller_as_one_of_ours(
    sql: SqlStore, database: Path, make: Any
) -> None:
    query(database, "DROP TABLE messages")
    await sql.write(lambda tx: tx.insert_thread(make.thread()))
    with pytest.raises(ChangeoverError, match=r"store\.db failed: no such table") as failed:
        await sql.write(lambda tx: tx.append_message(make.message(text="a secret")))
    assert "secret" not in str(failed.value)
    with pytest.raises(ChangeoverError, match="no such table"):
        await sql.read(lambda tx: tx.messages("t1"))
    await sql.write(lambda tx: tx.insert_thread(make.thread("t2")))
