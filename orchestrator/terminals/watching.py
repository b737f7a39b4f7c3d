"""What an agent's screen tells that no hook does: readiness, start-up dialogs, their end, rate limits.

Only for drivers that ask for it, and only after the pane printed something: an idle screen is never read.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any

import anyio

from orchestrator.domain.agent import FactKind
from orchestrator.domain.errors import TerminalFailure
from orchestrator.terminals.agent import Activity, RunningAgent
from orchestrator.terminals.driver import Look, View

_PAUSES = {Activity.STARTING: 0.05, Activity.ASKING: 0.2, Activity.IDLE: 0.25, Activity.WORKING: 2.0}
"""Seconds between two readings of a screen that goes on changing."""
_SETTLED_SECONDS = 3.0
"""How long a screen stands until it counts against a hook: the prompt after a dialog, with no end of the turn
told, says that the dialog was declined, which Claude Code runs no hook for (else its end hook comes within
0.2 s); a screen without the dialog that a hook told of says that it was answered before anyone saw it."""

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
        self._answered = False
        """A dialog of the running turn was answered, in a way that nothing has told yet."""
        self._limited: str | None = None
        self._view = View.OTHER
        self._since = 0.0

    async def run(self) -> None:
        agent = self._agent
        with suppress(TerminalFailure):
            while agent.end is None:
                seen = agent.changes
                self._judge(await self._look(agent))
                left, pause = inf, _PAUSES.get(agent.activity, 0.25)
                if self._waits_for_more:
                    left, pause = max(0.0, _SETTLED_SECONDS - self._stood), min(pause, 0.25)
                await agent.change(seen, left)
                await anyio.sleep(pause)

    @property
    def _waits_for_more(self) -> bool:
        """Whether this screen will mean something by merely standing."""
        unseen = self._agent.activity is Activity.ASKING and self._dialog is None
        return unseen or (self._answered and self._view is View.PROMPT)

    @property
    def _stood(self) -> float:
        return time.monotonic() - self._since

    def _judge(self, look: Look) -> None:
        if look.view is not self._view:
            self._view, self._since = look.view, time.monotonic()
        activity = self._agent.activity
        if look.view is View.DIALOG:
            if activity is not Activity.ASKING or (self._dialog and look.question != self._dialog):
                self._say(FactKind.ASKING, question=look.question)
            self._dialog = look.question or "a dialog"
            return
        if activity is Activity.ASKING and (self._dialog is not None or self._stood >= _SETTLED_SECONDS):
            self._dialog = None
            self._say(FactKind.ANSWERED)
            self._answered = True
        if activity is Activity.STARTING and look.view is View.PROMPT:
            self._say(FactKind.READY)
        self._judge_limit(look)
        self._judge_declined(look)

    def _judge_limit(self, look: Look) -> None:
        if look.limited is not None and look.limited != self._limited:
            self._say(FactKind.LIMITED, reason=look.limited)
        self._limited = look.limited

    def _judge_declined(self, look: Look) -> None:
        if not self._answered or self._agent.activity is Activity.ASKING:
            return
        if self._agent.activity is not Activity.WORKING:
            self._answered = False
        elif look.view is View.PROMPT and self._stood >= _SETTLED_SECONDS:
            self._answered = False
            asked = self._agent.question or "it is no longer on the screen"
            self._say(
                FactKind.TURN_FAILED, error=f"what it asked was declined, which ended its turn: {asked}"
            )

    def _say(self, kind: FactKind, **fields: Any) -> None:
        self._tell(self._agent, kind, **fields)
