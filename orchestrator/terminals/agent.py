"""One living agent: its pane, what its facts add up to, and waiting for them to change."""

from collections.abc import Callable, Collection
from enum import StrEnum
from math import inf

import anyio

from orchestrator.domain.agent import AgentFact, FactKind
from orchestrator.domain.errors import TerminalDead, TerminalFailure, TerminalLost
from orchestrator.ports import StartedPane
from orchestrator.terminals.driver import Driver
from orchestrator.terminals.spool import TerminalFolder


class Activity(StrEnum):
    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    ASKING = "asking"
    ENDED = "ended"


class RunningAgent:
    """The state follows from the facts alone, so that replaying them after a restart rebuilds it."""

    def __init__(self, terminal_id: str, driver: Driver, folder: TerminalFolder) -> None:
        self.id = terminal_id
        self.driver = driver
        self.folder = folder
        self.pane: StartedPane | None = None
        self.activity = Activity.STARTING
        self.question: str | None = None
        """What it asked last."""
        self.seen: set[str] = set()
        self.reading = anyio.Lock()
        self.submitting = anyio.Lock()
        self.submitted: list[AgentFact] = []
        self.doubtful: str | None = None
        """A typed text of which nobody knows whether it went in."""
        self.end: AgentFact | None = None
        self.gone = anyio.Event()
        self._resume = Activity.WORKING
        self._changed = anyio.Event()
        self.changes = 0

    def apply(self, fact: AgentFact) -> None:
        kind = fact.kind
        if kind in (FactKind.EXITED, FactKind.LOST):
            self.activity, self.end = Activity.ENDED, fact
        elif kind is FactKind.SUBMITTED:
            self.activity = Activity.WORKING
            self.submitted.append(fact)
        elif kind is FactKind.ASKING:
            if self.activity is not Activity.ASKING:
                self._resume = self.activity
            self.activity, self.question = Activity.ASKING, fact.question
        elif kind is FactKind.ANSWERED and self.activity is Activity.ASKING:
            self.activity = self._resume
        elif kind in (FactKind.READY, FactKind.TURN_ENDED, FactKind.TURN_FAILED):
            self.activity = Activity.IDLE
            # What ends was begun, though its submit event was lost, as in a spool that the agent removed.
            if fact.turn is not None and all(fact.turn != each.turn for each in self.submitted):
                self.submitted.append(fact)
        self.wake()

    def forget_submitted(self, turns: Collection[str]) -> None:
        """These turns took other texts, which may have read the same."""
        self.submitted = [fact for fact in self.submitted if fact.turn not in turns]

    def wake(self) -> None:
        """Something about this agent changed: a fact, or its screen."""
        self.changes += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool], seconds: float = inf) -> bool:
        """Waits until `condition` holds, the agent ends, or the time is up; says whether it holds."""
        with anyio.move_on_after(seconds):
            while not condition() and self.end is None:
                await self._changed.wait()
        return condition()

    async def change(self, since: int, seconds: float = inf) -> None:
        """Waits, at most so long, until there were more changes than `since`, a value of `changes`."""
        with anyio.move_on_after(seconds):
            while self.changes == since and self.end is None:
                await self._changed.wait()

    def failure(self) -> TerminalFailure:
        """The error for whoever needs this agent alive."""
        end = self.end
        if end is None or end.kind is FactKind.LOST:
            return TerminalLost(f"the terminal {self.id} is lost: {end.reason if end else 'unknown'}")
        how = f"signal {end.signal}" if end.signal else f"exit {end.exit_status}"
        return TerminalDead(
            f"the terminal {self.id} is dead, {how}",
            exit_status=end.exit_status,
            signal=end.signal,
            last_lines=end.last_lines,
        )
