"""The MCP server behind both transports: lists the tools and runs a call of one.

It knows no address and no token: `open_client` gives the way to the service for each call. Calls run at
once, side by side; a client is answered exactly once for each.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import mcp_types as types
import msgspec
import stamina.instrumentation
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError

from mcp_tools import arguments, catalogue, results
from mcp_tools.delegation import Call, Options, Tool
from mcp_tools.results import Answer
from mcp_tools.waiting import Patience
from orchestrator.client import Client
from orchestrator.domain.errors import ChangeoverError

PROGRESS_SECONDS = 10.0
"""How often progress is told; at least every 15 s is promised."""

logger = logging.getLogger(__name__)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call comes from: the HTTP request it arrived with, or None on stdio."""

    headers: Mapping[str, str]
    request: Any | None


OpenClient = Callable[[Caller], AbstractAsyncContextManager[Client]]
IsTerminal = Callable[[Caller], Awaitable[bool]]


async def nobody(caller: Caller) -> bool:
    return False


def build_server(
    open_client: OpenClient,
    *,
    working_directory_enabled: bool,
    version: str = "",
    is_terminal: IsTerminal = nobody,
    caller_directory: str | None = None,
    progress_interval: float = PROGRESS_SECONDS,
    patience: Patience | None = None,
    stopping: anyio.Event | None = None,
) -> Server[Any]:
    """The server, ready to be run over a transport.

    `open_client` is entered for each call and left after it. `is_terminal` says whose credential is a
    terminal's: only those see `complete_handoff`. Setting `stopping` ends every wait with `interrupted`.
    """
    # Its default looks for other libraries at the first retry, which blocks, and may print.
    stamina.instrumentation.set_on_retry_hooks([stamina.instrumentation.LoggingOnRetryHook])
    options = Options(
        working_directory_enabled=working_directory_enabled,
        caller_directory=caller_directory,
        progress_interval=progress_interval,
        patience=patience or Patience(),
        stopping=stopping or anyio.Event(),
    )
    tools = catalogue.tools(working_directory=working_directory_enabled)

    async def shown(tool: Tool, caller: Caller) -> bool:
        return not tool.reports or await is_terminal(caller)

    async def list_tools(
        ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        caller = _caller(ctx)
        found = [tool.listed for tool in tools.values() if await shown(tool, caller)]
        return types.ListToolsResult(tools=found)

    async def call_tool(
        ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arrival, caller = anyio.current_time(), _caller(ctx)
        tool = tools.get(params.name)
        if tool is None or not await shown(tool, caller):
            raise MCPError(code=types.INVALID_PARAMS, message=f"unknown tool: {params.name}")
        answer = await _run(tool, params, ctx, arrival, open_client(caller), options)
        return results.shown(answer, _client_name(ctx))

    def input_schema(name: str) -> Mapping[str, Any] | None:
        return tools[name].listed.input_schema if name in tools else None

    return Server(
        "changeover",
        version=version,
        title="Changeover",
        instructions=catalogue.INSTRUCTIONS,
        get_tool_input_schema=input_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _run(
    tool: Tool,
    params: types.CallToolRequestParams,
    ctx: ServerRequestContext[Any],
    arrival: float,
    opened: AbstractAsyncContextManager[Client],
    options: Options,
) -> Answer:
    meta: Mapping[str, Any] = dict(ctx.meta or {})
    tell = ctx.session.report_progress if "progress_token" in meta else None
    try:
        given = arguments.read(params.arguments, tool.arguments)
        async with opened as client:
            call = Call(client=client, meta=meta, arrival=arrival, tell=tell, options=options)
            return await tool.run(call, given)
    except ChangeoverError as error:
        return results.failure(error, _named(params.arguments))
    except Exception:
        logger.exception("the tool %s failed unexpectedly", params.name)
        return results.failure(ChangeoverError("something unexpected went wrong; the server's log has it"))


def _named(given: Mapping[str, Any] | None) -> list[str]:
    """The handoff a call was about, where it named one."""
    named = (given or {}).get("handoff_id")
    return [named] if isinstance(named, str) else []


def _client_name(ctx: ServerRequestContext[Any]) -> str | None:
    client = ctx.session.client_params
    return client.client_info.name if client is not None else None


def _caller(ctx: ServerRequestContext[Any]) -> Caller:
    request = ctx.request
    return Caller(headers=request.headers if request is not None else {}, request=request)
