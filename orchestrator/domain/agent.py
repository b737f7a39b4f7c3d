"""Facts about a running agent, as its driver learns them. Each says how it is known."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class Source(StrEnum):
    """How a fact is known, best first."""

    REPORT = "report"
    HOOK = "hook"
    TRANSCRIPT = "transcript"
    SCREEN = "screen"
    PROCESS = "process"


class FactKind(StrEnum):
    READY = "ready"
    """The composer is there and nothing runs: text may be typed."""
    SUBMITTED = "submitted"
    """The agent took a text as a turn. `text`, `turn`."""
    ASKING = "asking"
    """A dialog is open. `question`, `question_id`."""
    ANSWERED = "answered"
    """The dialog is gone."""
    LIMITED = "limited"
    TURN_ENDED = "turn_ended"
    """The turn is over. `turn`, `answer` (whole), `background` (open background tasks), `exit_status`."""
    TURN_FAILED = "turn_failed"
    """The turn ended in an error of the CLI or its model. `turn`, `error`, `answer` (partial or None)."""
    EXITED = "exited"
    """The process or pane is gone. `exit_status` or `signal`, `last_lines`, `reason`."""
    LOST = "lost"
    """The tmux server is gone. `reason`."""


class AgentFact(msgspec.Struct, frozen=True, kw_only=True):
    """One fact. The fields beyond `kind` are filled as the kind's description says, else None.

    Facts that come from a spool are delivered at least once (again after an adoption): whoever handles
    them must not do a thing twice.
    """

    terminal_id: str
    kind: FactKind
    at: datetime
    source: Source
    turn: str | None = None
    text: str | None = None
    late: bool = False
    """SUBMITTED: it is the text whose delivery was given up as uncertain."""
    answer: str | None = None
    background: int = 0
    question: str | None = None
    question_id: str | None = None
    error: str | None = None
    exit_status: int | None = None
    signal: str | None = None
    last_lines: str | None = None
    reason: str | None = None
    evidence: dict[str, Any] = {}
