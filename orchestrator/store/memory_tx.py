"""One transaction's view of records in memory, as `ports.Tx` describes it."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from orchestrator.domain.errors import NotFound, TerminalNotFound, ThreadNotFound
from orchestrator.domain.event import Event, NewEvent
from orchestrator.domain.identity import Credential, Principal
from orchestrator.domain.terminal import Delivery, DeliveryState, Terminal, TerminalState
from orchestrator.domain.thread import Message, Status, Thread
from orchestrator.ports import KeyRecord
from orchestrator.store.rules import (
    ReadOnly,
    Stale,
    normal,
    numbered,
    require_storable,
    require_successor,
    require_text,
    taken,
)

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=msgspec.Struct)

UNSETTLED = (DeliveryState.QUEUED, DeliveryState.TYPING)


class Records:
    """The tables. Dicts keep the order of insertion, and replacing a value keeps its place."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.messages: dict[str, list[Message]] = {}
        self.events: dict[int, Event] = {}
        self.last_event = 0
        self.keys: dict[tuple[str, str, str], KeyRecord] = {}
        self.terminals: dict[str, Terminal] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.positions: dict[str, list[str]] = {}
        self.credentials: dict[str, Credential] = {}


class MemoryTx:
    """`appended` are the events of the work. `stale` says that a version had moved on: run the work again."""

    def __init__(self, records: Records, *, writable: bool) -> None:
        self._records = records
        self._writable = writable
        self._undo: list[Callable[[], object]] = []
        self.appended: list[Event] = []
        self.stale: str | None = None

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    # threads, messages, events

    def insert_thread(self, thread: Thread) -> None:
        self._insert("thread", self._records.threads, thread.id, thread)

    def thread(self, thread_id: str) -> Thread | None:
        require_text(thread_id)
        return self._records.threads.get(thread_id)

    def replace_thread(self, old: Thread, new: Thread) -> None:
        self._replace("thread", self._records.threads, old, new)

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
        newest_first: Iterable[Thread] = reversed(self._records.threads.values())
        if before is not None:
            newest_first = itertools.islice(
                itertools.dropwhile(lambda thread: thread.id != before, newest_first), 1, None
            )
        wanted = (
            thread
            for thread in newest_first
            if (statuses is None or thread.status in statuses)
            and (sender is None or thread.sender == sender)
            and (parent_id is None or thread.parent_id == parent_id)
            and (runner is None or thread.runner == runner)
            and not (uncollected and thread.collected_at is not None)
        )
        return list(itertools.islice(wanted, limit))

    def append_message(self, message: Message) -> Message:
        self._require_writable()
        require_storable(message)
        if message.thread_id not in self._records.threads:
            raise ThreadNotFound(f"there is no thread {message.thread_id}")
        of_thread = self._records.messages.setdefault(message.thread_id, [])
        stored = normal(msgspec.structs.replace(message, sequence_no=len(of_thread) + 1))
        of_thread.append(stored)
        self._undo.append(of_thread.pop)
        return stored

    def messages(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Message]:
        require_text(thread_id)
        first = max(after, 0)
        return self._records.messages.get(thread_id, [])[first : first + limit]

    def append_event(self, event: NewEvent) -> Event:
        self._require_writable()
        require_storable(event)
        records, last = self._records, self._records.last_event
        stored = normal(numbered(event, last + 1))

        def undo() -> None:
            del records.events[stored.id]
            records.last_event = last

        records.events[stored.id] = stored
        records.last_event = stored.id
        self._undo.append(undo)
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
        wanted = (
            event
            for event in self._records.events.values()
            if event.id > after
            and (thread_id is None or event.thread_id == thread_id)
            and (terminal_id is None or event.terminal_id == terminal_id)
        )
        return list(itertools.islice(wanted, limit))

    def purge_events(self, before: datetime) -> int:
        """Only the oldest go, up to the first that is young enough, so that what is left has no holes."""
        self._require_writable()
        old = list(itertools.takewhile(lambda event: event.at < before, self._records.events.values()))
        rest = {id_: event for id_, event in self._records.events.items() if id_ > (old[-1].id if old else 0)}
        self._swap("events", rest)
        return len(old)

    # idempotency keys

    def key(self, principal: str, operation: str, key: str) -> KeyRecord | None:
        require_text((principal, operation, key))
        return self._records.keys.get((principal, operation, key))

    def insert_key(self, record: KeyRecord) -> None:
        place = (record.principal, record.operation, record.key)
        self._insert("idempotency key", self._records.keys, place, record, shown=record.key)

    def purge_keys(self, before: datetime) -> int:
        self._require_writable()
        rest = {place: key for place, key in self._records.keys.items() if key.created_at >= before}
        purged = len(self._records.keys) - len(rest)
        self._swap("keys", rest)
        return purged

    # terminals and deliveries

    def insert_terminal(self, terminal: Terminal) -> None:
        self._insert("terminal", self._records.terminals, terminal.id, terminal)

    def terminal(self, terminal_id: str) -> Terminal | None:
        require_text(terminal_id)
        return self._records.terminals.get(terminal_id)

    def replace_terminal(self, old: Terminal, new: Terminal) -> None:
        self._replace("terminal", self._records.terminals, old, new)

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
        wanted = (
            terminal
            for terminal in reversed(self._records.terminals.values())
            if (instance is None or terminal.instance == instance)
            and not (living and terminal.state is TerminalState.ENDED)
            and (name is None or terminal.name == name)
            and (thread_id is None or terminal.thread_id == thread_id)
        )
        return list(itertools.islice(wanted, limit))

    def insert_delivery(self, delivery: Delivery) -> Delivery:
        self._require_writable()
        require_storable(delivery)
        if delivery.terminal_id not in self._records.terminals:
            raise TerminalNotFound(f"there is no terminal {delivery.terminal_id}")
        of_terminal = self._records.positions.setdefault(delivery.terminal_id, [])
        stored = msgspec.structs.replace(delivery, position=len(of_terminal) + 1)
        self._insert("delivery", self._records.deliveries, stored.id, stored)
        of_terminal.append(stored.id)
        self._undo.append(of_terminal.pop)
        return stored

    def delivery(self, delivery_id: str) -> Delivery | None:
        require_text(delivery_id)
        return self._records.deliveries.get(delivery_id)

    def replace_delivery(self, old: Delivery, new: Delivery) -> None:
        self._replace("delivery", self._records.deliveries, old, new)

    def deliveries(self, terminal_id: str, *, unsettled: bool = False) -> list[Delivery]:
        require_text(terminal_id)
        of_terminal = [
            self._records.deliveries[each] for each in self._records.positions.get(terminal_id, [])
        ]
        return [each for each in of_terminal if not unsettled or each.state in UNSETTLED]

    # credentials

    def insert_credential(self, credential: Credential) -> None:
        if self.credential_by_hash(credential.hash) is not None:
            raise taken("credential", credential.id)
        self._insert("credential", self._records.credentials, credential.id, credential)

    def credential_by_hash(self, token_hash: str) -> Credential | None:
        require_text(token_hash)
        found = (each for each in self._records.credentials.values() if each.hash == token_hash)
        return next(found, None)

    def credential(self, credential_id: str) -> Credential | None:
        require_text(credential_id)
        return self._records.credentials.get(credential_id)

    def replace_credential(self, credential: Credential) -> None:
        self._require_writable()
        require_storable(credential)
        if credential.id not in self._records.credentials:
            raise NotFound(f"there is no credential {credential.id}")
        self._set(self._records.credentials, credential.id, credential)

    # how changes are made, each with its way back

    def _require_writable(self) -> None:
        if not self._writable:
            raise ReadOnly("a work given to read() may not write")

    def _insert(self, kind: str, table: dict[K, S], place: K, record: S, shown: str | None = None) -> None:
        self._require_writable()
        require_storable(record)
        if place in table:
            raise taken(kind, shown or str(place))
        table[place] = normal(record)
        self._undo.append(lambda: table.pop(place))

    def _replace(self, kind: str, table: dict[str, Any], old: Any, new: Any) -> None:
        self._require_writable()
        require_successor(old, new)
        require_storable(new)
        stored = table.get(old.id)
        if stored is None or stored.version != old.version:
            self.stale = f"the {kind} {old.id}"
            raise Stale(self.stale)
        self._set(table, old.id, normal(new))

    def _set(self, table: dict[str, V], place: str, value: V) -> None:
        former = table[place]
        table[place] = value
        self._undo.append(lambda: table.update({place: former}))

    def _swap(self, name: str, table: object) -> None:
        former = getattr(self._records, name)
        setattr(self._records, name, table)
        self._undo.append(lambda: setattr(self._records, name, former))
