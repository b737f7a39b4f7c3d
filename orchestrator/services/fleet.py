"""The fleet: all keepers of this service, who gets a terminal next, and the terminals that live already."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from orchestrator.domain.agent import AgentFact
from orchestrator.domain.errors import ChangeoverError
from orchestrator.domain.event import EventType, NewEvent
from orchestrator.domain.identity import SERVICE, Credential
from orchestrator.domain.profile import Profile
from orchestrator.domain.terminal import Delivery, Terminal
from orchestrator.domain.thread import Change, Move, Status, Thread
from orchestrator.ports import Tx
from orchestrator.services.bus import THREAD_ENDED
from orchestrator.services.context import ServiceContext
from orchestrator.services.keeper import Keeper
from orchestrator.services.moves import BY_SERVICE, failed, move, need, settle_failure
from orchestrator.services.queue import FairQueue, Ticket

log = logging.getLogger("changeover.fleet")

END_ALL_SECONDS = 10.0


class NewTerminal(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a terminal for a handoff, with what its keeper needs, before they are stored."""

    terminal: Terminal
    profile: Profile
    credential: Credential
    token: str
    task: Delivery
    text: str
    starting: NewEvent

    def insert(self, tx: Tx) -> None:
        tx.insert_credential(self.credential)
        tx.insert_terminal(self.terminal)
        tx.insert_delivery(self.task)
        tx.append_event(self.starting)


class Fleet:
    """Starts a terminal for each queued handoff when its turn comes. Runs in the given task group."""

    def __init__(self, context: ServiceContext, tasks: TaskGroup) -> None:
        self._context = context
        self._tasks = tasks
        self._queue = FairQueue(context.limits.max_terminals, context.limits.max_terminals_per_caller)
        self._keepers: dict[str, Keeper] = {}
        context.terminals.listen(self._told)

    @property
    def running(self) -> int:
        return self._queue.running

    @property
    def full(self) -> bool:
        return self._queue.full

    def keeper(self, terminal_id: str) -> Keeper | None:
        return self._keepers.get(terminal_id)

    def place(self, thread_id: str) -> int | None:
        return self._queue.place(thread_id)

    def later(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Runs `work` beside everything else, for what nobody has to wait for."""
        self._tasks.start_soon(work)

    def reserve(self, thread: Thread, profile: Profile, text: str) -> NewTerminal | None:
        """A place and the rows of a terminal for a handoff about to be stored; None if it has to wait.

        Its maker stores the rows with the thread, then calls `run`, or `release` if that failed.
        """
        if not self._queue.take(self._ticket(thread)):
            return None
        return self._new_terminal(thread, profile, text)

    def run(self, new: NewTerminal) -> None:
        """Starts a stored terminal in its reserved place."""
        self._tasks.start_soon(self._start, new)

    def release(self, thread_id: str) -> None:
        self._queue.remove(thread_id)
        self._dispatch()

    async def enqueue(self, thread: Thread) -> None:
        """A stored handoff that waits for its terminal, which it gets now or when its turn comes."""
        self._queue.add(self._ticket(thread))
        self._dispatch()
        place = self._queue.place(thread.id)
        if place is not None:
            event = self._context.event(
                EventType.QUEUED, thread_id=thread.id, place=place, limit=self._queue.limit
            )
            await self._context.store.write(lambda tx: tx.append_event(event))
            self._tasks.start_soon(self._watch_queued, thread)

    def launch(self, terminal: Terminal, profile: Profile, token: str) -> Keeper:
        """Starts a long-lived agent whose row is stored."""
        self._queue.occupy(terminal.id, str(terminal.by))
        keeper = Keeper(self._context, terminal, profile, token)
        self._keepers[keeper.id] = keeper
        self._tasks.start_soon(self._keep, keeper, terminal.id, keeper.run)
        return keeper

    async def adopt(self, terminals: list[tuple[Terminal, Profile]]) -> None:
        """Takes over the terminals of the last run, the dead ones too: their facts settle their handoffs.

        A terminal that was recorded and never made leaves its handoff as if it had not been: it is queued.
        """
        for terminal, profile in terminals:
            self._keepers[terminal.id] = Keeper(self._context, terminal, profile)
        living = await self._context.terminals.adopt(terminals)
        for terminal, _ in terminals:
            keeper = self._keepers[terminal.id]
            if terminal.id not in living and terminal.pane_id is None:
                del self._keepers[terminal.id]
                await self._context.terminals.close(terminal.id)
                await self._context.store.write(keeper.forget)
                continue
            place = _place(terminal)
            self._queue.occupy(place, str(terminal.by))
            run = partial(keeper.run, living.get(terminal.id), restarted=True)
            self._tasks.start_soon(self._keep, keeper, place, run)

    async def end_all(self) -> None:
        """Ends every agent, and with it its handoff."""
        keepers = list(self._keepers.values())
        for keeper in keepers:
            await keeper.interrupt()
        with anyio.move_on_after(END_ALL_SECONDS):
            for keeper in keepers:
                await keeper.done.wait()

    def _told(self, fact: AgentFact) -> None:
        keeper = self._keepers.get(fact.terminal_id)
        if keeper is not None:
            keeper.tell(fact)

    def _dispatch(self) -> None:
        while (ticket := self._queue.next()) is not None:
            self._tasks.start_soon(self._run, ticket)

    async def _keep(self, keeper: Keeper, place: str, run: Callable[[], Awaitable[None]]) -> None:
        self._keepers[keeper.id] = keeper
        try:
            await run()
        except Exception as error:  # a fault of ours costs this one agent, never the service
            log.exception("keeping the terminal %s failed", keeper.id)
            await keeper.abandon(error)
        finally:
            self._keepers.pop(keeper.id, None)
            self._queue.remove(place)
            keeper.done.set()
        self._dispatch()

    def _ticket(self, thread: Thread) -> Ticket:
        giver = self._keepers.get(thread.sender.id)
        lender = _place(giver.terminal) if giver is not None else None
        return Ticket(thread_id=thread.id, caller=str(thread.sender), lender=lender)

    async def _run(self, ticket: Ticket) -> None:
        try:
            new = await self._make_terminal(ticket.thread_id)
        except ChangeoverError as error:
            change = failed(error.code, error.detail, None)
            await self._context.store.write(
                lambda tx: settle_failure(tx, self._context, ticket.thread_id, change)
            )
            new = None
        if new is None:
            self.release(ticket.thread_id)
        else:
            await self._start(new)

    async def _start(self, new: NewTerminal) -> None:
        keeper = Keeper(self._context, new.terminal, new.profile, new.token, (new.task, new.text))
        await self._keep(keeper, _place(new.terminal), keeper.run)

    async def _make_terminal(self, thread_id: str) -> NewTerminal | None:
        """Stores a terminal for a queued handoff; None if that ended while it waited."""
        store = self._context.store

        def read(tx: Tx) -> tuple[Thread, str]:
            return need(tx, thread_id), tx.messages(thread_id, limit=1)[0].text

        thread, text = await store.read(read)
        profile = await load_profile(
            self._context, thread.profile or "", thread.working_directory, thread.model
        )
        new = self._new_terminal(thread, profile, text)

        def insert(tx: Tx) -> bool:
            pending = need(tx, thread_id).status is Status.PENDING
            if pending:
                new.insert(tx)
            return pending

        return new if await store.write(insert) else None

    def _new_terminal(self, thread: Thread, profile: Profile, text: str) -> NewTerminal:
        context = self._context
        token, credential = context.credentials.for_terminal(context.ids.new("term"))
        terminal_id = credential.principal.id
        return NewTerminal(
            terminal=Terminal(
                id=terminal_id,
                profile=profile.name,
                driver=profile.driver,
                instance=context.instance,
                working_directory=thread.working_directory or "",
                started_at=context.now(),
                by=thread.sender,
                thread_id=thread.id,
                credential_id=credential.id,
            ),
            profile=profile,
            credential=credential,
            token=token,
            task=Delivery(
                id=context.ids.new("dlv"),
                terminal_id=terminal_id,
                thread_id=thread.id,
                by=SERVICE,
                created_at=context.now(),
                position=1,
            ),
            text=text,
            starting=context.event(EventType.STARTING, thread_id=thread.id, terminal_id=terminal_id),
        )

    async def _watch_queued(self, thread: Thread) -> None:
        """A handoff that ends or expires while it waits gives up its place."""
        context = self._context
        with context.bus.watch([thread.id], THREAD_ENDED) as watch:
            while self._queue.place(thread.id) is not None:
                current = await context.store.read(lambda tx: need(tx, thread.id))
                if not current.open:
                    self._queue.remove(thread.id)
                    self._dispatch()
                    return
                left: float | None = None
                if current.deadline_at is not None:
                    left = (current.deadline_at - context.now()).total_seconds()
                    if left <= 0:
                        await context.store.write(lambda tx: self._expire(tx, thread.id))
                        continue
                await watch.wait(*([left] if left is not None else []))

    def _expire(self, tx: Tx, thread_id: str) -> None:
        thread = need(tx, thread_id)
        if thread.status is Status.PENDING:
            move(tx, self._context, thread, Move.CANCEL, BY_SERVICE, Change(cancel_reason="expired"))


def _place(terminal: Terminal) -> str:
    """Under which name the queue counts a terminal."""
    return terminal.thread_id or terminal.id


async def load_profile(context: ServiceContext, name: str, folder: str | None, model: str | None) -> Profile:
    """The profile as seen from a folder, with the call's model in place of its own."""
    where = Path(folder) if folder else None
    profile = await anyio.to_thread.run_sync(lambda: context.profiles.get(name, folder=where))
    return msgspec.structs.replace(profile, model=model) if model is not None else profile
