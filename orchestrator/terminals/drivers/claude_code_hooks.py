"""What Claude Code's hooks tell: one event's JSON to the fields of a fact. Measured on 2.1.332.

No hook tells that a dialog was answered, and none fires when a person interrupts a turn or says No to a
dialog, which ends the turn as well.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.domain.agent import FactKind, Source
from orchestrator.terminals.drivers import claude_code_transcript as transcript

Fields = dict[str, Any]

CATCH_UP_SECONDS = 2.0
"""How long after a turn's end its transcript is waited for: on a busy machine it may lag behind the hook."""
_LOOK_AGAIN_SECONDS = 0.02


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a hook's payload that are read. `prompt_id` names the turn.

    `agent_id` is a sub-agent's, whose events carry the turn's own `prompt_id`.
    """

    source: str | None = None
    prompt_id: str | None = None
    prompt: str | None = None
    agent_id: str | None = None
    tool_name: str | None = None
    tool_input: dict[str, Any] = {}
    transcript_path: str | None = None
    last_assistant_message: str | None = None
    background_tasks: list[dict[str, Any]] = []
    error: str | None = None

    @property
    def transcript(self) -> Path | None:
        return None if self.transcript_path is None else Path(self.transcript_path)


def read(payload: Mapping[str, Any]) -> Event | None:
    """The payload as an event; None if it is not one."""
    try:
        return msgspec.convert(dict(payload), Event)
    except msgspec.ValidationError:
        return None


def fields(name: str, payload: Mapping[str, Any], at: datetime) -> Fields | None:
    """What the event `name` of that time says, as fields of a fact; None if it says nothing.

    Only the end of a turn that has just ended may take a moment, until the transcript holds its last message.
    """
    event = read(payload)
    if event is None:
        return None
    if name == "PermissionRequest":
        return _asking(event)
    if event.agent_id is not None:
        return None
    if name == "SessionStart":
        # A session also "starts" when it was cleared or compacted, in the middle of a turn.
        return {"kind": FactKind.READY} if event.source in ("startup", "resume") else None
    if name == "UserPromptSubmit":
        return _submitted(event)
    if name == "Stop":
        return _ended(event, at)
    return _failed(event) if name == "StopFailure" else None


def _submitted(event: Event) -> Fields:
    """`by_itself`: nobody typed it, Claude Code goes on because a background task has ended."""
    by_itself = (event.prompt or "").startswith(transcript.NOTIFICATION)
    evidence = {"by_itself": True} if by_itself else {}
    return {
        "kind": FactKind.SUBMITTED,
        "turn": event.prompt_id,
        "text": event.prompt,
        "evidence": evidence,
    }


def _asking(event: Event) -> Fields:
    """The tool and all its input, exactly: that is what an answer allows."""
    lines = [event.tool_name or "a permission"]
    for name, value in event.tool_input.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"{name}: {shown}")
    asked = [event.prompt_id, event.agent_id, event.tool_name, event.tool_input]
    identity = json.dumps(asked, sort_keys=True).encode()
    return {
        "kind": FactKind.ASKING,
        "turn": event.prompt_id,
        "question": "\n".join(lines),
        "question_id": f"q_{hashlib.sha256(identity).hexdigest()[:32]}",
        "evidence": {"tool": event.tool_name},
    }


def _ended(event: Event, at: datetime) -> Fields:
    answer, source = event.last_assistant_message, Source.HOOK
    said = _said(event)
    age = max(0.0, (datetime.now(UTC) - at).total_seconds())
    deadline = time.monotonic() + CATCH_UP_SECONDS - age
    while event.transcript and not _holds_end(said, answer) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_SECONDS)
        said = _said(event)
    if said is not None and _belongs(said, answer):
        answer, source = said.final, Source.TRANSCRIPT
    tasks = event.background_tasks
    return {
        "kind": FactKind.TURN_ENDED,
        "turn": _turn(event),
        "answer": answer,
        "source": source,
        "background": len(tasks),
        "evidence": {"background": tasks} if tasks else {},
    }


def _holds_end(said: transcript.Said | None, last: str | None) -> bool:
    """Whether the transcript certainly holds the message that the turn ended with."""
    return said is not None and (not last or (bool(said.final) and said.final.strip().endswith(last)))


def _belongs(said: transcript.Said, last: str | None) -> bool:
    """Whether the transcript is the better source: it holds the hook's message, or that one is stale.

    Otherwise the file is behind, and the hook's message is all there is of the end.
    """
    if not last or any(part.strip() == last for part in said.parts):
        return True
    return said.before is not None and said.before.strip() == last


def _failed(event: Event) -> Fields:
    """`answer` is what the turn had said before; the error's text stands in the hook's last message."""
    said = _said(event)
    partial = "\n\n".join(said.parts) if said is not None else ""
    known = [part for part in (event.error, event.last_assistant_message) if part]
    return {
        "kind": FactKind.TURN_FAILED,
        "turn": _turn(event),
        "error": ": ".join(known) or "the turn failed",
        "answer": partial or None,
    }


def _said(event: Event) -> transcript.Said | None:
    if event.transcript is None or event.prompt_id is None:
        return None
    return transcript.said_in(event.transcript, event.prompt_id)


def _turn(event: Event) -> str | None:
    if event.transcript is None or event.prompt_id is None:
        return event.prompt_id
    return transcript.origin(event.transcript, event.prompt_id)
