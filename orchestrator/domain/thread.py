"""The thread: the one record of a handoff, and the only place that knows its lifecycle.

`MOVES` is the literal table of protocol section 1; `advance` looks it up. What is not in the table is
refused. Everything else that looks like a state (queued, typed, asking, uncertain…) is an event.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from orchestrator.domain.errors import (
    InvalidTransition,
    NotAuthorizedTransition,
    StateChanged,
    ThreadTerminal,
)
from orchestrator.domain.identity import Principal, PrincipalKind


class Origin(StrEnum):
    """By which of the three ways in the handoff was made."""

    BLOCKING = "blocking"
    RELAY = "relay"
    PIPELINE = "pipeline"


class Status(StrEnum):
    PENDING = "pending"
    ACCEPTED = "accepted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """How a completed handoff ended; None until then."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class Move(StrEnum):
    ACCEPT = "accept"
    CANCEL = "cancel"
    FAIL = "fail"
    STOP = "stop"
    COMPLETE = "complete"
    RELEASE = "release"
    SEND_MESSAGE = "send_message"


class Role(StrEnum):
    """What an actor is to one thread. HOLDER is the recipient's session that accepted it."""

    SENDER = "sender"
    RECIPIENT = "recipient"
    HOLDER = "holder"
    SERVICE = "service"


class Thread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One handoff. Its messages and events are lists of their own in the store.

    `recipient` of a blocking handoff is the terminal the service started for it, None while queued.
    `deadline_at` is when the service stops it by policy. `waits` says that the giver blocks on it: only
    such edges can close a circle. `version` counts writes and is what compare-and-swap compares.
    """

    id: str
    origin: Origin
    sender: Principal
    created_at: datetime
    recipient: Principal | None = None
    status: Status = Status.PENDING
    outcome: Outcome | None = None
    holder: str | None = None
    attempt: int = 0
    parent_id: str | None = None
    run_id: str | None = None
    runner: str | None = None
    """The service instance whose terminals do the work; only that one settles it after a restart."""
    waits: bool = False
    profile: str | None = None
    model: str | None = None
    working_directory: str | None = None
    accepted_at: datetime | None = None
    ended_at: datetime | None = None
    deadline_at: datetime | None = None
    expires_at: datetime | None = None
    cancel_reason: str | None = None
    result: str | None = None
    """The whole answer; of a handoff that failed, the partial one."""
    result_facts: dict[str, Any] | None = None
    """Beside the answer: `error` {code, detail}, `exit_status`, `signal`, `last_lines`, `partial`, and
    `unsure` when it could not be read."""
    intent: str | None = None
    envelope: dict[str, Any] | None = None
    warnings: list[dict[str, Any]] | None = None
    collected_at: datetime | None = None
    """When a giver that did not block first read the result through a wait."""
    version: int = 0

    @property
    def open(self) -> bool:
        return self.status in (Status.PENDING, Status.ACCEPTED)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable message; `sequence_no` is gap-free from 1 within its thread."""

    thread_id: str
    sequence_no: int
    author: Principal
    text: str
    created_at: datetime
    payload: dict[str, Any] | None = None


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    principal: Principal
    session: str | None = None


class _Row(NamedTuple):
    to: Status
    roles: dict[Role, frozenset[Origin]]
    outcome: Outcome | None = None


_ALL = frozenset(Origin)
_BLOCKING = frozenset({Origin.BLOCKING})
_OTHERS = _ALL - _BLOCKING

MOVES: dict[tuple[Status, Move], _Row] = {
    (Status.PENDING, Move.ACCEPT): _Row(Status.ACCEPTED, {Role.RECIPIENT: _OTHERS, Role.SERVICE: _BLOCKING}),
    (Status.PENDING, Move.CANCEL): _Row(Status.CANCELLED, {Role.SENDER: _ALL, Role.SERVICE: _ALL}),
    (Status.PENDING, Move.FAIL): _Row(Status.COMPLETED, {Role.SERVICE: _BLOCKING}, Outcome.FAILED),
    (Status.PENDING, Move.STOP): _Row(Status.CANCELLED, {Role.SENDER: _BLOCKING}),
    (Status.ACCEPTED, Move.COMPLETE): _Row(
        Status.COMPLETED, {Role.HOLDER: _ALL, Role.SERVICE: _BLOCKING}, Outcome.SUCCEEDED
    ),
    (Status.ACCEPTED, Move.STOP): _Row(Status.COMPLETED, {Role.SENDER: _BLOCKING}, Outcome.INTERRUPTED),
    (Status.ACCEPTED, Move.RELEASE): _Row(Status.PENDING, {Role.RECIPIENT: _OTHERS, Role.SERVICE: _OTHERS}),
    (Status.PENDING, Move.SEND_MESSAGE): _Row(Status.PENDING, {Role.SENDER: _ALL, Role.RECIPIENT: _ALL}),
    (Status.ACCEPTED, Move.SEND_MESSAGE): _Row(Status.ACCEPTED, {Role.SENDER: _ALL, Role.RECIPIENT: _ALL}),
}


def roles_of(thread: Thread, actor: Actor) -> frozenset[Role]:
    """What `actor` is to `thread`; empty for a stranger, who must be told `thread_not_found`.

    The person who owns the service counts as the sender of every blocking handoff made on it.
    """
    roles: set[Role] = set()
    if actor.principal.kind is PrincipalKind.SERVICE:
        roles.add(Role.SERVICE)
    if actor.principal == thread.sender:
        roles.add(Role.SENDER)
    if actor.principal.kind is PrincipalKind.PERSON and thread.origin is Origin.BLOCKING:
        roles.add(Role.SENDER)
    if actor.principal == thread.recipient:
        roles.add(Role.RECIPIENT)
        if actor.session is not None and actor.session == thread.holder:
            roles.add(Role.HOLDER)
    return frozenset(roles)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a move brings beside the new status; each field only where the move has use for it."""

    holder: str | None = None
    recipient: Principal | None = None
    outcome: Outcome | None = None
    result: str | None = None
    result_facts: dict[str, Any] | None = None
    cancel_reason: str | None = None
    attempt: int | None = None
    """The attempt a completion belongs to; an earlier one is `state_changed`."""


NO_CHANGE = Change()


def advance(thread: Thread, move: Move, actor: Actor, now: datetime, change: Change = NO_CHANGE) -> Thread:
    """The thread after `move`, or the thread itself when the winner of an accept repeats it.

    Raises, in the order of protocol section 1: `ThreadTerminal`, `NotAuthorizedTransition`, `StateChanged`
    (accepted by another session, or a completion of an earlier attempt), `InvalidTransition`.
    """
    if not thread.open:
        raise ThreadTerminal(
            f"the handoff {thread.id} is {thread.status} since {thread.ended_at}: it can only be read",
            thread_id=thread.id,
            status=thread.status,
        )
    roles = roles_of(thread, actor)
    _check_role(thread, move, actor, roles)
    if move is Move.ACCEPT and thread.status is Status.ACCEPTED:
        session = change.holder or actor.session
        if session is not None and session == thread.holder:
            return thread
        raise StateChanged(
            f"the handoff {thread.id} was accepted by another session at {thread.accepted_at}",
            accepted_by=str(thread.recipient),
            accepted_at=thread.accepted_at,
        )
    row = MOVES.get((thread.status, move))
    if row is None:
        raise InvalidTransition(
            f"the handoff {thread.id} is {thread.status}: {move} is not possible now",
            status=thread.status,
            move=move,
        )
    if move is Move.COMPLETE and change.attempt is not None and change.attempt != thread.attempt:
        raise StateChanged(
            f"attempt {change.attempt} of the handoff {thread.id} is over: it is at attempt {thread.attempt}",
            attempt=thread.attempt,
        )
    return _moved(thread, move, row, actor, now, change)


def _check_role(thread: Thread, move: Move, actor: Actor, roles: frozenset[Role]) -> None:
    allowed = {
        role
        for (_, each), row in MOVES.items()
        if each is move
        for role, origins in row.roles.items()
        if thread.origin in origins
    }
    if move is Move.COMPLETE and Role.HOLDER in allowed and Role.RECIPIENT in roles:
        if thread.status is Status.ACCEPTED and Role.HOLDER not in roles:
            raise StateChanged(
                f"the handoff {thread.id} is held by another session since {thread.accepted_at}",
                accepted_at=thread.accepted_at,
            )
        return
    if not roles & allowed:
        raise NotAuthorizedTransition(
            f"{actor.principal} may not {move} the handoff {thread.id}: open to "
            + (", ".join(sorted(allowed)) or f"nobody on a {thread.origin} handoff"),
            move=move,
            allowed=sorted(allowed),
        )


def _moved(thread: Thread, move: Move, row: _Row, actor: Actor, now: datetime, change: Change) -> Thread:
    after: dict[str, Any] = {"status": row.to, "version": thread.version + 1}
    if move is Move.ACCEPT:
        after |= {
            "accepted_at": now,
            "attempt": thread.attempt + 1,
            "holder": change.holder or actor.session,
            "recipient": change.recipient or thread.recipient,
        }
    elif move is Move.RELEASE:
        after |= {"accepted_at": None, "holder": None}
    elif row.to in (Status.COMPLETED, Status.CANCELLED):
        after |= {"ended_at": now, "result": change.result, "result_facts": change.result_facts}
        if row.to is Status.COMPLETED:
            after["outcome"] = change.outcome or row.outcome
        else:
            after["cancel_reason"] = change.cancel_reason or move.value
    return msgspec.structs.replace(thread, **after)
