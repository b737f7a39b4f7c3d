"""A whole handoff against the floor of the same run, alone and twenty at once.

Floor and service take turns, so that a busy moment of the machine hits both alike.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from mcp import Client as McpClient

from tests.bench.callers import hand_over, http_client, stdio_client
from tests.bench.conftest import Record
from tests.bench.floor import Bare
from tests.bench.processes import cpu_seconds
from tests.live import LiveService, reached

pytestmark = [pytest.mark.bench, pytest.mark.anyio]

BLOCKS, BLOCK = 8, 5
AT_ONCE, ROUNDS = 20, 7


async def one(client: McpClient, message: str) -> float:
    answer = await hand_over(client, message)
    assert (answer.is_error, answer.text) == (False, message)
    return answer.seconds


async def at_once(handoff: Callable[[str], Awaitable[float]]) -> float:
    """Seconds until all are answered; one that fails, fails the measurement."""
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for number in range(AT_ONCE):
            tasks.start_soon(handoff, f"task {number} of many")
    return time.perf_counter() - began


async def no_terminal_left(live: LiveService) -> None:
    """The service answers before the terminal is closed: what is left to do must not hit the next block."""

    async def none_left() -> bool:
        return not live.agent_windows()

    await reached(none_left, "every terminal is closed")
    await anyio.sleep(0.1)


async def test_a_handoff_costs_at_most_twice_the_floor(
    live: LiveService, tmp_path: Path, record: Record
) -> None:
    live.profile("bench", f"driver: scripted\nworking_directory: {live.work}")
    assert live.process
    taken: dict[str, list[float]] = {"floor": [], "HTTP": [], "stdio": []}
    cpu = 0.0
    async with Bare(tmp_path) as bare, http_client(live) as http, stdio_client(live) as stdio:
        ways: dict[str, Callable[[str], Awaitable[float]]] = {
            "floor": bare.handoff,
            "HTTP": lambda message: one(http, message),
            "stdio": lambda message: one(stdio, message),
        }
        for block in range(BLOCKS):
            for way, handoff in ways.items():
                before = cpu_seconds(live.process.pid)
                times = [await handoff(f"task {number}") for number in range(BLOCK)]
                await no_terminal_left(live)
                if block:  # the first warms up
                    taken[way] += times
                    cpu += cpu_seconds(live.process.pid) - before if way == "HTTP" else 0.0
    middle = {way: statistics.median(times) for way, times in taken.items()}
    record("floor of a handoff", middle["floor"] * 1000, "ms")
    record("handoff over MCP by HTTP", middle["HTTP"] * 1000, "ms")
    record("handoff over MCP by HTTP / floor", middle["HTTP"] / middle["floor"], "ratio", 2)
    record("handoff over MCP by stdio / floor", middle["stdio"] / middle["floor"], "ratio")
    record("service CPU of a handoff over HTTP", cpu / len(taken["HTTP"]) * 1000, "ms")


async def test_twenty_at_once_take_at_most_twice_what_the_bare_script_takes(
    live: LiveService, tmp_path: Path, record: Record
) -> None:
    live.profile("bench", f"driver: scripted\nworking_directory: {live.work}")
    assert live.process
    bares: list[float] = []
    ratios: list[float] = []
    cpu: list[float] = []
    async with Bare(tmp_path) as bare, http_client(live) as client:
        for number in range(ROUNDS + 1):
            floor = await at_once(bare.handoff)
            await anyio.sleep(0.1)
            before = cpu_seconds(live.process.pid)
            ours = await at_once(lambda message: one(client, message))
            await no_terminal_left(live)
            if number:  # the first warms up
                bares.append(floor)
                ratios.append(ours / floor)
                cpu.append(cpu_seconds(live.process.pid) - before)
    record("floor of 20 handoffs at once", statistics.median(bares), "s")
    record("20 handoffs at once / bare script's 20", statistics.median(ratios), "ratio", 2)
    record("service CPU of 20 handoffs at once", statistics.median(cpu), "s")
