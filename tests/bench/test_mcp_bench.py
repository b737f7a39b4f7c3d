"""What the tools cost: the start of a stdio server, and asking while twenty handoffs wait."""

import statistics
import time

import anyio
import pytest

from tests.bench.callers import all_work, hand_over, http_client, tool
from tests.bench.conftest import Record
from tests.live import LiveService
from tests.mcp_tools.start import cost

WAITING, QUESTIONS = 20, 300

pytestmark = pytest.mark.bench


def test_the_stdio_server_starts_like_a_bare_one(record: Record) -> None:
    ratio, megabytes = cost(rounds=9)
    record("stdio MCP server, start to tools/list / bare server", ratio, "ratio", 1.3)
    record("stdio MCP server, memory (PSS)", megabytes, "MB", 90)


@pytest.mark.anyio
async def test_tools_are_listed_at_once_while_twenty_handoffs_wait(live: LiveService, record: Record) -> None:
    live.profile("bench", f"driver: scripted\nworking_directory: {live.work}")
    times: list[float] = []
    async with http_client(live) as client, live.client() as person, anyio.create_task_group() as tasks:
        for number in range(WAITING):
            tasks.start_soon(hand_over, client, f"@wait 60\n@say {number}")
        working = await all_work(person, WAITING)
        for _ in range(QUESTIONS):
            began = time.perf_counter()
            await client.list_tools(cache_mode="bypass")
            times.append(time.perf_counter() - began)
            await anyio.sleep(0.02)
        async with anyio.create_task_group() as stops:
            for each in working:
                stops.start_soon(tool, client, "stop_handoff", {"handoff_id": each.handoff_id})
    times = sorted(each * 1000 for each in times)
    record("tools/list while 20 handoffs wait, median", statistics.median(times), "ms")
    record("tools/list while 20 handoffs wait, p95", times[len(times) * 95 // 100], "ms", 20)
