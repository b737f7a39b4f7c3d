"""Callers of the tools for measurements: the SDK's own client, over HTTP and over stdio."""

import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from orchestrator.client import Client
from orchestrator.wire import TerminalView
from tests.live import LiveService, reached


@asynccontextmanager
async def http_client(live: LiveService) -> AsyncGenerator[McpClient]:
    """On `/mcp`, as an agent of the owner's."""
    headers = {"Authorization": f"Bearer {live.token('agent')}", "Changeover-Session": "bench"}
    limits = httpx2.Limits(max_connections=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120, limits=limits) as http,
        McpClient(streamable_http_client(f"{live.url}/mcp", http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def stdio_client(live: LiveService) -> AsyncGenerator[McpClient]:
    """On `changeover mcp`, which speaks to the service over HTTP, as any client does."""
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "orchestrator.cli", "mcp"], env=live.env, cwd=str(live.work)
    )
    async with McpClient(command) as client:
        yield client


class Answer:
    """What one call of a tool came to, and how many seconds it took."""

    def __init__(self, result: Any, seconds: float) -> None:
        self.is_error: bool = result.is_error
        self.text: str = result.content[0].text
        self.facts: dict[str, Any] = result.structured_content or {}
        self.seconds = seconds


async def tool(client: McpClient, name: str, arguments: Mapping[str, Any]) -> Answer:
    began = time.perf_counter()
    result = await client.call_tool(name, dict(arguments))
    return Answer(result, time.perf_counter() - began)


async def hand_over(client: McpClient, message: str, profile: str = "bench") -> Answer:
    return await tool(client, "handoff", {"agent_profile": profile, "message": message})


async def all_work(client: Client, count: int, seconds: float = 60.0) -> list[TerminalView]:
    """The terminals, once so many are at work."""

    async def look() -> list[TerminalView] | None:
        working = [each for each in (await client.terminals()).items if each.activity == "working"]
        return working if len(working) >= count else None

    return await reached(look, f"{count} terminals are at work", seconds)
