"""An MCP server to be called by agent CLIs: `python tool_server.py PORT CALLS`. Loopback only.

Each tool answers in one of the ways an MCP server can: CALLS gets one JSON line a call.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

ARGUMENTS = {"type": "object", "properties": {"chars": {"type": "integer"}}}
FACTS = {"handoff_id": "th_1", "status": "completed"}
WHOLE = {"anthropic/maxResultSizeChars": 500_000}


async def list_tools(context: ServerRequestContext[Any], params: object) -> types.ListToolsResult:
    """`large` asks for its result to reach the model whole."""
    tools = [types.Tool(name=name, input_schema=ARGUMENTS) for name in ("blocks", "structured", "plain")]
    tools.append(types.Tool(name="large", input_schema=ARGUMENTS, _meta=WHOLE))
    return types.ListToolsResult(tools=tools)


def make_call_tool(calls: Path) -> Any:
    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        count = (params.arguments or {}).get("chars", 20)
        text = "".join(f"{number:07d}." for number in range(count // 8 + 1))[:count]
        headers = context.request.headers if context.request is not None else {}
        line = {"tool": params.name, "authorization": headers.get("authorization")}
        with calls.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
        if params.name == "blocks":
            content.append(types.TextContent(type="text", text=json.dumps(FACTS)))
        facts = FACTS if params.name == "structured" else None
        return types.CallToolResult(content=content, structured_content=facts)

    return call_tool


def main(port: int, calls: Path) -> None:
    server = Server("tools", on_list_tools=list_tools, on_call_tool=make_call_tool(calls))
    manager = StreamableHTTPSessionManager(server)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    lifespan = Starlette(lifespan=life)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await manager.handle_request(scope, receive, send)
        else:
            await lifespan(scope, receive, send)

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
