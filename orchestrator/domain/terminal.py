"""An agent's terminal and the texts on their way into it, as records."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from orchestrator.domain.identity import Principal


class TerminalState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """One agent CLI in one tmux window, from before it is started until after it is gone.

    `thread_id` is the blocking handoff it was started for; None for a long-lived agent, whose `name` is
    unique among the living. `exit` says how it ended: `status` or `signal`, `reason`, `last_lines`.
    """

    id: str
    profile: str
    driver: str
    instance: str
    working_directory: str
    started_at: datetime
    by: Principal
    name: str | None = None
    thread_id: str | None = None
    state: TerminalState = TerminalState.STARTING
    boot_id: str | None = None
    pane_id: str | None = None
    pid: int | None = None
    credential_id: str | None = None
    ended_at: datetime | None = None
    exit: dict[str, Any] | None = None
    version: int = 0


class DeliveryState(StrEnum):
    QUEUED = "queued"
    TYPING = "typing"
    DELIVERED = "delivered"
    UNCERTAIN = "uncertain"
    FAILED = "failed"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One text for one terminal. The task of a handoff is its first; one goes in per turn boundary.

    `position` orders a terminal's deliveries, and with it the turns. The text of a handoff's task is not
    copied: it is message 1 of `thread_id`, and `text` is None.
    """

    id: str
    terminal_id: str
    by: Principal
    created_at: datetime
    position: int = 0
    thread_id: str | None = None
    text: str | None = None
    state: DeliveryState = DeliveryState.QUEUED
    reason: str | None = None
    attempts: int = 0
    turn: str | None = None
    typed_at: datetime | None = None
    delivered_at: datetime | None = None
    version: int = 0
