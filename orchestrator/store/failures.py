"""Where the database's own exceptions end: what each means, as an error that names the database."""

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from orchestrator.domain.errors import ChangeoverError

FOREIGN = (SQLAlchemyError, sqlite3.Error)
"""Whatever the database and its libraries raise."""

_MEANINGS = {
    "SQLITE_NOTADB": "is not a SQLite database: name another file or move this one away",
    "SQLITE_CORRUPT": "is damaged: restore a backup, or move it away to start afresh",
    "SQLITE_CANTOPEN": "cannot be opened: its folder must exist and both must be readable and writable",
    "SQLITE_READONLY": "cannot be written: check its owner and permissions, and those of its folder",
    "SQLITE_PERM": "cannot be opened: check its owner and permissions",
    "SQLITE_FULL": "cannot grow: the disk is full",
    "SQLITE_IOERR": "cannot be read or written: the disk reports an error",
    "SQLITE_BUSY": "stayed locked by another process for too long",
    "SQLITE_LOCKED": "stayed locked by another process for too long",
}


def failure(error: Exception, database: str) -> ChangeoverError:
    """Says what `error` means without its SQL or parameters, which may hold what people wrote."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    meaning = _MEANINGS.get(_primary(cause), f"failed: {cause}")
    if isinstance(error, DBAPIError) and not isinstance(cause, sqlite3.Error):
        meaning = "failed"
    return ChangeoverError(f"the database {database} {meaning}", database=database)


def is_busy(error: DBAPIError) -> bool:
    return _primary(error.orig) in ("SQLITE_BUSY", "SQLITE_LOCKED")


def names_missing_row(error: Exception) -> bool:
    """Whether the driver's integrity error is about a foreign key, as opposed to a unique constraint."""
    return "FOREIGN KEY" in str(error).upper()


def _primary(error: BaseException | None) -> str:
    """SQLite's extended names begin with the primary one: SQLITE_IOERR_WRITE is an SQLITE_IOERR."""
    name = str(getattr(error, "sqlite_errorname", ""))
    return "_".join(name.split("_")[:2])
