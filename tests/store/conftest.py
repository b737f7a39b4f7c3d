"""Both stores, and records to put into them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.event import EventType, NewEvent
from orchestrator.domain.identity import Credential, Principal, PrincipalKind, Scope
from orchestrator.domain.terminal import Delivery, Terminal
from orchestrator.domain.thread import Message, Origin, Thread
from orchestrator.ports import KeyRecord, Store
from orchestrator.store import MemoryStore, SqlStore

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ANN = Principal(kind=PrincipalKind.PERSON, id="ann")
BOB = Principal(kind=PrincipalKind.AGENT, id="bob")


class Make:
    """Records with what a test does not care about filled in."""

    now = NOW
    ann = ANN
    bob = BOB

    def thread(self, id: str = "t1", **fields: Any) -> Thread:
        given = {"origin": Origin.RELAY, "sender": ANN, "recipient": BOB, "created_at": NOW}
        return Thread(id=id, **given | fields)

    def message(self, thread_id: str = "t1", **fields: Any) -> Message:
        given = {"sequence_no": 0, "author": ANN, "text": "hello", "created_at": NOW}
        return Message(thread_id=thread_id, **given | fields)

    def event(self, **fields: Any) -> NewEvent:
        return NewEvent(**{"type": EventType.CREATED, "at": NOW, "by": ANN} | fields)

    def terminal(self, id: str = "w1", **fields: Any) -> Terminal:
        given = {
            "profile": "coder",
            "driver": "scripted",
            "instance": "i1",
            "working_directory": "/w",
            "started_at": NOW,
            "by": ANN,
        }
        return Terminal(id=id, **given | fields)

    def delivery(self, id: str = "d1", **fields: Any) -> Delivery:
        return Delivery(id=id, **{"terminal_id": "w1", "by": ANN, "created_at": NOW} | fields)

    def key(self, key: str = "k1", **fields: Any) -> KeyRecord:
        given = {
            "principal": "person:ann",
            "operation": "handoff",
            "payload_sha256": "00",
            "thread_id": None,
            "response": b"{}",
            "created_at": NOW,
        }
        return KeyRecord(key=key, **given | fields)

    def credential(self, id: str = "c1", **fields: Any) -> Credential:
        given = {"hash": f"hash of {id}", "scope": Scope.PERSON, "principal": ANN, "created_at": NOW}
        return Credential(id=id, **given | fields)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, database: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SqlStore(database)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def sql(database: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(database)
    await opened.open()
    yield opened
    await opened.close()
