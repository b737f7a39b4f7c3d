"""The driver port: what `terminals/` must know of one agent CLI, and nothing else knows.

A driver is stateless: it prepares a start, and it reads what the CLI leaves behind (spool entries written by
hooks, screens). It never types and never forks; `terminals/` does that by the driver's rules.
A new CLI is one module in `drivers/` and recorded screens for its tests.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import msgspec

from orchestrator.domain.agent import AgentFact
from orchestrator.ports import AgentSpec
from orchestrator.terminals.text import json_object


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the CLI: `argv` runs as the pane's own process, never through a shell.

    `env` is added to the terminal's environment. The files the CLI needs were written into the terminal's
    folder (mode 0600) by `prepare`.
    """

    argv: list[str]
    env: dict[str, str] = {}


class TypingRules(msgspec.Struct, frozen=True, kw_only=True):
    """How text gets into this CLI. Durations are seconds.

    After the paste was seen, Enter is pressed `enter_delay` later. Without a submit event the composer is
    looked at again after `enter_again`: if our draft still stands, Enter once more; after `give_up` it is
    `NotSubmitted`. `enter_again` is long because an agent that reacts late looks just like one that
    swallowed Enter, and a second Enter into the former is an empty turn.
    """

    header: bool = True
    enter_delay: float = 0.0
    enter_again: float = 4.0
    give_up: float = 20.0
    sees_paste: bool = True
    """Whether the screen shows a draft or a paste marker once the paste has arrived."""
    keeps_trailing_newlines: bool = True


class View(StrEnum):
    """What a screen shows."""

    PROMPT = "prompt"
    """An empty composer and nothing running."""
    DRAFT = "draft"
    """Unsent text or a paste marker in the composer."""
    BUSY = "busy"
    DIALOG = "dialog"
    OTHER = "other"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A screen, read. `question` is the dialog's text, `limited` what a rate or quota notice says."""

    view: View
    question: str | None = None
    limited: str | None = None


class SpoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One hook event as it lies in a terminal's spool: `payload` is the CLI's own JSON."""

    id: str
    event: str
    at: datetime
    payload: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "SpoolEntry":
        """Reads `<nanoseconds>-<pid>.<event>`; an empty or broken payload becomes `{"raw": text}`."""
        stamp, _, event = path.name.partition(".")
        nanoseconds = int(stamp.partition("-")[0])
        raw = path.read_bytes()
        payload: dict[str, Any]
        try:
            payload = json_object(raw)
        except ValueError:
            payload = {"raw": raw.decode("utf-8", "replace")}
        at = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
        return cls(id=path.name, event=event, at=at, payload=payload)


class Readiness(StrEnum):
    """How this driver's READY at start is known: its hook alone, or the prompt on its screen."""

    HOOK = "hook"
    SCREEN = "screen"


class Driver(Protocol):
    """One agent CLI."""

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> str:
        """The executable looked for on PATH, unless the profile's `command` replaces it."""
        ...

    @property
    def typing(self) -> TypingRules: ...

    @property
    def readiness(self) -> Readiness: ...

    @property
    def env_names(self) -> Sequence[str]:
        """Variables of the service's environment it needs beyond the common allow-list (API keys)."""
        ...

    def check(self, spec_problems: list[str], spec: AgentSpec) -> None:
        """Appends a sentence for each thing in the profile this driver cannot honour."""
        ...

    def prepare(self, spec: AgentSpec, folder: Path) -> Launch:
        """Writes what the CLI needs into `folder` and says how to start it. Blocking file work only."""
        ...

    def compose(self, text: str, header: str | None, folder: Path) -> str:
        """Exactly what is typed for `text`; most put `header` and a line break ahead of it.

        May write files into `folder`. It is called once for each submit, before anything is typed.
        """
        ...

    def interpret(self, terminal_id: str, entry: SpoolEntry, folder: Path) -> list[AgentFact]:
        """The facts one spool entry tells, oldest first; an event without meaning gives none.

        Called in a worker thread: it may wait a moment for a file of the CLI that lags behind its hook.
        """
        ...

    def took(self, fact: AgentFact, typed: str) -> bool:
        """Whether a SUBMITTED fact is the turn that took `typed` (header included)."""
        ...

    def look(self, screen: str) -> Look:
        """Reads a captured screen (plain text, trailing blanks stripped)."""
        ...

    def partial(self, folder: Path) -> str | None:
        """What the running turn has answered so far, from the CLI's own files."""
        ...

    def version_argv(self) -> list[str] | None:
        """How to ask the program for its version."""
        ...
