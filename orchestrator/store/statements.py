"""The statements, built once: building one costs more than running it. All are Core, for any dialect."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Select, bindparam, delete, false, func, insert, or_, select, update

from orchestrator.domain.identity import Principal
from orchestrator.domain.terminal import DeliveryState, TerminalState
from orchestrator.domain.thread import Status
from orchestrator.store.rows import (
    CREDENTIAL_ROWS,
    DELIVERY_ROWS,
    EVENT_ROWS,
    KEY_ROWS,
    MESSAGE_ROWS,
    TERMINAL_ROWS,
    THREAD_ROWS,
    Rows,
)
from orchestrator.store.tables import DELIVERIES, EVENTS, KEYS, MESSAGES, TERMINALS, THREADS

S = TypeVar("S", bound=msgspec.Struct)


class Kind(Generic[S]):
    """What is done with any record that has an id."""

    def __init__(self, name: str, rows: Rows[S]) -> None:
        table = rows.table
        self.name = name
        self.rows = rows
        self.insert = insert(table)
        self.by_id = select(*rows.columns).where(table.c.id == bindparam("b_id"))
        self.replace = update(table).where(table.c.id == bindparam("b_id"))
        if "version" in table.c:
            self.replace = self.replace.where(table.c.version == bindparam("b_version"))


THREAD = Kind("thread", THREAD_ROWS)
TERMINAL = Kind("terminal", TERMINAL_ROWS)
DELIVERY = Kind("delivery", DELIVERY_ROWS)
CREDENTIAL = Kind("credential", CREDENTIAL_ROWS)

CREDENTIAL_BY_HASH = select(*CREDENTIAL_ROWS.columns).where(
    CREDENTIAL_ROWS.table.c.hash == bindparam("b_hash")
)

_numbered = MESSAGES.alias()
APPEND_MESSAGE = (
    insert(MESSAGES)
    .values(
        sequence_no=select(func.coalesce(func.max(_numbered.c.sequence_no), 0) + 1)
        .where(_numbered.c.thread_id == bindparam("b_thread_id"))
        .scalar_subquery()
    )
    .returning(MESSAGES.c.sequence_no)
)
MESSAGES_AFTER = (
    select(*MESSAGE_ROWS.columns)
    .where(MESSAGES.c.thread_id == bindparam("b_thread_id"), MESSAGES.c.sequence_no > bindparam("b_after"))
    .order_by(MESSAGES.c.sequence_no)
    .limit(bindparam("b_limit"))
)

_placed = DELIVERIES.alias()
INSERT_DELIVERY = (
    insert(DELIVERIES)
    .values(
        position=select(func.coalesce(func.max(_placed.c.position), 0) + 1)
        .where(_placed.c.terminal_id == bindparam("b_terminal_id"))
        .scalar_subquery()
    )
    .returning(DELIVERIES.c.position)
)
DELIVERIES_OF = (
    select(*DELIVERY_ROWS.columns)
    .where(DELIVERIES.c.terminal_id == bindparam("b_terminal_id"))
    .order_by(DELIVERIES.c.position)
)
UNSETTLED_OF = DELIVERIES_OF.where(
    or_(*(DELIVERIES.c.state == state.value for state in (DeliveryState.QUEUED, DeliveryState.TYPING)))
)

APPEND_EVENT = insert(EVENTS).returning(EVENTS.c.id)
_recent = EVENTS.alias()
PURGE_EVENTS = delete(EVENTS).where(
    EVENTS.c.at < bindparam("b_before"),
    EVENTS.c.id
    < func.coalesce(
        select(func.min(_recent.c.id)).where(_recent.c.at >= bindparam("b_before")).scalar_subquery(),
        EVENTS.c.id + 1,
    ),
)

INSERT_KEY = insert(KEYS)
KEY = select(*KEY_ROWS.columns).where(
    KEYS.c.principal == bindparam("b_principal"),
    KEYS.c.operation == bindparam("b_operation"),
    KEYS.c.key == bindparam("b_key"),
)
PURGE_KEYS = delete(KEYS).where(KEYS.c.created_at < bindparam("b_before"))


def select_threads(
    statuses: Sequence[Status] | None,
    sender: Principal | None,
    parent_id: str | None,
    runner: str | None,
    uncollected: bool,
    before: str | None,
) -> Select[Any]:
    c = THREADS.c
    wanted: list[ColumnElement[bool]] = []
    if statuses is not None:
        wanted.append(or_(false(), *(c.status == status.value for status in statuses)))
    if sender is not None:
        wanted += [c.sender_kind == sender.kind.value, c.sender_id == sender.id]
    if parent_id is not None:
        wanted.append(c.parent_id == parent_id)
    if runner is not None:
        wanted.append(c.runner == runner)
    if uncollected:
        wanted.append(c.collected_at.is_(None))
    if before is not None:
        mark = THREADS.alias()
        wanted.append(c.no < select(mark.c.no).where(mark.c.id == before).scalar_subquery())
    return select(*THREAD_ROWS.columns).where(*wanted).order_by(c.no.desc())


@cache
def select_terminals(instance: bool, living: bool, name: bool, thread_id: bool) -> Select[Any]:
    """What is true is looked for, by values given when it runs."""
    c = TERMINALS.c
    wanted: list[ColumnElement[bool]] = []
    if instance:
        wanted.append(c.instance == bindparam("b_instance"))
    if living:
        wanted.append(c.state != TerminalState.ENDED.value)
    if name:
        wanted.append(c.name == bindparam("b_name"))
    if thread_id:
        wanted.append(c.thread_id == bindparam("b_thread_id"))
    found = select(*TERMINAL_ROWS.columns).where(*wanted).order_by(c.no.desc())
    return found.limit(bindparam("b_limit"))


@cache
def select_events(thread_id: bool, terminal_id: bool) -> Select[Any]:
    c = EVENTS.c
    wanted: list[ColumnElement[bool]] = [c.id > bindparam("b_after")]
    if thread_id:
        wanted.append(c.thread_id == bindparam("b_thread_id"))
    if terminal_id:
        wanted.append(c.terminal_id == bindparam("b_terminal_id"))
    return select(*EVENT_ROWS.columns).where(*wanted).order_by(c.id).limit(bindparam("b_limit"))
