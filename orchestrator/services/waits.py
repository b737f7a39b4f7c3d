"""Seeing and waiting: who may see a handoff, how it looks now, and the wait for its end."""

import time

import msgspec

from orchestrator.domain.chain import Link
from orchestrator.domain.errors import HandoffCycle, ThreadNotFound
from orchestrator.domain.identity import Caller
from orchestrator.domain.thread import Actor, Thread, roles_of
from orchestrator.ports import Tx
from orchestrator.services.bus import THREAD_ENDED
from orchestrator.services.context import ServiceContext
from orchestrator.services.fleet import Fleet
from orchestrator.services.moves import need
from orchestrator.services.views import Phase, handoff_result, phase_of
from orchestrator.wire import HandoffResult, WaitRequest, WaitResponse, WaitState


class Waits:
    """Reads the store and the bus, and writes nothing but that a result was collected."""

    def __init__(self, context: ServiceContext, fleet: Fleet) -> None:
        self._context = context
        self._fleet = fleet

    async def wait(self, caller: Caller, request: WaitRequest) -> WaitResponse:
        """Waits until all (or any) have ended, the time is up, or the service is stopping.

        Holds no transaction while it waits. Raises `ThreadNotFound` for an id the caller takes no part in
        and `HandoffCycle` for a handoff that waits for the caller itself.
        """
        ids = request.handoff_ids or await self._uncollected(caller)
        need_all = request.mode == "all"
        deadline = time.monotonic() + request.timeout
        with self._context.bus.watch(ids, THREAD_ENDED) as watch:
            while True:
                threads = await self._context.store.read(lambda tx: self._awaited(tx, caller, ids))
                done = [not thread.open for thread in threads]
                if all(done) if need_all or not threads else any(done):
                    self._fleet.later(lambda: self._collect(caller, threads))  # noqa: B023 - returns now
                    return await self._answer(threads, WaitState.DONE)
                if self._context.bus.stopping:
                    return await self._answer(threads, WaitState.INTERRUPTED)
                left = deadline - time.monotonic()
                if left <= 0:
                    return await self._answer(threads, WaitState.TIMED_OUT)
                await watch.wait(left)

    def visible(self, tx: Tx, caller: Caller, handoff_id: str) -> Thread:
        """The thread, if the caller takes part in it: a stranger does not learn that it exists."""
        thread = tx.thread(handoff_id)
        actor = Actor(principal=caller.principal, session=caller.session)
        if thread is None or not (roles_of(thread, actor) or self._is_own_work(tx, caller, thread)):
            raise ThreadNotFound(
                f"there is no handoff {handoff_id} that you take part in", thread_id=handoff_id
            )
        return thread

    def _is_own_work(self, tx: Tx, caller: Caller, thread: Thread) -> bool:
        """A terminal may read the handoff it was started for before it has provably taken it."""
        if caller.terminal_id is None:
            return False
        terminal = tx.terminal(caller.terminal_id)
        return terminal is not None and terminal.thread_id == thread.id

    def _awaited(self, tx: Tx, caller: Caller, ids: list[str]) -> list[Thread]:
        above = {link.thread_id for link in chain_of(tx, caller)}
        waiting = next((each for each in ids if each in above), None)
        if waiting is not None:
            raise HandoffCycle(
                f"the handoff {waiting} waits for this agent, which cannot wait for it", chain=[waiting]
            )
        return [self.visible(tx, caller, each) for each in ids]

    async def _uncollected(self, caller: Caller) -> list[str]:
        """The caller's own handoffs that are open or whose end no wait of theirs has told them yet."""

        def work(tx: Tx) -> list[str]:
            mine = tx.threads(sender=caller.principal, uncollected=True, limit=100)
            return [thread.id for thread in reversed(mine)]

        return await self._context.store.read(work)

    async def _collect(self, caller: Caller, threads: list[Thread]) -> None:
        fresh = [
            each.id
            for each in threads
            if not each.open and each.collected_at is None and each.sender == caller.principal
        ]
        if not fresh:
            return

        def work(tx: Tx) -> None:
            for thread_id in fresh:
                thread = need(tx, thread_id)
                if thread.collected_at is None:
                    after = msgspec.structs.replace(
                        thread, collected_at=self._context.now(), version=thread.version + 1
                    )
                    tx.replace_thread(thread, after)

        await self._context.store.write(work)

    async def _answer(self, threads: list[Thread], wait: WaitState) -> WaitResponse:
        views = [await self.view(thread, wait=wait) for thread in threads]
        return WaitResponse(wait=wait.value, handoffs=views)

    async def view(
        self, thread: Thread, *, wait: WaitState | None = None, full: bool = True
    ) -> HandoffResult:
        now = self._context.now()
        if not thread.open:
            terminal_id = None
            if thread.recipient is None:  # it ended before its terminal had taken it
                terminal_id = await self._context.store.read(lambda tx: _terminal_of(tx, thread))
            return handoff_result(thread, now, terminal_id=terminal_id, wait=wait.value if wait else None)

        def work(tx: Tx) -> tuple[Phase, str | None]:
            return phase_of(tx.events(thread_id=thread.id)), _terminal_of(tx, thread)

        phase, terminal_id = await self._context.store.read(work)
        return handoff_result(
            thread,
            now,
            terminal_id=terminal_id,
            phase=phase,
            place=self._fleet.place(thread.id),
            partial=await self.partial_of(thread) if full else None,
            wait=wait.value if wait else None,
        )

    async def partial_of(self, thread: Thread) -> str | None:
        if thread.recipient is None:
            return None
        return await self._context.terminals.partial(thread.recipient.id)


def _terminal_of(tx: Tx, thread: Thread) -> str | None:
    """The terminal that was last started for it."""
    return next((each.id for each in tx.terminals(thread_id=thread.id, limit=1)), None)


def chain_of(tx: Tx, caller: Caller) -> list[Link]:
    """The agents from the caller up to the one that no handoff started."""
    links: list[Link] = []
    terminal = tx.terminal(caller.terminal_id) if caller.terminal_id else None
    while terminal is not None:
        thread = tx.thread(terminal.thread_id) if terminal.thread_id else None
        links.append(
            Link(
                profile=terminal.profile,
                thread_id=thread.id if thread else None,
                waits=thread.waits if thread else False,
            )
        )
        giver = thread.sender if thread else None
        terminal = tx.terminal(giver.id) if giver is not None else None
    return links
