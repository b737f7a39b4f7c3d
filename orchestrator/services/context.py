"""What every service works with: the ports, the bus, and the limits they were opened with."""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.domain.event import EventType, NewEvent
from orchestrator.domain.identity import SERVICE, Principal
from orchestrator.ports import Clock, Ids, Profiles, Store, Terminals
from orchestrator.services.bus import Bus
from orchestrator.services.credentials import Credentials


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_depth: int = 8
    max_terminals: int = 24
    max_terminals_per_caller: int = 24
    roots: tuple[Path, ...] = ()
    """A given working directory must lie under one of these."""


class ServiceContext(msgspec.Struct, frozen=True, kw_only=True):
    """`instance` names this home for good; `url` is where its terminals reach the service."""

    store: Store
    terminals: Terminals
    profiles: Profiles
    clock: Clock
    ids: Ids
    bus: Bus
    credentials: Credentials
    limits: Limits
    instance: str
    url: str

    def now(self) -> datetime:
        return self.clock.now()

    def event(
        self,
        type: EventType,
        *,
        thread_id: str | None = None,
        terminal_id: str | None = None,
        by: Principal = SERVICE,
        **data: Any,
    ) -> NewEvent:
        kept = {name: value for name, value in data.items() if value is not None}
        return NewEvent(
            type=type, at=self.now(), by=by, thread_id=thread_id, terminal_id=terminal_id, data=kept
        )
