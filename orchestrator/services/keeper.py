"""The keeper of one terminal: starts its agent, reads its facts, settles its handoff, and ends it.

All it knows it has read from the store or been told as a fact, so that a keeper made after a restart goes
on where the last one was cut off. Facts may come twice then; nothing is done twice for it.
"""

from math import inf
from typing import Any

import anyio
import msgspec

from orchestrator.domain.agent import AgentFact, FactKind
from orchestrator.domain.errors import ChangeoverError, TerminalDead, TerminalFailure, TerminalLost
from orchestrator.domain.event import EventType, NewEvent
from orchestrator.domain.profile import Profile
from orchestrator.domain.terminal import Delivery, DeliveryState, Terminal, TerminalState
from orchestrator.domain.thread import Change
from orchestrator.ports import AgentSpec, StartedPane, Tx
from orchestrator.services.bus import THREAD_ENDED
from orchestrator.services.context import ServiceContext
from orchestrator.services.delivery import AgentStatus, Courier
from orchestrator.services.moves import failed, settle_failure
from orchestrator.services.turns import Turns, keeps_terminal

_MATTERS = THREAD_ENDED | {EventType.HELD, EventType.CHILD_ENDED}
"""The events of a handoff that its keeper acts on."""

_EVENTS = {
    FactKind.READY: EventType.READY,
    FactKind.ASKING: EventType.ASKING,
    FactKind.ANSWERED: EventType.ANSWERED,
    FactKind.LIMITED: EventType.LIMITED,
    FactKind.TURN_ENDED: EventType.TURN_ENDED,
    FactKind.TURN_FAILED: EventType.TURN_FAILED,
}
_ACTIVITIES = {
    FactKind.READY: "ready",
    FactKind.SUBMITTED: "working",
    FactKind.ASKING: "asking",
    FactKind.ANSWERED: "working",
    FactKind.TURN_ENDED: "ready",
    FactKind.TURN_FAILED: "ready",
    FactKind.EXITED: "ended",
    FactKind.LOST: "ended",
}


class Keeper:
    """Runs in the service's task group from before the agent starts until after it is gone."""

    def __init__(
        self,
        context: ServiceContext,
        terminal: Terminal,
        profile: Profile,
        token: str | None = None,
        task: tuple[Delivery, str] | None = None,
    ) -> None:
        """`token` is there for a terminal that was just made, `task` too if it was made for a handoff."""
        self._context = context
        self.terminal = terminal
        self._profile = profile
        self._token = token
        self.status = AgentStatus()
        self._courier = Courier(context, terminal.id, profile, self.status, self._undelivered, task)
        self._turns = Turns(context, terminal, profile)
        self._facts, self._incoming = anyio.create_memory_object_stream[AgentFact](inf)
        self._close = anyio.Event()
        self.done = anyio.Event()
        """Set by the fleet when the terminal's place is free again."""
        self._exit: dict[str, Any] = {"reason": "closed"}
        self._recorded: set[tuple[str, str]] = set()

    @property
    def id(self) -> str:
        return self.terminal.id

    def tell(self, fact: AgentFact) -> None:
        """A fact about this agent; handled in order, never waits."""
        self._facts.send_nowait(fact)

    def poke(self) -> None:
        """A delivery was added."""
        self._courier.poke()

    def close(self) -> None:
        """Ends the agent. What it answered is stored already."""
        self._close.set()

    async def abandon(self, error: Exception) -> None:
        """Ends the agent and its handoff after a fault of the service's own."""
        self._exit = {"reason": "the service failed to keep it"}
        await self._fail(failed("internal", f"the service failed: {type(error).__name__}; see its log", None))
        await self._end()

    async def interrupt(self) -> None:
        """Ends the agent and its handoff, with what it answered so far."""
        partial = await self._context.terminals.partial(self.id)
        await self._fail(failed("interrupted", "the service ended its agents", partial))
        self.close()

    async def run(self, adopted: StartedPane | None = None, *, restarted: bool = False) -> None:
        """Keeps the terminal to its end. Cancelling leaves the agent alone: the next service adopts it.

        `restarted` says that a service before this one started it; `adopted` is its pane if it lives.
        """
        try:
            if restarted:
                await self._remember(adopted)
            else:
                await self._start()
        except ChangeoverError as error:
            self._exit = {"reason": error.detail, **_exit_facts(error)}
            await self._fail(failed(error.code, error.detail, None, **_exit_facts(error)))
            await self._end()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_facts)
            tasks.start_soon(self._courier.run)
            if self.terminal.thread_id is not None:
                tasks.start_soon(self._watch_thread, self.terminal.thread_id)
            await self._close.wait()
            tasks.cancel_scope.cancel()
        await self._end()

    async def _start(self) -> None:
        assert self._token is not None, "only a terminal that was just made is started"
        pane = await self._context.terminals.start(
            AgentSpec(
                terminal_id=self.id,
                profile=self._profile,
                working_directory=self.terminal.working_directory,
                token=self._token,
                url=self._context.url,
                name=self.terminal.name,
                thread_id=self.terminal.thread_id,
            )
        )
        await self._record_pane(pane)

    async def _record_pane(self, pane: StartedPane) -> None:
        before = self.terminal
        self.terminal = msgspec.structs.replace(
            before,
            state=TerminalState.RUNNING,
            boot_id=pane.boot_id,
            pane_id=pane.pane_id,
            pid=pane.pid,
            version=before.version + 1,
        )
        await self._context.store.write(lambda tx: tx.replace_terminal(before, self.terminal))

    async def _remember(self, adopted: StartedPane | None) -> None:
        """Which facts were recorded before the restart, so that their replay is not recorded again."""
        self._courier.hold()
        events = await self._context.store.read(lambda tx: tx.events(terminal_id=self.id, limit=100_000))
        self._recorded = {(event.data["spool"], event.type) for event in events if "spool" in event.data}
        if adopted is None:
            return
        if self.terminal.pane_id is None:  # the last service was cut off right after it had made the window
            await self._record_pane(adopted)
        event = self._event(EventType.ADOPTED)
        await self._context.store.write(lambda tx: tx.append_event(event))

    async def _read_facts(self) -> None:
        async for fact in self._incoming:
            await self._handle(fact)

    async def _handle(self, fact: AgentFact) -> None:
        self.status.activity = _ACTIVITIES.get(fact.kind, self.status.activity)
        if fact.kind is FactKind.ASKING:
            self.status.question = fact.question
            self.status.questions += 1
        elif fact.kind in _ACTIVITIES:
            self.status.question = None
        if fact.kind is FactKind.READY:
            self.status.was_ready = True
        if fact.kind in (FactKind.TURN_ENDED, FactKind.TURN_FAILED):
            await self._courier.settled()
            if await self._turns.ended(fact, self._event_of(fact)):
                self._courier.poke()
            return
        if fact.late:
            await self._courier.taken_late(fact)
        event = self._event_of(fact)
        if event is not None:
            await self._context.store.write(lambda tx: tx.append_event(event))
        if fact.kind in (FactKind.EXITED, FactKind.LOST):
            await self._died(fact)

    def _event_of(self, fact: AgentFact) -> NewEvent | None:
        """The event that records a fact; None where there is none, or it was recorded before a restart."""
        kind = _EVENTS.get(fact.kind)
        spool = fact.evidence.get("spool")
        if kind is None or (spool, kind) in self._recorded:
            return None
        return self._event(
            kind,
            source=fact.source,
            turn=fact.turn,
            spool=spool,
            question=fact.question,
            question_id=fact.question_id,
            error=fact.error,
            reason=fact.reason,
            exit_status=fact.exit_status,
            background=fact.background or None,
            chars=len(fact.answer) if fact.answer is not None else None,
        )

    async def _died(self, fact: AgentFact) -> None:
        await self._courier.settled()
        how = (
            f"signal {fact.signal}"
            if fact.signal
            else f"exit {fact.exit_status}"
            if fact.exit_status is not None
            else fact.reason
        )
        self._exit = {
            name: value
            for name, value in (
                ("status", fact.exit_status),
                ("signal", fact.signal),
                ("reason", fact.reason or f"ended by itself: {how}"),
                ("last_lines", fact.last_lines),
            )
            if value is not None
        }
        kind = TerminalLost if fact.kind is FactKind.LOST else TerminalDead
        lost = fact.kind is FactKind.LOST
        partial = await self._context.terminals.partial(self.id)
        await self._fail(
            failed(
                kind.code,
                f"the terminal {self.id} is {'lost' if lost else 'dead'}, {how}",
                partial,
                exit_status=fact.exit_status,
                signal=fact.signal,
                last_lines=fact.last_lines,
            )
        )
        self.close()

    async def _undelivered(self, delivery: Delivery, error: TerminalFailure) -> None:
        """The task itself did not go in. A death is told as a fact, which has more to say."""
        is_task = delivery.thread_id is not None and delivery.text is None
        if is_task and not isinstance(error, TerminalDead | TerminalLost):
            await self._fail(failed(error.code, error.detail, None, **_exit_facts(error)))

    async def _fail(self, change: Change) -> None:
        thread_id = self.terminal.thread_id
        if thread_id is not None:
            await self._context.store.write(lambda tx: settle_failure(tx, self._context, thread_id, change))

    async def _watch_thread(self, thread_id: str) -> None:
        """Closes the terminal once its handoff has ended, by whomever; ends it at its deadline."""
        with self._context.bus.watch([thread_id], _MATTERS) as watch:
            while True:
                thread = await self._context.store.read(lambda tx: tx.thread(thread_id))
                if thread is None or (not thread.open and not keeps_terminal(thread)):
                    self.close()
                    return
                if thread.open:
                    if await self._turns.nudge(thread):
                        self._courier.poke()
                    left = inf
                    if thread.deadline_at is not None:
                        left = (thread.deadline_at - self._context.now()).total_seconds()
                    if left <= 0:
                        await self._turns.time_out(thread)
                        continue
                    await watch.wait(left)
                else:
                    await watch.wait()

    async def _end(self) -> None:
        """Close the terminal, then say so: what is recorded as ended is gone."""
        with anyio.CancelScope(shield=True):
            await self._context.terminals.close(self.id)
            await self._context.store.write(self._record_end)

    def forget(self, tx: Tx) -> None:
        """Records that this terminal never came to be."""
        self._exit = {"reason": "the service stopped before it was started"}
        self._record_end(tx)

    def _record_end(self, tx: Tx) -> None:
        terminal = tx.terminal(self.id)
        if terminal is None or terminal.state is TerminalState.ENDED:
            return
        for delivery in tx.deliveries(self.id, unsettled=True):
            ended = msgspec.structs.replace(
                delivery,
                state=DeliveryState.FAILED,
                reason="the terminal ended",
                version=delivery.version + 1,
            )
            tx.replace_delivery(delivery, ended)
        self._context.credentials.revoke(tx, terminal.credential_id)
        after = msgspec.structs.replace(
            terminal,
            state=TerminalState.ENDED,
            ended_at=self._context.now(),
            exit=self._exit,
            version=terminal.version + 1,
        )
        tx.replace_terminal(terminal, after)
        tx.append_event(self._event(EventType.TERMINAL_ENDED, **self._exit))

    def _event(self, type: EventType, **data: Any) -> NewEvent:
        return self._context.event(type, thread_id=self.terminal.thread_id, terminal_id=self.id, **data)


def _exit_facts(error: ChangeoverError) -> dict[str, Any]:
    return {
        name: error.facts[name] for name in ("exit_status", "signal", "last_lines") if name in error.facts
    }
