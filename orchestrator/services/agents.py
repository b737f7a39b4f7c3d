"""Agents and their terminals as callers see them: start one by name, look at it, send it a text, end it."""

import os
from collections.abc import Sequence

import anyio.to_thread
import msgspec

from orchestrator.domain.errors import InvalidParams, NameTaken, Refused, TerminalNotFound
from orchestrator.domain.event import EventType
from orchestrator.domain.identity import Caller, Scope
from orchestrator.domain.profile import Profile
from orchestrator.domain.terminal import Delivery, DeliveryState, Terminal, TerminalState
from orchestrator.ports import Tx
from orchestrator.services.bus import TERMINAL_ENDED
from orchestrator.services.context import ServiceContext
from orchestrator.services.directories import working_directory
from orchestrator.services.fleet import Fleet, load_profile
from orchestrator.services.idempotency import KeyUse, once
from orchestrator.services.shield import unbroken
from orchestrator.services.texts import check_size, check_visible
from orchestrator.services.views import delivery_view, terminal_view
from orchestrator.wire import (
    MAX_SCREEN_LINES,
    CallerView,
    DeliveryList,
    DeliveryView,
    DriverView,
    ProfileList,
    ProfileView,
    ScreenView,
    SendTextRequest,
    ServiceView,
    StartAgentRequest,
    TerminalList,
    TerminalView,
)

MAX_NAME_CHARS = 200
TERMINAL_PREFIX = "term_"


class Agents:
    def __init__(self, context: ServiceContext, fleet: Fleet, service: ServiceView) -> None:
        self._context = context
        self._fleet = fleet
        self._service = service

    async def start(self, caller: Caller, request: StartAgentRequest, key: str | None) -> TerminalView:
        """Starts a long-lived agent. Raises `NameTaken` while one of that name lives."""
        if request.name is not None:
            _check_name(request.name)
        profile = await load_profile(
            self._context,
            request.agent_profile,
            request.working_directory or request.caller_directory,
            request.model,
        )
        directory = await working_directory(
            given=request.working_directory,
            terminal=None,
            caller=request.caller_directory,
            profile=profile.working_directory,
            roots=self._context.limits.roots,
            trusted_caller=caller.scope is Scope.PERSON,
        )
        return await self._start(caller, request, key, profile, directory)

    async def _start(
        self, caller: Caller, request: StartAgentRequest, key: str | None, profile: Profile, directory: str
    ) -> TerminalView:
        context = self._context
        token, credential = context.credentials.for_terminal(context.ids.new("term"))
        terminal = Terminal(
            id=credential.principal.id,
            profile=profile.name,
            driver=profile.driver,
            instance=context.instance,
            working_directory=directory,
            started_at=context.now(),
            by=caller.principal,
            name=request.name,
            credential_id=credential.id,
        )

        def effect(tx: Tx) -> TerminalView:
            if request.name is not None and tx.terminals(name=request.name, living=True):
                raise NameTaken(
                    f"an agent named {request.name!r} lives: take another name, or close it first",
                    name=request.name,
                )
            if self._fleet.full:
                limit = context.limits.max_terminals
                raise Refused(
                    f"{limit} terminals run already, which is the limit (CHANGEOVER_MAX_TERMINALS)",
                    limit=limit,
                )
            tx.insert_credential(credential)
            tx.insert_terminal(terminal)
            tx.append_event(context.event(EventType.STARTING, terminal_id=terminal.id, by=caller.principal))
            return terminal_view(
                terminal, activity="starting", attach_command=context.terminals.attach_command(terminal.id)
            )

        use = KeyUse.of(caller, "start", key, request)

        async def start() -> TerminalView:
            view, again = await context.store.write(
                lambda tx: once(tx, use, context.now(), TerminalView, effect)
            )
            if not again:
                self._fleet.launch(terminal, profile, token)
            return view

        return await unbroken(start)

    async def list(self, caller: Caller, ended: bool) -> TerminalList:
        instance = self._context.instance
        found = await self._context.store.read(
            lambda tx: tx.terminals(instance=instance, living=not ended, limit=1000)
        )
        return TerminalList(items=[await self._view(each) for each in found])

    async def get(self, caller: Caller, id_or_name: str) -> TerminalView:
        return await self._view(await self._find(id_or_name))

    async def close(self, caller: Caller, id_or_name: str) -> TerminalView:
        """Ends the agent and its terminal and returns when both are gone."""
        terminal = await self._find(id_or_name, living=True)
        with self._context.bus.watch([terminal.id], TERMINAL_ENDED) as watch:
            keeper = self._fleet.keeper(terminal.id)
            if keeper is not None:
                keeper.close()
            while terminal.state is not TerminalState.ENDED and not self._context.bus.stopping:
                await watch.wait()
                terminal = await self._find(terminal.id)
        return await self._view(terminal)

    async def screen(self, caller: Caller, id_or_name: str, lines: int, colours: bool) -> ScreenView:
        if not 0 <= lines <= MAX_SCREEN_LINES:
            raise InvalidParams(f"lines {lines} is out of range: 0 to {MAX_SCREEN_LINES}", path="lines")
        terminal = await self._find(id_or_name)
        if terminal.state is TerminalState.ENDED:
            ending = terminal.exit or {}
            text = ending.get("last_lines") or f"[ended: {ending.get('reason', 'unknown')}]"
        else:
            text = await self._context.terminals.screen(terminal.id, lines=lines, colours=colours)
        return ScreenView(terminal_id=terminal.id, text=text)

    async def send(
        self, caller: Caller, id_or_name: str, request: SendTextRequest, key: str | None
    ) -> DeliveryView:
        """Queues a text for the agent's next turn boundary."""
        check_size(request.text)
        check_visible(request.text)
        terminal = await self._find(id_or_name, living=True)
        keeper = self._fleet.keeper(terminal.id)
        if keeper is not None and keeper.status.activity == "ended":
            raise _ended(terminal.id)
        delivery = Delivery(
            id=self._context.ids.new("dlv"),
            terminal_id=terminal.id,
            by=caller.principal,
            created_at=self._context.now(),
            text=request.text,
        )
        use = KeyUse.of(caller, "send", key, [terminal.id, request])

        def effect(tx: Tx) -> DeliveryView:
            now = tx.terminal(terminal.id)
            if now is None or now.state is TerminalState.ENDED:
                raise _ended(terminal.id)
            return delivery_view(tx.insert_delivery(delivery))

        async def queue() -> DeliveryView:
            view, _ = await self._context.store.write(
                lambda tx: once(tx, use, self._context.now(), DeliveryView, effect)
            )
            keeper = self._fleet.keeper(terminal.id)
            if keeper is not None:
                keeper.poke()
            return view

        return self._explained(await unbroken(queue))

    async def deliveries(self, caller: Caller, id_or_name: str) -> DeliveryList:
        terminal = await self._find(id_or_name)
        found = await self._context.store.read(lambda tx: tx.deliveries(terminal.id))
        return DeliveryList(items=[self._explained(delivery_view(each)) for each in found])

    def _explained(self, view: DeliveryView) -> DeliveryView:
        """A text that waits says what it waits for, as the agent is now."""
        keeper = self._fleet.keeper(view.terminal_id)
        if view.state != DeliveryState.QUEUED or keeper is None:
            return view
        return msgspec.structs.replace(view, reason=keeper.status.waits_for)

    async def profiles(self, caller: Caller) -> ProfileList:
        entries = await anyio.to_thread.run_sync(self._context.profiles.entries)
        return ProfileList(
            items=[
                ProfileView(
                    name=entry.name,
                    source=entry.source.kind,
                    path=entry.source.path,
                    description=entry.profile.description if entry.profile else "",
                    driver=entry.profile.driver if entry.profile else None,
                    model=entry.profile.model if entry.profile else None,
                    problems=entry.problems,
                )
                for entry in entries
            ]
        )

    async def drivers(self, caller: Caller) -> Sequence[DriverView]:
        found = await self._context.terminals.drivers()
        return [msgspec.convert(each, DriverView, from_attributes=True) for each in found]

    async def service(self, caller: Caller) -> ServiceView:
        return msgspec.structs.replace(self._service, terminals=self._fleet.running, pid=os.getpid())

    async def caller(self, caller: Caller) -> CallerView:
        own = caller.terminal_id
        row = await self._context.store.read(lambda tx: tx.terminal(own)) if own else None
        return CallerView(
            scope=caller.scope.value,
            principal=str(caller.principal),
            terminal_id=own,
            handoff_id=row.thread_id if row else None,
        )

    async def _find(self, id_or_name: str, *, living: bool = False) -> Terminal:
        """By id, else the living agent of that name, else the last one that had it."""

        def work(tx: Tx) -> Terminal | None:
            exact = tx.terminal(id_or_name)
            if exact is not None:
                return exact
            named = tx.terminals(name=id_or_name, living=True, limit=1)
            return next(iter(named or tx.terminals(name=id_or_name, limit=1)), None)

        found = await self._context.store.read(work)
        if found is None or (living and found.state is TerminalState.ENDED):
            raise TerminalNotFound(
                f"there is no {'living ' if living else ''}terminal or agent {id_or_name!r}",
                terminal_id=id_or_name,
            )
        return found

    async def _view(self, terminal: Terminal) -> TerminalView:
        keeper = self._fleet.keeper(terminal.id)
        if terminal.state is TerminalState.ENDED or keeper is None:
            return terminal_view(terminal, activity="ended")
        queued = await self._context.store.read(lambda tx: tx.deliveries(terminal.id, unsettled=True))
        return terminal_view(
            terminal,
            activity=keeper.status.activity,
            question=keeper.status.question,
            queued=len(queued),
            attach_command=self._context.terminals.attach_command(terminal.id),
        )


def _check_name(name: str) -> None:
    """A name is one segment of an address, is shown to people, and is never taken for a terminal's id."""
    usable = name.strip() and len(name) <= MAX_NAME_CHARS and name.isprintable() and "/" not in name
    if not usable or name.startswith(TERMINAL_PREFIX):
        raise InvalidParams(
            f"an agent's name has 1 to {MAX_NAME_CHARS} printable characters, is not blank, holds no / and"
            f" does not begin with {TERMINAL_PREFIX}",
            path="name",
        )


def _ended(terminal_id: str) -> TerminalNotFound:
    return TerminalNotFound(
        f"the terminal {terminal_id} has ended: nothing can be sent to it", terminal_id=terminal_id
    )
