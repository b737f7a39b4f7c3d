"""Brings a database to the revision this program knows, or refuses it. The revisions are in `migrations/`.

All of it happens in one transaction that holds the write lock: of several processes that start at once the
first migrates and the others find it done, and a kill at any point leaves the database as it was.
"""

import sqlite3
import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from orchestrator.domain.errors import ChangeoverError
from orchestrator.store import sqlite

_alembic_is_global = threading.Lock()


def bring_up_to_date(path: Path) -> None:
    """Raises `ChangeoverError`, having touched nothing, if it is newer than this program or not its own."""
    config = _config()
    with _alembic_is_global:
        script = ScriptDirectory.from_config(config)
        _require_known(_peek(path), script, path)
        sqlite.use_wal(path)
        engine = sqlite.migrating_engine(path)
        try:
            with engine.begin() as connection:
                revision = _revision(connection)
                _require_known(revision, script, path)
                if revision != script.get_current_head():
                    _upgrade(connection, config, path)
        finally:
            engine.dispose()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "orchestrator.store:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: Connection, config: Config, path: Path) -> None:
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
        raise ChangeoverError(f"the database {path} could not be upgraded: rows would point to missing ones")


def _peek(path: Path) -> str | None:
    """The revision, read without changing the file.

    One who may write folds a log that a kill left behind into the file; one who may not leaves an empty log
    where there was none.
    """
    mode = "ro" if Path(f"{path}-wal").exists() else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=sqlite.PATIENCE_S, isolation_level=None
    )
    try:
        tables = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if "alembic_version" in tables:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return None if row is None else str(row[0])
    finally:
        connection.close()
    if tables:
        raise ChangeoverError(
            f"the database {path} is another program's (it has a table {min(tables)}): name another file",
            database=str(path),
        )
    return None


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def _require_known(revision: str | None, script: ScriptDirectory, path: Path) -> None:
    known = {each.revision for each in script.walk_revisions()}
    if revision is not None and revision not in known:
        raise ChangeoverError(
            f"the database {path} was made by a newer version of the program (revision {revision}, newest"
            f" known here {script.get_current_head()}): start that version, or restore a backup from before",
            database=str(path),
            revision=revision,
        )
