"""Events: what happened to a thread or a terminal, in commit order, with the evidence.

Statuses shown to people beyond the four of a thread are derived from these facts.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from orchestrator.domain.identity import Principal


class EventType(StrEnum):
    """Every kind of event. A `thread.*` event follows a move; the others are facts."""

    CREATED = "thread.created"
    ACCEPTED = "thread.accepted"
    COMPLETED = "thread.completed"
    CANCELLED = "thread.cancelled"
    RELEASED = "thread.released"
    MESSAGE = "thread.message"
    QUEUED = "handoff.queued"
    """Waits for a free terminal; data: `place` (1 is next), `limit`."""
    LATE_REPORT = "handoff.late_report"
    """A second end (report, turn end) of a handoff that was already completed; data: what it said."""
    CHILD_ENDED = "handoff.child_ended"
    """Told to the parent; data: `child`."""
    HELD = "handoff.held"
    """The turn ended while child handoffs or background tasks were open; data: `children`, `background`."""
    STARTING = "terminal.starting"
    READY = "terminal.ready"
    TYPING = "delivery.typing"
    """Committed before the first byte is typed, so that a kill can never make it be typed twice."""
    TAKEN = "delivery.taken"
    """The agent's submit event matched the text; data: `turn`, `source`, `enters`."""
    DELIVERY_QUEUED = "delivery.queued"
    """Not typed yet; data: `reason`."""
    DELIVERY_FAILED = "delivery.failed"
    UNCERTAIN = "delivery.uncertain"
    ASKING = "agent.asking"
    """The agent shows a dialog; data: `question`, `question_id`."""
    ANSWERED = "agent.answered"
    TURN_ENDED = "agent.turn_ended"
    TURN_FAILED = "agent.turn_failed"
    LIMITED = "agent.limited"
    """Waiting for quota or retrying an overloaded model; data: `detail`."""
    TERMINAL_ENDED = "terminal.ended"
    ADOPTED = "terminal.adopted"


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event before the store has given it its id."""

    type: EventType
    at: datetime
    by: Principal
    thread_id: str | None = None
    terminal_id: str | None = None
    data: dict[str, Any] = {}


class Event(NewEvent, frozen=True, kw_only=True):
    """`id` is global, in commit order, and without gaps a reader could skip over."""

    id: int
