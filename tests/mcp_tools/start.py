"""What the stdio server costs at its start, against a bare server of the same SDK in the same run.

`python -m tests.mcp_tools.start` prints it.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.mcp_tools.driver import HELLO, PROGRAM

BARE = """
import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

async def list_tools(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name="x", input_schema={"type": "object"})])

async def call_tool(ctx, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text="x")])

async def main():
    server = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""
OURS = [sys.executable, str(PROGRAM), json.dumps({"url": "http://127.0.0.1:9"})]


def start(command: list[str]) -> tuple[float, float]:
    """Seconds from the start to the answer to `tools/list`, and then the memory (PSS) in MB."""
    began = time.perf_counter()
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
    }
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin
        assert process.stdout
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        for message in (
            hello,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
        ):
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        took = time.perf_counter() - began
        assert answers[1]["result"]["tools"]
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        kilobytes = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return took, kilobytes / 1024


def cost(command: list[str] | None = None, rounds: int = 7) -> tuple[float, float]:
    """The start of `command` (by default our server) ÷ that of a bare one, and its PSS in MB; medians."""
    bare = [sys.executable, "-c", BARE]
    pairs = [(start(bare), start(command or OURS)) for _ in range(rounds)]
    ratio = statistics.median(ours[0] for _, ours in pairs) / statistics.median(one[0] for one, _ in pairs)
    return ratio, statistics.median(ours[1] for _, ours in pairs)


if __name__ == "__main__":
    ratio, megabytes = cost()
    print(f"start to tools/list: {ratio:.2f} of a bare server; PSS {megabytes:.1f} MB")
