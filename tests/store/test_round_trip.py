"""Every field of every record comes back as it went in, whatever it holds."""

import itertools
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.domain.event import NewEvent
from orchestrator.domain.identity import Credential
from orchestrator.domain.terminal import Delivery, Terminal
from orchestrator.domain.thread import Message, Thread
from orchestrator.ports import KeyRecord, Store, Tx
from orchestrator.store import MemoryStore, SqlStore

EXAMPLES = 25

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(0, 2**31 - 1),
    bool: st.booleans(),
    bytes: st.binary(max_size=50),
    datetime: st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    dict[str, Any]: OBJECT,
    list[dict[str, Any]]: st.lists(OBJECT, max_size=3),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    if kind in SIMPLE:
        return SIMPLE[kind]
    if isinstance(kind, types.UnionType):
        return st.one_of([values(each) for each in typing.get_args(kind)])
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    return st.builds(kind, **{field.name: values(field.type) for field in msgspec.structs.fields(kind)})


class Blocking:
    """A store for tests that are not async, one for all examples."""

    def __init__(self, call: Callable[..., Any], store: Store) -> None:
        self.call = call
        self.store = store
        self.numbers = itertools.count()

    def round_trip(self, put: Callable[[Tx], Any], get: Callable[[Tx], Any]) -> Any:
        self.call(self.store.write, put)
        return self.call(self.store.read, get)


@contextmanager
def blocking(store: Store) -> Iterator[Blocking]:
    with start_blocking_portal() as portal:
        portal.call(store.open)
        yield Blocking(portal.call, store)
        portal.call(store.close)


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    path: Path = tmp_path_factory.mktemp("round-trip") / "store.db"
    with blocking(MemoryStore() if request.param == "memory" else SqlStore(path)) as opened:
        yield opened


def examples(kind: type[msgspec.Struct]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        quick = settings(
            max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        return quick(given(record=values(kind))(test))

    return decorate


def renamed(record: Any, shared: Blocking, **fields: str) -> Any:
    number = next(shared.numbers)
    return msgspec.structs.replace(record, **{name: f"{prefix}{number}" for name, prefix in fields.items()})


@examples(Thread)
def test_a_thread_comes_back_whole_as_inserted_and_as_replaced(shared: Blocking, record: Thread) -> None:
    record = renamed(record, shared, id="t")
    assert shared.round_trip(lambda tx: tx.insert_thread(record), lambda tx: tx.thread(record.id)) == record
    blank = Thread(
        id=record.id,
        origin=record.origin,
        sender=record.sender,
        created_at=record.created_at,
        version=record.version + 1,
    )
    after = msgspec.structs.replace(record, version=record.version + 2)

    def put(tx: Tx) -> None:
        tx.replace_thread(record, blank)
        assert tx.thread(record.id) == blank
        tx.replace_thread(blank, after)

    assert shared.round_trip(put, lambda tx: tx.thread(record.id)) == after


@examples(Message)
def test_a_message_comes_back_whole(shared: Blocking, make: Any, record: Message) -> None:
    record = renamed(record, shared, thread_id="m")

    def put(tx: Tx) -> None:
        tx.insert_thread(make.thread(record.thread_id))
        tx.append_message(record)

    stored = shared.round_trip(put, lambda tx: tx.messages(record.thread_id))
    assert stored == [msgspec.structs.replace(record, sequence_no=1)]


@examples(NewEvent)
def test_an_event_comes_back_whole(shared: Blocking, record: NewEvent) -> None:
    record = renamed(record, shared, thread_id="e")
    returned = shared.call(shared.store.write, lambda tx: tx.append_event(record))
    assert shared.call(shared.store.read, lambda tx: tx.events(thread_id=record.thread_id)) == [returned]
    assert {name: getattr(returned, name) for name in record.__struct_fields__} == msgspec.structs.asdict(
        record
    )


@examples(KeyRecord)
def test_a_key_comes_back_whole(shared: Blocking, record: KeyRecord) -> None:
    record = renamed(record, shared, key="k")
    place = (record.principal, record.operation, record.key)
    assert shared.round_trip(lambda tx: tx.insert_key(record), lambda tx: tx.key(*place)) == record


@examples(Terminal)
def test_a_terminal_comes_back_whole(shared: Blocking, record: Terminal) -> None:
    record = renamed(record, shared, id="w")
    assert (
        shared.round_trip(lambda tx: tx.insert_terminal(record), lambda tx: tx.terminal(record.id)) == record
    )


@examples(Delivery)
def test_a_delivery_comes_back_whole(shared: Blocking, make: Any, record: Delivery) -> None:
    record = renamed(record, shared, id="d", terminal_id="x")

    def put(tx: Tx) -> None:
        tx.insert_terminal(make.terminal(record.terminal_id))
        tx.insert_delivery(record)

    stored = shared.round_trip(put, lambda tx: tx.delivery(record.id))
    assert stored == msgspec.structs.replace(record, position=1)


@examples(Credential)
def test_a_credential_comes_back_whole(shared: Blocking, record: Credential) -> None:
    record = renamed(record, shared, id="c", hash="h")
    put, get = (lambda tx: tx.insert_credential(record)), (lambda tx: tx.credential(record.id))
    assert shared.round_trip(put, get) == record
