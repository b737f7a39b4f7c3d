"""The ways in for an agent: the tools of a running service over HTTP and stdio, in both protocol eras."""

import json
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.live import LiveService
from tests.mcp_tools.driver import LEGACY, MODERN, Http, Stdio, facts, stdio, texts

Tools = Http | Stdio
Way = tuple[str, str]

HTTP_LEGACY, HTTP_MODERN = ("http", LEGACY), ("http", MODERN)
STDIO_LEGACY, STDIO_MODERN = ("stdio", LEGACY), ("stdio", MODERN)
WAYS = [HTTP_LEGACY, HTTP_MODERN, STDIO_LEGACY, STDIO_MODERN]

every_way = pytest.mark.parametrize("way", WAYS, ids="-".join)
both_transports = pytest.mark.parametrize("way", [HTTP_LEGACY, STDIO_MODERN], ids="-".join)


@asynccontextmanager
async def connected(
    service: LiveService, way: Way, *, token: str | None = None, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Tools]:
    """A client with the tools, as the owner's agent unless another token is given."""
    transport, era = way
    if transport == "http":
        async with Http(service.url, era, token or service.token("agent")) as client:
            yield client
        return
    environment = {**service.env, **(env or {})}
    if token is not None:
        environment |= {"CHANGEOVER_URL": service.url, "CHANGEOVER_TOKEN": token}
    command = [sys.executable, "-m", "orchestrator.cli", "mcp"]
    async with stdio(era=era, environment=environment, command=command, cwd=service.work) as driver:
        yield driver


def worker(service: LiveService, name: str = "worker", *switches: str, front: str = "") -> str:
    """A scripted profile that says where it works, so that callers without a folder may use it."""
    command = f"command: {json.dumps(list(switches))}\n" if switches else ""
    return service.profile(
        name, f"driver: scripted\nworking_directory: {json.dumps(str(service.work))}\n{command}{front}"
    )


def call(tool: str, **arguments: Any) -> str:
    """The line of a task that calls a tool."""
    return f"@call {tool} {json.dumps(arguments, ensure_ascii=False)}"


def id_in(text: str) -> str:
    """The only handoff id in a text."""
    [found] = set(re.findall(r"ho_[0-9a-z]{26}", text))
    return found


async def assigned(tools: Tools, profile: str, message: str, **more: Any) -> str:
    """The id of a handoff just assigned."""
    given = {"agent_profile": profile, "message": message, **more}
    result = await tools.tool("assign", given)
    assert not result.get("isError"), texts(result)
    return facts(result)["handoff_id"]


async def whole(tools: Tools, handoff_id: str) -> str:
    """The whole answer, page by page."""
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        result = await tools.tool("read_output", {"handoff_id": handoff_id, "offset": offset})
        pages.append(texts(result)[0])
        offset = facts(result).get("next_offset")
    return "".join(pages)
