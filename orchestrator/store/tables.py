"""The tables, one for each kind of record. A principal is two columns, its kind and its id.

What the rows mean is said by the structs of `domain`. A change here needs a revision in `migrations/`.
"""

from datetime import datetime
from typing import Any, ClassVar, cast

from sqlalchemy import Index, Table, UniqueConstraint
from sqlmodel import Field, SQLModel

from orchestrator.store.columns import JsonValue, UtcDateTime

_DICT: Any = JsonValue
_TIME: Any = UtcDateTime


class ThreadRow(SQLModel, table=True):
    """`no` is the order of insertion: ids are made by clocks, and clocks go backwards."""

    __tablename__: ClassVar[str] = "threads"  # pyright: ignore[reportIncompatibleVariableOverride]
    __table_args__ = (
        Index("ix_threads_sender", "sender_kind", "sender_id"),
        Index("ix_threads_parent_id", "parent_id"),
        Index("ix_threads_status", "status"),
    )

    no: int | None = Field(default=None, primary_key=True)
    id: str = Field(unique=True)
    origin: str
    sender_kind: str
    sender_id: str
    created_at: datetime = Field(sa_type=_TIME)
    recipient_kind: str | None = None
    recipient_id: str | None = None
    status: str
    outcome: str | None = None
    holder: str | None = None
    attempt: int
    parent_id: str | None = None
    run_id: str | None = None
    runner: str | None = None
    waits: bool
    profile: str | None = None
    model: str | None = None
    working_directory: str | None = None
    accepted_at: datetime | None = Field(default=None, sa_type=_TIME)
    ended_at: datetime | None = Field(default=None, sa_type=_TIME)
    deadline_at: datetime | None = Field(default=None, sa_type=_TIME)
    expires_at: datetime | None = Field(default=None, sa_type=_TIME)
    cancel_reason: str | None = None
    result: str | None = None
    result_facts: dict[str, Any] | None = Field(default=None, sa_type=_DICT)
    intent: str | None = None
    envelope: dict[str, Any] | None = Field(default=None, sa_type=_DICT)
    warnings: list[dict[str, Any]] | None = Field(default=None, sa_type=_DICT)
    collected_at: datetime | None = Field(default=None, sa_type=_TIME)
    version: int


class MessageRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "messages"  # pyright: ignore[reportIncompatibleVariableOverride]

    thread_id: str = Field(primary_key=True, foreign_key="threads.id")
    sequence_no: int = Field(primary_key=True)
    author_kind: str
    author_id: str
    text: str
    created_at: datetime = Field(sa_type=_TIME)
    payload: dict[str, Any] | None = Field(default=None, sa_type=_DICT)


class EventRow(SQLModel, table=True):
    """AUTOINCREMENT: an id that was purged is never given again, or a reader would take new for old."""

    __tablename__: ClassVar[str] = "events"  # pyright: ignore[reportIncompatibleVariableOverride]
    __table_args__ = (
        Index("ix_events_thread_id", "thread_id", "id"),
        Index("ix_events_terminal_id", "terminal_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    type: str
    at: datetime = Field(sa_type=_TIME)
    by_kind: str
    by_id: str
    thread_id: str | None = None
    terminal_id: str | None = None
    data: dict[str, Any] = Field(sa_type=_DICT)


class KeyRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "idempotency_keys"  # pyright: ignore[reportIncompatibleVariableOverride]
    __table_args__ = (Index("ix_idempotency_keys_created_at", "created_at"),)

    principal: str = Field(primary_key=True)
    operation: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    payload_sha256: str
    thread_id: str | None = None
    response: bytes
    created_at: datetime = Field(sa_type=_TIME)


class TerminalRow(SQLModel, table=True):
    """`no` is the order of insertion."""

    __tablename__: ClassVar[str] = "terminals"  # pyright: ignore[reportIncompatibleVariableOverride]
    __table_args__ = (
        Index("ix_terminals_state", "state"),
        Index("ix_terminals_name", "name"),
        Index("ix_terminals_thread_id", "thread_id"),
    )

    no: int | None = Field(default=None, primary_key=True)
    id: str = Field(unique=True)
    profile: str
    driver: str
    instance: str
    working_directory: str
    started_at: datetime = Field(sa_type=_TIME)
    by_kind: str
    by_id: str
    name: str | None = None
    thread_id: str | None = None
    state: str
    boot_id: str | None = None
    pane_id: str | None = None
    pid: int | None = None
    credential_id: str | None = None
    ended_at: datetime | None = Field(default=None, sa_type=_TIME)
    exit: dict[str, Any] | None = Field(default=None, sa_type=_DICT)
    version: int


class DeliveryRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "deliveries"  # pyright: ignore[reportIncompatibleVariableOverride]
    __table_args__ = (UniqueConstraint("terminal_id", "position", name="uq_deliveries_position"),)

    id: str = Field(primary_key=True)
    terminal_id: str = Field(foreign_key="terminals.id")
    by_kind: str
    by_id: str
    created_at: datetime = Field(sa_type=_TIME)
    position: int
    thread_id: str | None = None
    text: str | None = None
    state: str
    reason: str | None = None
    attempts: int
    turn: str | None = None
    typed_at: datetime | None = Field(default=None, sa_type=_TIME)
    delivered_at: datetime | None = Field(default=None, sa_type=_TIME)
    version: int


class CredentialRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "credentials"  # pyright: ignore[reportIncompatibleVariableOverride]

    id: str = Field(primary_key=True)
    hash: str = Field(unique=True)
    scope: str
    principal_kind: str
    principal_id: str
    created_at: datetime = Field(sa_type=_TIME)
    expires_at: datetime | None = Field(default=None, sa_type=_TIME)
    revoked_at: datetime | None = Field(default=None, sa_type=_TIME)
    last_used_at: datetime | None = Field(default=None, sa_type=_TIME)


def _table(model: type[SQLModel]) -> Table:
    return cast("Table", vars(model)["__table__"])


THREADS = _table(ThreadRow)
MESSAGES = _table(MessageRow)
EVENTS = _table(EventRow)
KEYS = _table(KeyRow)
TERMINALS = _table(TerminalRow)
DELIVERIES = _table(DeliveryRow)
CREDENTIALS = _table(CredentialRow)
METADATA = SQLModel.metadata
