"""Services in memory, small and honest, and a real server on loopback for the tests of the API.

Handoffs are kept in a dict and end when a test says so; waits hang until then. Nothing here starts an agent.
"""

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
import uvicorn

from orchestrator import wire
from orchestrator.domain.errors import (
    DuplicateIdempotencyKey,
    TerminalNotFound,
    ThreadNotFound,
    ThreadTerminal,
    Unauthenticated,
    UnknownProfile,
)
from orchestrator.domain.identity import Caller, Principal, PrincipalKind, Scope
from orchestrator.domain.thread import Status

WHEN = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
TOKENS = {scope.value: f"token-of-{scope.value}" for scope in Scope}


class Credentials:
    async def authenticate(self, token: str, session: str | None) -> Caller:
        for scope in Scope:
            if TOKENS[scope.value] == token:
                kind = PrincipalKind.PERSON if scope is Scope.ADMIN else PrincipalKind(scope.value)
                return Caller(principal=Principal(kind=kind, id=scope.value), scope=scope, session=session)
        raise Unauthenticated("the token is unknown")


class Handoffs:
    def __init__(self) -> None:
        self.results: dict[str, wire.HandoffResult] = {}
        self.requests: dict[str, wire.HandoffRequest] = {}
        self.keys: dict[str, tuple[bytes, str]] = {}
        self.callers: list[Caller] = []
        self.waiting = 0
        self.stopping = False
        self.changed = anyio.Event()

    async def start(
        self, caller: Caller, request: wire.HandoffRequest, key: str | None
    ) -> wire.HandoffResult:
        self.callers.append(caller)
        if request.agent_profile == "broken":
            raise RuntimeError("SELECT secret FROM /etc/passwd")
        if request.agent_profile != "echo":
            raise UnknownProfile("the known profiles are: echo", known=["echo"])
        payload = msgspec.json.encode(request, order="sorted")
        if key is not None and key in self.keys:
            first, handoff_id = self.keys[key]
            if first != payload:
                raise DuplicateIdempotencyKey("the key was used with another payload")
            return msgspec.structs.replace(self.results[handoff_id], replayed=True)
        result = wire.HandoffResult(
            handoff_id=f"thr_{len(self.results) + 1}",
            status="accepted",
            agent_profile=request.agent_profile,
            duration_s=0.0,
        )
        self.results[result.handoff_id] = result
        self.requests[result.handoff_id] = request
        if key is not None:
            self.keys[key] = (payload, result.handoff_id)
        return result

    def finish(self, handoff_id: str, output: str) -> None:
        done = {"status": "completed", "outcome": "succeeded", "output": output, "output_chars": len(output)}
        self._put(msgspec.structs.replace(self.results[handoff_id], **done))

    def _put(self, result: wire.HandoffResult) -> wire.HandoffResult:
        self.results[result.handoff_id] = result
        self.wake()
        return result

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def result(self, caller: Caller, handoff_id: str) -> wire.HandoffResult:
        if handoff_id not in self.results:
            raise ThreadNotFound("there is no such handoff")
        return self.results[handoff_id]

    async def wait(self, caller: Caller, request: wire.WaitRequest) -> wire.WaitResponse:
        ids = request.handoff_ids or list(self.results)
        handoffs = [await self.result(caller, handoff_id) for handoff_id in ids]
        self.waiting += 1
        self.wake()
        try:
            with anyio.move_on_after(request.timeout):
                while not self.stopping and not self._over(ids, request.mode):
                    await self.changed.wait()
        finally:
            self.waiting -= 1
            self.wake()
        ended = "done" if self._over(ids, request.mode) else "interrupted" if self.stopping else "timed_out"
        handoffs = [self.results[handoff_id] for handoff_id in ids]
        return wire.WaitResponse(wait=ended, handoffs=handoffs)

    def _over(self, ids: Sequence[str], mode: str) -> bool:
        return (any if mode == "any" else all)(self.results[each].outcome is not None for each in ids)

    async def until(self, waiting: int) -> None:
        """Until that many calls hang in `wait`."""
        while self.waiting != waiting:
            await self.changed.wait()

    async def stop(self, caller: Caller, handoff_id: str, key: str | None) -> wire.HandoffResult:
        result = await self.result(caller, handoff_id)
        return self._put(msgspec.structs.replace(result, status="completed", outcome="interrupted"))

    async def complete(
        self, caller: Caller, handoff_id: str, request: wire.CompleteRequest, key: str | None
    ) -> wire.HandoffResult:
        result = await self.result(caller, handoff_id)
        if result.outcome is not None:
            raise ThreadTerminal("the handoff is completed", outcome=result.outcome)
        return self._put(
            msgspec.structs.replace(
                result, status="completed", outcome=request.outcome, output=request.result
            )
        )

    async def output(self, caller: Caller, handoff_id: str, offset: int) -> wire.OutputPage:
        text = (await self.result(caller, handoff_id)).output or ""
        page = text[offset : offset + 4]
        end = offset + len(page)
        return wire.OutputPage(
            handoff_id=handoff_id,
            offset=offset,
            output=page,
            total_chars=len(text),
            next_offset=end if end < len(text) else None,
        )

    async def list(
        self, caller: Caller, statuses: Sequence[Status] | None, before: str | None, limit: int
    ) -> wire.HandoffList:
        newest = [each for each in reversed(self.results.values()) if not statuses or each.status in statuses]
        if before is not None:
            newest = newest[[each.handoff_id for each in newest].index(before) + 1 :]
        more = len(newest) > limit
        return wire.HandoffList(
            items=newest[:limit], next_cursor=newest[limit - 1].handoff_id if more else None
        )

    async def thread(self, caller: Caller, thread_id: str) -> wire.ThreadView:
        result = await self.result(caller, thread_id)
        first = wire.MessageView(
            sequence_no=1,
            author=str(caller.principal),
            text=self.requests[thread_id].message,
            created_at=WHEN,
        )
        return wire.ThreadView(
            thread_id=thread_id,
            origin="blocking",
            status=result.status,
            sender=str(caller.principal),
            agent_profile=result.agent_profile,
            attempt=1,
            created_at=WHEN,
            messages=[first],
            events=[],
            outcome=result.outcome,
            recipient=None,
            model=None,
            working_directory=None,
            parent_id=None,
            accepted_at=None,
            ended_at=None,
            deadline_at=None,
            cancel_reason=None,
            result_facts=None,
        )


class Agents:
    def __init__(self) -> None:
        self.terminals: dict[str, wire.TerminalView] = {}
        self.texts: list[str] = []

    async def start(
        self, caller: Caller, request: wire.StartAgentRequest, key: str | None
    ) -> wire.TerminalView:
        terminal_id = f"trm_{len(self.terminals) + 1}"
        self.terminals[terminal_id] = wire.TerminalView(
            terminal_id=terminal_id,
            agent_profile=request.agent_profile,
            driver="scripted",
            state="living",
            activity="ready",
            working_directory=request.working_directory or "/",
            started_at=WHEN,
            name=request.name,
        )
        return self.terminals[terminal_id]

    async def list(self, caller: Caller, ended: bool) -> wire.TerminalList:
        living = [each for each in self.terminals.values() if ended or each.ended_at is None]
        return wire.TerminalList(items=living)

    async def get(self, caller: Caller, id_or_name: str) -> wire.TerminalView:
        for terminal in self.terminals.values():
            if id_or_name in (terminal.terminal_id, terminal.name):
                return terminal
        raise TerminalNotFound("there is no such terminal")

    async def close(self, caller: Caller, id_or_name: str) -> wire.TerminalView:
        ended = msgspec.structs.replace(await self.get(caller, id_or_name), state="ended", ended_at=WHEN)
        self.terminals[ended.terminal_id] = ended
        return ended

    async def screen(self, caller: Caller, id_or_name: str, lines: int, colours: bool) -> wire.ScreenView:
        terminal = await self.get(caller, id_or_name)
        return wire.ScreenView(terminal_id=terminal.terminal_id, text=f"{lines} lines, colours {colours}")

    async def send(
        self, caller: Caller, id_or_name: str, request: wire.SendTextRequest, key: str | None
    ) -> wire.DeliveryView:
        terminal = await self.get(caller, id_or_name)
        self.texts.append(request.text)
        return self._delivery(terminal, len(self.texts))

    async def deliveries(self, caller: Caller, id_or_name: str) -> wire.DeliveryList:
        terminal = await self.get(caller, id_or_name)
        return wire.DeliveryList(
            items=[self._delivery(terminal, place) for place in range(1, len(self.texts) + 1)]
        )

    def _delivery(self, terminal: wire.TerminalView, place: int) -> wire.DeliveryView:
        return wire.DeliveryView(
            delivery_id=f"dlv_{place}",
            terminal_id=terminal.terminal_id,
            position=place,
            state="queued",
            created_at=WHEN,
        )

    async def profiles(self, caller: Caller) -> wire.ProfileList:
        return wire.ProfileList(items=[wire.ProfileView(name="echo", source="built-in", path="echo.md")])

    async def drivers(self, caller: Caller) -> Sequence[wire.DriverView]:
        return [wire.DriverView(name="scripted", program="python3", found=True)]

    async def service(self, caller: Caller) -> wire.ServiceView:
        return wire.ServiceView(
            version="0",
            instance="ins_1",
            home="/",
            url="http://localhost",
            database="memory",
            pid=1,
            terminals=len(self.terminals),
            max_terminals=4,
        )

    async def caller(self, caller: Caller) -> wire.CallerView:
        return wire.CallerView(scope=caller.scope.value, principal=str(caller.principal))


class Services:
    def __init__(self) -> None:
        self.handoffs = Handoffs()
        self.agents = Agents()
        self.credentials = Credentials()


class Loopback(uvicorn.Server):
    """A server on a loopback port, which can be the port of one that is gone."""

    def __init__(self, app: Any, port: int = 0) -> None:
        super().__init__(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
        # Without the protocol's number asyncio leaves Nagle's algorithm on, and each reply takes 44 ms.
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.port: int = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.up = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    def die(self) -> None:
        for listening in self.servers:
            listening.close()
        self.drop()
        self.should_exit = True

    def drop(self) -> None:
        """Resets every connection, as the death of the process would."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # pyright: ignore


@contextlib.asynccontextmanager
async def serving(app: Any, port: int = 0) -> AsyncIterator[Loopback]:
    """A running server; at the end its connections are reset and its port is free."""
    server = Loopback(app, port)
    with contextlib.closing(server.socket):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [server.socket])
            await server.up.wait()
            try:
                yield server
            finally:
                server.die()
