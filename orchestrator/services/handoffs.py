"""Blocking handoffs as callers see them: make one, wait for it, read it, stop it, report its result.

The work is a stored job that runs detached; a call only ever waits on it. Nothing a caller does or suffers
while it waits (a time-out, a cancelled call, a lost connection) changes the job.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from orchestrator.domain.chain import check_chain
from orchestrator.domain.errors import (
    Interrupted,
    InvalidParams,
)
from orchestrator.domain.event import EventType
from orchestrator.domain.identity import Caller, Principal, Scope
from orchestrator.domain.profile import OnTimeout, Profile
from orchestrator.domain.thread import (
    Actor,
    Change,
    Message,
    Move,
    Origin,
    Outcome,
    Status,
    Thread,
)
from orchestrator.ports import Tx
from orchestrator.services.context import ServiceContext
from orchestrator.services.directories import working_directory
from orchestrator.services.fleet import Fleet, load_profile
from orchestrator.services.idempotency import KeyUse, once
from orchestrator.services.moves import move, need
from orchestrator.services.shield import unbroken
from orchestrator.services.texts import check_size
from orchestrator.services.views import Phase, handoff_result, thread_view
from orchestrator.services.waits import Waits, chain_of
from orchestrator.wire import (
    OUTPUT_PAGE_CHARS,
    CompleteRequest,
    HandoffList,
    HandoffRequest,
    HandoffResult,
    OutputPage,
    ThreadView,
    WaitRequest,
    WaitResponse,
)

_MAX_LISTED = 200


class Handoffs:
    def __init__(self, context: ServiceContext, fleet: Fleet) -> None:
        self._context = context
        self._fleet = fleet
        self._waits = Waits(context, fleet)
        self._last_paged: tuple[tuple[Principal, str], Thread] | None = None

    async def start(self, caller: Caller, request: HandoffRequest, key: str | None) -> HandoffResult:
        """Stores the handoff and queues it. Raises for an unknown profile, a bad folder, a refused chain."""
        if self._context.bus.stopping:
            raise Interrupted("the service is stopping: no new handoff is taken")
        check_size(request.message)
        # How long the caller waits, and from where it calls, is not part of the work.
        work = [request.agent_profile, request.message, request.working_directory, request.model]
        use = KeyUse.of(caller, "handoff", key, work)
        replayed = await self._replay(use)
        if replayed is not None:
            return replayed
        directory, profile = await self._place(caller, request)
        thread = self._new(caller, request, directory, profile)
        return await unbroken(lambda: self._store(caller, request, use, thread, profile))

    async def _store(
        self,
        caller: Caller,
        request: HandoffRequest,
        use: KeyUse | None,
        thread: Thread,
        profile: Profile,
    ) -> HandoffResult:
        """Stores the handoff, with its terminal if one is free, and sets it going."""
        new = self._fleet.reserve(thread, profile, request.message)
        message = Message(
            thread_id=thread.id,
            sequence_no=1,
            author=caller.principal,
            text=request.message,
            created_at=thread.created_at,
        )

        def create(tx: Tx) -> HandoffResult:
            parent = self._check(tx, caller, request)
            made = msgspec.structs.replace(thread, parent_id=parent)
            tx.insert_thread(made)
            tx.append_message(message)
            tx.append_event(
                self._context.event(
                    EventType.CREATED, thread_id=made.id, by=caller.principal, profile=profile.name
                )
            )
            if new is not None:
                new.insert(tx)
            return handoff_result(made, self._context.now(), phase=Phase())

        again = True
        try:
            result, again = await self._context.store.write(
                lambda tx: once(tx, use, self._context.now(), HandoffResult, create)
            )
        finally:
            if again and new is not None:  # nothing was stored
                self._fleet.release(thread.id)
        if again:
            return msgspec.structs.replace(result, replayed=True)
        if new is not None:
            self._fleet.run(new)
            return result
        await self._fleet.enqueue(thread)
        return msgspec.structs.replace(result, queue_place=self._fleet.place(thread.id))

    async def result(self, caller: Caller, handoff_id: str) -> HandoffResult:
        thread = await self._context.store.read(lambda tx: self._waits.visible(tx, caller, handoff_id))
        return await self._waits.view(thread)

    async def wait(self, caller: Caller, request: WaitRequest) -> WaitResponse:
        """See `Waits.wait`."""
        return await self._waits.wait(caller, request)

    async def stop(self, caller: Caller, handoff_id: str, key: str | None) -> HandoffResult:
        """Stops the work; what the agent has answered so far is kept as the partial result."""
        thread = await self._context.store.read(lambda tx: self._waits.visible(tx, caller, handoff_id))
        terminal = thread.recipient.id if thread.recipient else None
        partial = await self._context.terminals.partial(terminal) if terminal else None
        use = KeyUse.of(caller, "stop", key, handoff_id)
        actor = Actor(principal=caller.principal, session=caller.session)
        facts: dict[str, Any] = {"partial": True} if partial is not None else {}
        change = Change(result=partial, result_facts=facts or None)

        def effect(tx: Tx) -> HandoffResult:
            stopped = move(tx, self._context, need(tx, handoff_id), Move.STOP, actor, change)
            return handoff_result(stopped, self._context.now())

        return await self._once(use, effect)

    async def complete(
        self, caller: Caller, handoff_id: str, request: CompleteRequest, key: str | None
    ) -> HandoffResult:
        """The delegate's own report, which is the output; the agent's terminal is then closed."""
        check_size(request.result)
        use = KeyUse.of(caller, "complete", key, [handoff_id, request])
        actor = Actor(principal=caller.principal, session=caller.session)
        outcome = Outcome(request.outcome)
        facts: dict[str, Any] = {"source": "report"}
        if outcome is Outcome.FAILED:
            facts["error"] = {"code": "agent_failed", "detail": "the agent reported that it failed"}
        change = Change(outcome=outcome, result=request.result, result_facts=facts)

        def effect(tx: Tx) -> HandoffResult:
            thread = self._waits.visible(tx, caller, handoff_id)
            done = move(tx, self._context, thread, Move.COMPLETE, actor, change)
            return handoff_result(done, self._context.now())

        return await self._once(use, effect)

    async def output(self, caller: Caller, handoff_id: str, offset: int) -> OutputPage:
        """One page of the answer from a character offset; of an open handoff, of what there is so far."""
        thread = await self._paged(caller, handoff_id)
        answer = thread.result if not thread.open else await self._waits.partial_of(thread)
        answer = answer or ""
        if not 0 <= offset <= len(answer):
            raise InvalidParams(f"offset {offset} lies outside the answer: 0 to {len(answer)}", path="offset")
        page = answer[offset : offset + OUTPUT_PAGE_CHARS]
        end = offset + len(page)
        if end == len(answer):
            self._last_paged = None
        return OutputPage(
            handoff_id=handoff_id,
            offset=offset,
            output=page,
            total_chars=len(answer),
            next_offset=end if end < len(answer) else None,
            partial=thread.open or bool((thread.result_facts or {}).get("partial")),
        )

    async def _paged(self, caller: Caller, handoff_id: str) -> Thread:
        """The thread, from memory while one who pages through its answer goes on: it never changes again."""
        last = self._last_paged
        if last is not None and last[0] == (caller.principal, handoff_id):
            return last[1]
        thread = await self._context.store.read(lambda tx: self._waits.visible(tx, caller, handoff_id))
        if not thread.open:
            self._last_paged = ((caller.principal, handoff_id), thread)
        return thread

    async def list(
        self, caller: Caller, statuses: Sequence[Status] | None, before: str | None, limit: int
    ) -> HandoffList:
        """Newest first: a person sees every handoff of the service, others those they gave."""
        if not 1 <= limit <= _MAX_LISTED:
            raise InvalidParams(f"limit {limit} is out of range: 1 to {_MAX_LISTED}", path="limit")
        sender = None if caller.scope is Scope.PERSON else caller.principal
        found = await self._context.store.read(
            lambda tx: tx.threads(statuses=statuses, sender=sender, before=before, limit=limit + 1)
        )
        items = [
            msgspec.structs.replace(await self._waits.view(each, full=False), output=None)
            for each in found[:limit]
        ]
        return HandoffList(items=items, next_cursor=found[limit - 1].id if len(found) > limit else None)

    async def thread(self, caller: Caller, thread_id: str) -> ThreadView:
        def work(tx: Tx) -> ThreadView:
            thread = self._waits.visible(tx, caller, thread_id)
            return thread_view(thread, tx.messages(thread_id), tx.events(thread_id=thread_id))

        return await self._context.store.read(work)

    # making one

    async def _place(self, caller: Caller, request: HandoffRequest) -> tuple[str, Profile]:
        terminal = None
        if caller.terminal_id is not None:
            own = caller.terminal_id
            row = await self._context.store.read(lambda tx: tx.terminal(own))
            terminal = row.working_directory if row else None
        seen_from = request.working_directory or terminal or request.caller_directory
        profile = await load_profile(self._context, request.agent_profile, seen_from, request.model)
        directory = await working_directory(
            given=request.working_directory,
            terminal=terminal,
            caller=request.caller_directory,
            profile=profile.working_directory,
            roots=self._context.limits.roots,
            trusted_caller=caller.scope is Scope.PERSON,
        )
        return directory, profile

    def _new(self, caller: Caller, request: HandoffRequest, directory: str, profile: Profile) -> Thread:
        now = self._context.now()
        stops = profile.on_timeout is OnTimeout.STOP
        seconds = min(request.timeout, profile.max_duration) if stops else profile.max_duration
        return Thread(
            id=self._context.ids.new("ho"),
            origin=Origin.BLOCKING,
            sender=caller.principal,
            created_at=now,
            runner=self._context.instance,
            waits=request.waits,
            profile=profile.name,
            model=request.model,
            working_directory=directory,
            deadline_at=now + timedelta(seconds=seconds),
        )

    def _check(self, tx: Tx, caller: Caller, request: HandoffRequest) -> str | None:
        """The parent's id. Raises if the chain would close or grow too long."""
        chain = chain_of(tx, caller)
        limit = self._context.limits.max_depth
        check_chain(request.agent_profile, chain, waits=request.waits, limit=limit)
        return chain[0].thread_id if chain else None

    async def _replay(self, use: KeyUse | None) -> HandoffResult | None:
        """The answer stored for a key, before anything about the request is checked again."""
        if use is None:
            return None

        def work(tx: Tx) -> HandoffResult | None:
            if tx.key(use.principal, use.operation, use.key) is None:
                return None
            return once(tx, use, self._context.now(), HandoffResult, _unreachable)[0]

        found = await self._context.store.read(work)
        return msgspec.structs.replace(found, replayed=True) if found is not None else None

    async def _once(self, use: KeyUse | None, effect: Any) -> HandoffResult:
        result, again = await self._context.store.write(
            lambda tx: once(tx, use, self._context.now(), HandoffResult, effect)
        )
        return msgspec.structs.replace(result, replayed=again)


def _unreachable(tx: Tx) -> HandoffResult:
    raise AssertionError("a key that was found runs no effect")
