"""Delivery: the texts for one terminal, one per turn boundary, each typed at most once.

A delivery is committed as `typing` before its first byte, so whoever comes after a kill knows that it may
have been typed and never types it again by itself.
"""

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

import anyio
import msgspec

from orchestrator.domain.agent import AgentFact
from orchestrator.domain.errors import ChangeoverError, StartFailed, TerminalBusy, TerminalFailure, Uncertain
from orchestrator.domain.event import EventType
from orchestrator.domain.profile import Profile
from orchestrator.domain.terminal import Delivery, DeliveryState
from orchestrator.domain.thread import Status
from orchestrator.ports import Taken, Tx
from orchestrator.services.context import ServiceContext
from orchestrator.services.moves import accept_for_terminal, need

_BUSY_RETRY_SECONDS = 0.5


class AgentStatus:
    """What the facts say about an agent right now, for whoever shows it or waits for it."""

    def __init__(self) -> None:
        self.activity = "starting"
        self.question: str | None = None
        self.was_ready = False
        self.questions = 0
        """How many it has asked so far."""

    @property
    def waits_for(self) -> str:
        """What a queued text waits for, as a sentence."""
        if self.question is not None:
            return f"a person has to answer the agent first: {self.question}"
        if self.activity in ("starting", "working"):
            return f"the agent is {self.activity}"
        return "the agent's prompt has to be empty"


def header_for(thread_id: str) -> str:
    """The line ahead of a task, so that a leading `/` or `!` is never a command of the agent CLI."""
    return f"[handoff {thread_id}]"


class Courier:
    """Delivers to one terminal. `on_failure` gets a delivery whose text certainly did not go in, and why."""

    def __init__(
        self,
        context: ServiceContext,
        terminal_id: str,
        profile: Profile,
        status: AgentStatus,
        on_failure: Callable[[Delivery, TerminalFailure], Awaitable[None]],
        first: tuple[Delivery, str] | None = None,
    ) -> None:
        """`first` is a delivery that was just queued, with its text: it is not read again."""
        self._context = context
        self._terminal_id = terminal_id
        self._profile = profile
        self._status = status
        self._on_failure = on_failure
        self._first = first
        self._work = anyio.Event()
        self._settled: anyio.Event | None = None

    def poke(self) -> None:
        """A delivery was added."""
        self._work.set()

    async def settled(self) -> None:
        """Returns when no delivery is under way, its record written."""
        if self._settled is not None:
            await self._settled.wait()

    def hold(self) -> None:
        """A delivery may be under way since before the restart: `settled` waits until `run` has looked."""
        self._settled = anyio.Event()

    async def run(self) -> None:
        """Delivers what is queued, in order, until cancelled."""
        if self._first is not None:
            (delivery, text), self._first = self._first, None
            await self._settle(delivery, text)
            await self._work.wait()
        while True:
            self._work = anyio.Event()
            waiting = await self._context.store.read(
                lambda tx: tx.deliveries(self._terminal_id, unsettled=True)
            )
            if not any(each.state is DeliveryState.TYPING for each in waiting):
                self._release()
            for delivery in waiting:
                await self._settle(delivery, await self._text(delivery))
            if not waiting:
                await self._work.wait()

    async def _settle(self, delivery: Delivery, text: str) -> None:
        header = header_for(delivery.thread_id) if delivery.thread_id else None
        try:
            if delivery.state is DeliveryState.TYPING:
                await self._taken(delivery, await self._resume(text, header))
            else:
                await self._type(delivery, text, header)
        except TerminalFailure as error:
            await self._undelivered(delivery, error)
        finally:
            self._release()

    def _release(self) -> None:
        """No delivery is under way now."""
        if self._settled is not None:
            self._settled.set()
            self._settled = None

    async def _resume(self, text: str, header: str | None) -> Taken:
        def turns(tx: Tx) -> set[str]:
            return {each.turn for each in tx.deliveries(self._terminal_id) if each.turn is not None}

        earlier = await self._context.store.read(turns)
        return await self._context.terminals.resume_submit(
            self._terminal_id, text, header=header, earlier=earlier
        )

    async def _type(self, delivery: Delivery, text: str, header: str | None) -> None:
        while True:
            await self._await_ready()
            self._settled = self._settled or anyio.Event()
            typing = await self._advance(
                delivery,
                EventType.TYPING,
                state=DeliveryState.TYPING,
                attempts=delivery.attempts + 1,
                typed_at=self._context.now(),
                reason=None,
            )
            try:
                taken = await self._context.terminals.submit(self._terminal_id, text, header=header)
            except TerminalBusy as busy:
                delivery = await self._advance(
                    typing, EventType.DELIVERY_QUEUED, state=DeliveryState.QUEUED, reason=busy.detail
                )
                self._release()
                await anyio.sleep(_BUSY_RETRY_SECONDS)
                continue
            await self._taken(typing, taken)
            return

    async def _await_ready(self) -> None:
        """Waits for the prompt. The start limit runs afresh once a person has answered a dialog."""
        while True:
            limit = inf if self._status.was_ready else self._profile.start_timeout
            waited, asked = self._status.question is not None, self._status.questions
            with anyio.move_on_after(limit):
                await self._context.terminals.wait_ready(self._terminal_id)
                return
            if self._status.question is None and not waited and asked == self._status.questions:
                raise StartFailed(
                    f"the agent {self._profile.name} was not ready within {limit:g} s",
                    last_lines=await self._screen(),
                )

    async def _screen(self) -> str | None:
        try:
            return await self._context.terminals.screen(self._terminal_id)
        except ChangeoverError:
            return None

    async def _text(self, delivery: Delivery) -> str:
        if delivery.text is not None:
            return delivery.text
        thread_id = delivery.thread_id
        assert thread_id is not None
        [task] = await self._context.store.read(lambda tx: tx.messages(thread_id, limit=1))
        return task.text

    async def _taken(self, delivery: Delivery, taken: Taken) -> None:
        def work(tx: Tx) -> None:
            self._write(
                tx,
                delivery,
                EventType.TAKEN,
                {"source": taken.source, "enters": taken.enters, "turn": taken.turn},
                state=DeliveryState.DELIVERED,
                turn=taken.turn,
                delivered_at=self._context.now(),
                reason=None,
            )
            if delivery.thread_id and need(tx, delivery.thread_id).status is Status.PENDING:
                accept_for_terminal(tx, self._context, delivery.thread_id, self._terminal_id)

        await self._context.store.write(work)

    async def taken_late(self, fact: AgentFact) -> None:
        """The agent submitted, perhaps by a person's Enter, the text that was given up as uncertain."""
        await self.settled()
        deliveries = await self._context.store.read(lambda tx: tx.deliveries(self._terminal_id))
        doubtful = [each for each in deliveries if each.state is DeliveryState.UNCERTAIN]
        if doubtful:
            await self._taken(doubtful[-1], Taken(turn=fact.turn, source=fact.source, enters=0))

    async def _undelivered(self, delivery: Delivery, error: TerminalFailure) -> None:
        uncertain = isinstance(error, Uncertain)
        current = await self._context.store.read(lambda tx: tx.delivery(delivery.id)) or delivery
        await self._advance(
            current,
            EventType.UNCERTAIN if uncertain else EventType.DELIVERY_FAILED,
            state=DeliveryState.UNCERTAIN if uncertain else DeliveryState.FAILED,
            reason=error.detail,
        )
        if not uncertain:
            await self._on_failure(delivery, error)

    async def _advance(self, delivery: Delivery, event: EventType, **fields: object) -> Delivery:
        data = {"reason": fields.get("reason")}
        return await self._context.store.write(lambda tx: self._write(tx, delivery, event, data, **fields))

    def _write(
        self, tx: Tx, delivery: Delivery, event: EventType, data: dict[str, Any], **fields: object
    ) -> Delivery:
        after = msgspec.structs.replace(delivery, version=delivery.version + 1, **fields)
        tx.replace_delivery(delivery, after)
        tx.append_event(
            self._context.event(
                event,
                thread_id=delivery.thread_id,
                terminal_id=self._terminal_id,
                delivery=delivery.id,
                **data,
            )
        )
        return after
