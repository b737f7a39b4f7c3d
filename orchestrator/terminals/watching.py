"""What an agent's screen tells that no hook does: readiness, start-up dialogs, their end, rate limits.

Only for drivers that ask for it, and only after the pane printed something: an idle screen is never read.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio

from orchestrator.domain.agent import FactKind
from orchestrator.domain.errors import TerminalFailure
from orchestrator.terminals.agent import Activity, RunningAgent
from orchestrator.terminals.driver import Look, View

_PAUSES = {Activity.STARTING: 0.05, Activity.ASKING: 0.2, Activity.IDLE: 0.25, Activity.WORKING: 2.0}
"""Seconds between two readings of a screen that goes on changing."""
_DECLINED_SECONDS = 3.0
"""How long the prompt stands after a dialog, with no end of the turn told, until the turn counts as ended.
Claude Code runs no hook when a dialog is left with Esc; else its end hook comes within 0.2 s."""

Tell = Callable[..., None]


class ScreenWatch:
    """Watches one agent's screen to its end and tells what it sees as facts."""

    def __init__(
        self, agent: RunningAgent, look: Callable[[RunningAgent], Awaitable[Look]], tell: Tell
    ) -> None:
        self._agent = agent
        self._look = look
        self._tell = tell
        self._dialog: str | None = None
        self._limited: str | None = None
        self._prompt_since: float | None = None

    async def run(self) -> None:
        agent = self._agent
        with suppress(TerminalFailure):
            while agent.end is None:
                seen = agent.changes
                self._judge(await self._look(agent))
                left = _DECLINED_SECONDS if self._prompt_since is not None else None
                await agent.change(seen, *([left] if left is not None else []))
                await anyio.sleep(_PAUSES.get(agent.activity, 0.25))

    def _judge(self, look: Look) -> None:
        activity = self._agent.activity
        if look.view is View.DIALOG:
            if activity is not Activity.ASKING or (self._dialog and look.question != self._dialog):
                self._say(FactKind.ASKING, question=look.question)
            self._dialog = look.question or "a dialog"
            self._prompt_since = None
            return
        if activity is Activity.ASKING and self._dialog is not None:
            self._dialog = None
            self._say(FactKind.ANSWERED)
            self._prompt_since = time.monotonic()
        if activity is Activity.STARTING and look.view is View.PROMPT:
            self._say(FactKind.READY)
        self._judge_limit(look)
        self._judge_declined(look)

    def _judge_limit(self, look: Look) -> None:
        if look.limited is not None and look.limited != self._limited:
            self._say(FactKind.LIMITED, reason=look.limited)
        self._limited = look.limited

    def _judge_declined(self, look: Look) -> None:
        if self._prompt_since is None:
            return
        if self._agent.activity is not Activity.WORKING:
            self._prompt_since = None
        elif look.view is not View.PROMPT:
            self._prompt_since = time.monotonic()
        elif time.monotonic() - self._prompt_since >= _DECLINED_SECONDS:
            self._prompt_since = None
            self._say(FactKind.TURN_FAILED, error="the turn was ended by the answer to its question")

    def _say(self, kind: FactKind, **fields: Any) -> None:
        self._tell(self._agent, kind, **fields)
