"""The MCP server on stdin and stdout, for an agent CLI that starts it as its child.

Nothing but JSON-RPC reaches stdout: while serving, the transport holds the real one and file descriptor 1
is stderr. The process ends with its client: when stdin closes, or when the parent is gone.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mcp_tools.connection import Connection, Where
from mcp_tools.server import PROGRESS_SECONDS, build_server
from mcp_tools.waiting import Patience

PARENT_POLL_SECONDS = 1.0

Incoming = SessionMessage | Exception


def run(
    find: Callable[[], Where],
    *,
    working_directory_enabled: bool,
    version: str = "",
    log_level: str = "WARNING",
    progress_interval: float = PROGRESS_SECONDS,
    patience: Patience | None = None,
) -> None:
    """Serves until the client is gone.

    `find` says where the service is and is asked for each call, in a thread. Needs no running service:
    while there is none the tools say so, and they work once there is one.
    """
    logging.basicConfig(stream=sys.stderr, level=log_level)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a reader blocked in a thread would outlive the exception
    connection = Connection(find, uuid4().hex)
    server = build_server(
        connection.open,
        working_directory_enabled=working_directory_enabled,
        version=version,
        is_terminal=connection.is_terminal,
        caller_directory=_here(),
        progress_interval=progress_interval,
        patience=patience,
    )
    anyio.run(_serve, server, connection)


async def _serve(server: Server[Any], connection: Connection) -> None:
    async with anyio.create_task_group() as tasks, connection:
        tasks.start_soon(_end_with_parent)
        try:
            async with stdio_server() as (read, write), _answering_junk(read, write) as readable:
                await server.run(readable, write, server.create_initialization_options())
        except* (BrokenPipeError, ConnectionResetError):
            pass  # a client that closes our stdout is a client that is gone
        finally:
            os.dup2(2, 1)  # what somebody printed meanwhile is flushed at exit: not onto the wire
        tasks.cancel_scope.cancel()


def _here() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


@asynccontextmanager
async def _answering_junk(read: Any, write: Any) -> AsyncGenerator[MemoryObjectReceiveStream[Incoming]]:
    """Passes on what can be read, and answers what cannot, so that no caller waits for an answer in vain."""
    send, receive = anyio.create_memory_object_stream[Incoming](0)

    async def relay() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with send:
                async for item in read:
                    if isinstance(item, Exception):
                        await write.send(SessionMessage(_refusal(item)))
                    else:
                        await send.send(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay)
        yield receive
        tasks.cancel_scope.cancel()


def _refusal(problem: Exception) -> types.JSONRPCError:
    line = problem.errors()[0].get("input") if isinstance(problem, ValidationError) else None
    try:
        sent: Any = json.loads(line) if isinstance(line, str) else line
    except ValueError:
        return _error(None, types.PARSE_ERROR, "parse error: the line is not JSON")
    whole = sent
    if not isinstance(sent, dict) or "method" not in sent:
        return _error(None, types.INVALID_REQUEST, "not one JSON-RPC request or notification")
    request_id: Any = sent.get("id")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    named = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    return _error(named, types.INVALID_REQUEST, f"the request cannot be read: {_reason(whole, problem)}")


def _error(request_id: str | int | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


def _reason(sent: Any, problem: Exception) -> str:
    try:
        json.dumps(sent, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "a text holds half of a surrogate pair, which is no character"
    return str(problem.errors()[0]["msg"]) if isinstance(problem, ValidationError) else "malformed"


async def _end_with_parent() -> None:
    """Ends the process once its parent is gone, though stdin may still be held open by somebody else."""
    parent = os.getppid()
    if parent <= 1:
        return  # started by init, or by a parent in another namespace: there is nobody to watch
    with suppress(OSError, AttributeError):
        watched = os.pidfd_open(parent)
        try:
            if os.getppid() == parent:
                await anyio.wait_readable(watched)
        finally:
            os.close(watched)
        os._exit(0)
    while os.getppid() == parent:  # noqa: ASYNC110 - where there is no pidfd, nothing else tells
        await anyio.sleep(PARENT_POLL_SECONDS)
    os._exit(0)
