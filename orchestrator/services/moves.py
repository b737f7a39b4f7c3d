"""The moves of a thread, each in one transaction with its events. The only writer of threads."""

from typing import Any

from orchestrator.domain.errors import ThreadNotFound
from orchestrator.domain.event import EventType
from orchestrator.domain.identity import SERVICE, Principal, PrincipalKind
from orchestrator.domain.thread import NO_CHANGE, Actor, Change, Move, Outcome, Status, Thread, advance
from orchestrator.ports import Tx
from orchestrator.services.context import ServiceContext

BY_SERVICE = Actor(principal=SERVICE)

_EVENTS = {
    Status.ACCEPTED: EventType.ACCEPTED,
    Status.COMPLETED: EventType.COMPLETED,
    Status.CANCELLED: EventType.CANCELLED,
    Status.PENDING: EventType.RELEASED,
}


def need(tx: Tx, thread_id: str) -> Thread:
    thread = tx.thread(thread_id)
    if thread is None:
        raise ThreadNotFound(f"there is no handoff {thread_id}", thread_id=thread_id)
    return thread


def move(
    tx: Tx, context: ServiceContext, thread: Thread, move: Move, actor: Actor, change: Change = NO_CHANGE
) -> Thread:
    """Makes the move with its event; raises what `advance` raises."""
    moved = advance(thread, move, actor, context.now(), change)
    if moved is thread:
        return thread
    tx.replace_thread(thread, moved)
    facts: dict[str, Any] = {"attempt": moved.attempt, "outcome": moved.outcome}
    if not moved.open:
        facts |= {"move": move, "cancel_reason": moved.cancel_reason, **(moved.result_facts or {})}
        facts["chars"] = len(moved.result or "")
    tx.append_event(context.event(_EVENTS[moved.status], thread_id=thread.id, by=actor.principal, **facts))
    if not moved.open and moved.parent_id is not None:
        # The parent's terminal may wait for its children to end.
        tx.append_event(context.event(EventType.CHILD_ENDED, thread_id=moved.parent_id, child=moved.id))
    return moved


def accept_for_terminal(tx: Tx, context: ServiceContext, thread_id: str, terminal_id: str) -> Thread:
    """The terminal has provably taken the task."""
    change = Change(holder=terminal_id, recipient=Principal(kind=PrincipalKind.TERMINAL, id=terminal_id))
    return move(tx, context, need(tx, thread_id), Move.ACCEPT, BY_SERVICE, change)


def succeeded(answer: str, facts: dict[str, Any]) -> Change:
    """A turn that ended; a shell's exit status other than 0 is a failure with its whole output."""
    failed = bool(facts.get("exit_status"))
    if failed:
        status = facts["exit_status"]
        facts = {
            **facts,
            "error": {"code": "exit_status", "detail": f"the command ended with status {status}"},
        }
    outcome = Outcome.FAILED if failed else Outcome.SUCCEEDED
    return Change(outcome=outcome, result=answer, result_facts=facts)


def failed(code: str, detail: str, partial: str | None, **facts: Any) -> Change:
    known = {name: value for name, value in facts.items() if value is not None}
    return Change(
        outcome=Outcome.FAILED,
        result=partial,
        result_facts={"error": {"code": code, "detail": detail}, "partial": True, **known},
    )


def settle_failure(tx: Tx, context: ServiceContext, thread_id: str, change: Change) -> Thread:
    """Ends a blocking handoff as failed, whether or not its task was taken; no effect on one that ended."""
    thread = need(tx, thread_id)
    if not thread.open:
        return thread
    kind = Move.FAIL if thread.status is Status.PENDING else Move.COMPLETE
    return move(tx, context, thread, kind, BY_SERVICE, change)
