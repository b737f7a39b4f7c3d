"""Between records and rows; knows the records' shapes and no database."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import Column, Table

from orchestrator.domain.event import Event, NewEvent
from orchestrator.domain.identity import Credential, Principal
from orchestrator.domain.terminal import Delivery, Terminal
from orchestrator.domain.thread import Message, Thread
from orchestrator.ports import KeyRecord
from orchestrator.store.tables import CREDENTIALS, DELIVERIES, EVENTS, KEYS, MESSAGES, TERMINALS, THREADS

S = TypeVar("S", bound=msgspec.Struct)

_NATIVE = (datetime, bytes)


class Rows(Generic[S]):
    """How one kind of record lies in its table: field by field, and a principal in two columns."""

    def __init__(self, struct: type[S], table: Table) -> None:
        self.table = table
        self._struct = struct
        fields = msgspec.structs.fields(struct)
        self._principals = tuple(f.name for f in fields if f.type in (Principal, Principal | None))
        names = [f.name for f in fields if f.name not in self._principals]
        names += [f"{name}_{part}" for name in self._principals for part in ("kind", "id")]
        self.columns: tuple[Column[Any], ...] = tuple(table.c[name] for name in names)

    def values(self, record: msgspec.Struct) -> dict[str, Any]:
        values: dict[str, Any] = msgspec.to_builtins(record, builtin_types=_NATIVE)
        for name in self._principals:
            principal = values.pop(name)
            values[f"{name}_kind"] = principal and principal["kind"]
            values[f"{name}_id"] = principal and principal["id"]
        return values

    def record(self, row: Mapping[Any, Any]) -> S:
        values = dict(row)
        for name in self._principals:
            kind, id_ = values.pop(f"{name}_kind"), values.pop(f"{name}_id")
            values[name] = None if kind is None else {"kind": kind, "id": id_}
        return msgspec.convert(values, self._struct, builtin_types=_NATIVE)


THREAD_ROWS = Rows(Thread, THREADS)
MESSAGE_ROWS = Rows(Message, MESSAGES)
EVENT_ROWS = Rows(Event, EVENTS)
NEW_EVENT_ROWS = Rows(NewEvent, EVENTS)
KEY_ROWS = Rows(KeyRecord, KEYS)
TERMINAL_ROWS = Rows(Terminal, TERMINALS)
DELIVERY_ROWS = Rows(Delivery, DELIVERIES)
CREDENTIAL_ROWS = Rows(Credential, CREDENTIALS)
