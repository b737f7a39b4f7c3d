"""The MCP server as an ASGI app, for the service to mount at `/mcp`.

It checks nothing about who may come in: the service's guard stands in front. What it does with a call it
does through the service's own API, with the caller's own token and session.
"""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from sse_starlette.sse import AppStatus

from mcp_tools.server import PROGRESS_SECONDS, Caller, IsTerminal, build_server, nobody
from mcp_tools.waiting import Patience
from orchestrator.client import Client
from orchestrator.wire import MAX_MESSAGE_BYTES

Scope = Any
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
ClientFor = Callable[[str | None, str | None], Client]

MAX_BODY_BYTES = 6 * MAX_MESSAGE_BYTES + 64 * 1024
"""The largest message allowed, with every byte of it escaped as `\\u00xx`."""
SESSION_IDLE_SECONDS = 8 * 3600.0
"""Agents sit idle for hours, and some of their CLIs never recover from a session that is gone."""
MAX_SESSIONS = 5_000


class Mount:
    """The ASGI app. It serves inside `run()`; `stop()` before the server waits for its connections.

    In the older protocol era a session belongs to the token that opened it; another one finds nothing.
    """

    def __init__(self, manager: StreamableHTTPSessionManager, stopping: anyio.Event) -> None:
        self._manager = manager
        self._stopping = stopping
        self._listening: set[anyio.CancelScope] = set()

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Enter it in the lifespan of the service, once."""
        # The SDK's stream library would cut every open stream at SIGTERM, answers included; `stop` is ours.
        AppStatus.disable_automatic_graceful_drain()
        async with self._manager.run():
            yield

    def stop(self) -> None:
        """Ends every wait with `interrupted` and closes the streams on which clients only listen."""
        self._stopping.set()
        for scope in self._listening:
            scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "user": _holder(_header(scope, b"authorization"))}
        if scope["method"] != "GET":
            await self._manager.asgi_app(scope, receive, send)
            return
        with anyio.CancelScope() as listening:
            self._listening.add(listening)
            try:
                if not self._stopping.is_set():
                    await self._manager.asgi_app(scope, receive, send)
            finally:
                self._listening.discard(listening)


def mount(
    client_for: ClientFor,
    *,
    working_directory_enabled: bool,
    version: str = "",
    is_terminal: IsTerminal = nobody,
    max_body_bytes: int = MAX_BODY_BYTES,
    progress_interval: float = PROGRESS_SECONDS,
    patience: Patience | None = None,
) -> Mount:
    """The app for `/mcp`, in both protocol eras.

    `client_for(token, session)` is the way back into the service for one call: the caller's own bearer
    token, and its session (the MCP session id where there is one, else the header `Changeover-Session`).
    """
    stopping = anyio.Event()
    # A service that cannot be reached from inside itself is stopping: nothing to wait for.
    within = patience or Patience(first=0.5, outage=0.5)

    @asynccontextmanager
    async def open_client(caller: Caller) -> AsyncGenerator[Client]:
        session = caller.headers.get("mcp-session-id") or caller.headers.get("changeover-session")
        async with client_for(_bearer(caller.headers.get("authorization")), session) as client:
            yield client

    server = build_server(
        open_client,
        working_directory_enabled=working_directory_enabled,
        version=version,
        is_terminal=is_terminal,
        progress_interval=progress_interval,
        patience=within,
        stopping=stopping,
    )
    manager = StreamableHTTPSessionManager(
        server,
        session_idle_timeout=SESSION_IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
        max_request_body_size=max_body_bytes,
    )
    return Mount(manager, stopping)


def _bearer(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


def _holder(authorization: bytes) -> AuthenticatedUser:
    """Stands for whoever holds this token, so that the SDK can bind sessions to it."""
    name = hashlib.sha256(authorization).hexdigest()
    return AuthenticatedUser(AccessToken(token=name, client_id=name, scopes=[]))
