"""One transaction's view of a SQL database: `ports.Tx` in Core statements, the same for every dialect.

It runs on a connection whose transaction somebody else begins and ends; it knows neither threads nor files.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection
from sqlalchemy.sql.elements import CompilerElement

from orchestrator.domain.errors import NotFound, TerminalNotFound, ThreadNotFound
from orchestrator.domain.event import Event, NewEvent
from orchestrator.domain.identity import Credential, Principal
from orchestrator.domain.terminal import Delivery, Terminal
from orchestrator.domain.thread import Message, Status, Thread
from orchestrator.ports import KeyRecord
from orchestrator.store import statements as st
from orchestrator.store.failures import names_missing_row
from orchestrator.store.prepared import prepared, reader
from orchestrator.store.rows import EVENT_ROWS, KEY_ROWS, MESSAGE_ROWS, NEW_EVENT_ROWS, Rows
from orchestrator.store.rules import (
    ReadOnly,
    Stale,
    numbered,
    plain,
    require_storable,
    require_successor,
    require_text,
    taken,
)

S = TypeVar("S", bound=msgspec.Struct)


class SqlTx:
    """`appended` are the events of the work. `stale` says that a version had moved on: run the work again."""

    def __init__(self, connection: Connection, *, writable: bool) -> None:
        self._dialect = connection.dialect
        self._integrity_error = connection.dialect.loaded_dbapi.IntegrityError
        self._cursor = connection.connection.cursor()
        self._writable = writable
        self.appended: list[Event] = []
        self.stale: str | None = None

    # threads, messages, events

    def insert_thread(self, thread: Thread) -> None:
        self._insert(st.THREAD, thread, thread.id)

    def thread(self, thread_id: str) -> Thread | None:
        return self._by_id(st.THREAD, thread_id)

    def replace_thread(self, old: Thread, new: Thread) -> None:
        self._replace(st.THREAD, old, new)

    def threads(
        self,
        *,
        statuses: Sequence[Status] | None = None,
        sender: Principal | None = None,
        parent_id: str | None = None,
        runner: str | None = None,
        uncollected: bool = False,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Thread]:
        require_text((sender, parent_id, runner, before))
        query = st.select_threads(statuses, sender, parent_id, runner, uncollected, before)
        return self._all(st.THREAD.rows, query.limit(limit))

    def append_message(self, message: Message) -> Message:
        values = self._values(MESSAGE_ROWS, message)
        del values["sequence_no"]
        values["b_thread_id"] = message.thread_id
        try:
            number = self._number(st.APPEND_MESSAGE, values)
        except self._integrity_error as error:
            if names_missing_row(error):
                raise ThreadNotFound(f"there is no thread {message.thread_id}") from None
            raise
        return msgspec.structs.replace(message, sequence_no=number, payload=plain(message.payload))

    def messages(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Message]:
        require_text(thread_id)
        values = {"b_thread_id": thread_id, "b_after": after, "b_limit": limit}
        return self._all(MESSAGE_ROWS, st.MESSAGES_AFTER, values)

    def append_event(self, event: NewEvent) -> Event:
        id_ = self._number(st.APPEND_EVENT, self._values(NEW_EVENT_ROWS, event))
        stored = numbered(event, id_)
        self.appended.append(stored)
        return stored

    def events(
        self,
        *,
        after: int = 0,
        thread_id: str | None = None,
        terminal_id: str | None = None,
        limit: int = 1000,
    ) -> list[Event]:
        require_text((thread_id, terminal_id))
        query = st.select_events(thread_id is not None, terminal_id is not None)
        values = _present(b_thread_id=thread_id, b_terminal_id=terminal_id)
        return self._all(EVENT_ROWS, query, {**values, "b_after": after, "b_limit": limit})

    def purge_events(self, before: datetime) -> int:
        """Only the oldest go, up to the first that is young enough, so that what is left has no holes."""
        return self._change(st.PURGE_EVENTS, {"b_before": before})

    # idempotency keys

    def key(self, principal: str, operation: str, key: str) -> KeyRecord | None:
        require_text((principal, operation, key))
        values = {"b_principal": principal, "b_operation": operation, "b_key": key}
        return self._one(KEY_ROWS, st.KEY, values)

    def insert_key(self, record: KeyRecord) -> None:
        try:
            self._change(st.INSERT_KEY, self._values(KEY_ROWS, record))
        except self._integrity_error:
            raise taken("idempotency key", record.key) from None

    def purge_keys(self, before: datetime) -> int:
        return self._change(st.PURGE_KEYS, {"b_before": before})

    # terminals and deliveries

    def insert_terminal(self, terminal: Terminal) -> None:
        self._insert(st.TERMINAL, terminal, terminal.id)

    def terminal(self, terminal_id: str) -> Terminal | None:
        return self._by_id(st.TERMINAL, terminal_id)

    def replace_terminal(self, old: Terminal, new: Terminal) -> None:
        self._replace(st.TERMINAL, old, new)

    def terminals(
        self,
        *,
        instance: str | None = None,
        living: bool = False,
        name: str | None = None,
        thread_id: str | None = None,
        limit: int = 1000,
    ) -> list[Terminal]:
        require_text((instance, name, thread_id))
        query = st.select_terminals(instance is not None, living, name is not None, thread_id is not None)
        values = _present(b_instance=instance, b_name=name, b_thread_id=thread_id)
        return self._all(st.TERMINAL.rows, query, {**values, "b_limit": limit})

    def insert_delivery(self, delivery: Delivery) -> Delivery:
        values = self._values(st.DELIVERY.rows, delivery)
        del values["position"]
        values["b_terminal_id"] = delivery.terminal_id
        try:
            position = self._number(st.INSERT_DELIVERY, values)
        except self._integrity_error as error:
            if names_missing_row(error):
                raise TerminalNotFound(f"there is no terminal {delivery.terminal_id}") from None
            raise taken("delivery", delivery.id) from None
        return msgspec.structs.replace(delivery, position=position)

    def delivery(self, delivery_id: str) -> Delivery | None:
        return self._by_id(st.DELIVERY, delivery_id)

    def replace_delivery(self, old: Delivery, new: Delivery) -> None:
        self._replace(st.DELIVERY, old, new)

    def deliveries(self, terminal_id: str, *, unsettled: bool = False) -> list[Delivery]:
        require_text(terminal_id)
        query = st.UNSETTLED_OF if unsettled else st.DELIVERIES_OF
        return self._all(st.DELIVERY.rows, query, {"b_terminal_id": terminal_id})

    # credentials

    def insert_credential(self, credential: Credential) -> None:
        self._insert(st.CREDENTIAL, credential, credential.id)

    def credential_by_hash(self, token_hash: str) -> Credential | None:
        require_text(token_hash)
        return self._one(st.CREDENTIAL.rows, st.CREDENTIAL_BY_HASH, {"b_hash": token_hash})

    def credential(self, credential_id: str) -> Credential | None:
        return self._by_id(st.CREDENTIAL, credential_id)

    def replace_credential(self, credential: Credential) -> None:
        values = self._values(st.CREDENTIAL.rows, credential)
        if not self._change(st.CREDENTIAL.replace, values | {"b_id": credential.id}):
            raise NotFound(f"there is no credential {credential.id}")

    # how they are run

    def _insert(self, kind: st.Kind[Any], record: msgspec.Struct, id_: str) -> None:
        try:
            self._change(kind.insert, self._values(kind.rows, record))
        except self._integrity_error:
            raise taken(kind.name, id_) from None

    def _replace(self, kind: st.Kind[S], old: Any, new: Any) -> None:
        require_successor(old, new)
        marks = {"b_id": old.id, "b_version": old.version}
        if not self._change(kind.replace, self._values(kind.rows, new) | marks):
            self.stale = f"the {kind.name} {old.id}"
            raise Stale(self.stale)

    def _by_id(self, kind: st.Kind[S], id_: str) -> S | None:
        require_text(id_)
        return self._one(kind.rows, kind.by_id, {"b_id": id_})

    def _one(self, rows: Rows[S], query: CompilerElement, values: Mapping[str, Any]) -> S | None:
        return next(iter(self._all(rows, query, values)), None)

    def _all(self, rows: Rows[S], query: CompilerElement, values: Mapping[str, Any] | None = None) -> list[S]:
        self._run(query, values or {})
        read = reader(rows.columns, self._dialect)
        # All of it: a statement that is not read to its end would hold the transaction open.
        return [rows.record(read.row(row)) for row in self._cursor.fetchall()]

    def _values(self, rows: Rows[Any], record: msgspec.Struct) -> dict[str, Any]:
        require_storable(record)
        return rows.values(record)

    def _number(self, statement: CompilerElement, values: Mapping[str, Any]) -> int:
        """Inserts and returns the number that the database gave."""
        self._change(statement, values)
        [(number,)] = self._cursor.fetchall()
        return number

    def _change(self, statement: CompilerElement, values: Mapping[str, Any]) -> int:
        """How many rows it changed."""
        if not self._writable:
            raise ReadOnly("a work given to read() may not write")
        self._run(statement, values)
        return self._cursor.rowcount

    def _run(self, statement: CompilerElement, values: Mapping[str, Any]) -> None:
        found = prepared(statement, self._dialect, tuple(values))
        self._cursor.execute(found.text, found.bind(values))


def _present(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
