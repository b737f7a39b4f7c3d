"""Records as the API shows them: what a giver gets of a handoff, and the whole of a thread or terminal."""

from datetime import datetime
from typing import Any

import msgspec

from orchestrator.domain.event import Event, EventType
from orchestrator.domain.terminal import Delivery, Terminal
from orchestrator.domain.thread import Message, Thread
from orchestrator.wire import (
    OUTPUT_CAP_BYTES,
    DeliveryView,
    EventView,
    HandoffError,
    HandoffResult,
    MessageView,
    TerminalView,
    ThreadView,
)

_PHASES = {
    EventType.CREATED: "queued",
    EventType.QUEUED: "queued",
    EventType.STARTING: "starting",
    EventType.READY: "starting",
    EventType.TYPING: "typing",
    EventType.DELIVERY_QUEUED: "typing",
    EventType.TAKEN: "working",
    EventType.ASKING: "asking",
    EventType.ANSWERED: "working",
    EventType.LIMITED: "limited",
    EventType.HELD: "held",
    EventType.UNCERTAIN: "uncertain",
}


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """The latest fact about an open handoff, in a word."""

    name: str = "queued"
    question: str | None = None


def phase_of(events: list[Event]) -> Phase:
    phase = Phase()
    for event in events:
        name = _PHASES.get(event.type)
        if name is not None:
            phase = Phase(name=name, question=event.data.get("question") if name == "asking" else None)
    return phase


def handoff_result(
    thread: Thread,
    now: datetime,
    *,
    terminal_id: str | None = None,
    phase: Phase | None = None,
    place: int | None = None,
    partial: str | None = None,
    wait: str | None = None,
) -> HandoffResult:
    """`partial` is what an unfinished handoff has answered so far; a finished one has its own result."""
    facts = thread.result_facts or {}
    answer = thread.result if not thread.open else partial
    output, truncated = _capped(answer)
    error = facts.get("error")
    return HandoffResult(
        handoff_id=thread.id,
        status=thread.status.value,
        outcome=thread.outcome.value if thread.outcome else None,
        agent_profile=thread.profile or "",
        duration_s=round(((thread.ended_at or now) - thread.created_at).total_seconds(), 3),
        wait=wait,
        output=output,
        output_chars=len(answer or ""),
        truncated=truncated,
        partial=answer is not None and (thread.open or bool(facts.get("partial"))),
        terminal_id=thread.recipient.id if thread.recipient else terminal_id,
        error=_error(error, facts) if error else None,
        exit_status=facts.get("exit_status"),
        phase=phase.name if phase else None,
        question=phase.question if phase else None,
        queue_place=place,
        cancel_reason=thread.cancel_reason,
        warnings=[facts["warning"]] if "warning" in facts else [],
    )


def _error(error: dict[str, Any], facts: dict[str, Any]) -> HandoffError:
    return HandoffError(
        code=error["code"],
        detail=error["detail"],
        exit_status=facts.get("exit_status"),
        signal=facts.get("signal"),
        last_lines=facts.get("last_lines"),
    )


def _capped(answer: str | None) -> tuple[str | None, bool]:
    """The answer, or its head and tail with a note where it is larger than the cap."""
    if answer is None or len(answer) <= OUTPUT_CAP_BYTES // 4:
        return answer, False
    encoded = answer.encode()
    if len(encoded) <= OUTPUT_CAP_BYTES:
        return answer, False
    half = OUTPUT_CAP_BYTES // 2
    head = encoded[:half].decode("utf-8", "ignore")
    tail = encoded[-half:].decode("utf-8", "ignore")
    left_out = len(answer) - len(head) - len(tail)
    note = f"\n[… {left_out} of {len(answer)} characters left out: read_output has all of them …]\n"
    return head + note + tail, True


def thread_view(thread: Thread, messages: list[Message], events: list[Event]) -> ThreadView:
    return ThreadView(
        thread_id=thread.id,
        origin=thread.origin.value,
        status=thread.status.value,
        outcome=thread.outcome.value if thread.outcome else None,
        sender=str(thread.sender),
        recipient=str(thread.recipient) if thread.recipient else None,
        agent_profile=thread.profile,
        model=thread.model,
        working_directory=thread.working_directory,
        parent_id=thread.parent_id,
        attempt=thread.attempt,
        created_at=thread.created_at,
        accepted_at=thread.accepted_at,
        ended_at=thread.ended_at,
        deadline_at=thread.deadline_at,
        cancel_reason=thread.cancel_reason,
        result_facts=thread.result_facts,
        messages=[
            MessageView(
                sequence_no=each.sequence_no,
                author=str(each.author),
                text=each.text,
                created_at=each.created_at,
                payload=each.payload,
            )
            for each in messages
        ],
        events=[event_view(each) for each in events],
    )


def event_view(event: Event) -> EventView:
    return EventView(
        id=event.id,
        type=event.type.value,
        at=event.at,
        by=str(event.by),
        data=event.data,
        thread_id=event.thread_id,
        terminal_id=event.terminal_id,
    )


def terminal_view(
    terminal: Terminal,
    *,
    activity: str,
    question: str | None = None,
    queued: int = 0,
    attach_command: list[str] | None = None,
) -> TerminalView:
    return TerminalView(
        terminal_id=terminal.id,
        agent_profile=terminal.profile,
        driver=terminal.driver,
        state=terminal.state.value,
        activity=activity,
        working_directory=terminal.working_directory,
        started_at=terminal.started_at,
        name=terminal.name,
        handoff_id=terminal.thread_id,
        pid=terminal.pid,
        question=question,
        queued=queued,
        ended_at=terminal.ended_at,
        exit=terminal.exit,
        attach_command=attach_command or [],
    )


def delivery_view(delivery: Delivery) -> DeliveryView:
    return DeliveryView(
        delivery_id=delivery.id,
        terminal_id=delivery.terminal_id,
        position=delivery.position,
        state=delivery.state.value,
        created_at=delivery.created_at,
        attempts=delivery.attempts,
        reason=delivery.reason,
        turn=delivery.turn,
        handoff_id=delivery.thread_id,
        typed_at=delivery.typed_at,
        delivered_at=delivery.delivered_at,
    )
