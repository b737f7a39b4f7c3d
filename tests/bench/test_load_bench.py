"""What the service costs while it does nothing, while its agents print, and what memory it takes."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from orchestrator.client import Client
from tests.bench.conftest import Record
from tests.bench.processes import Forks, cpu_seconds, pss_megabytes
from tests.live import LiveService, hand_off, reached, start_agent

pytestmark = [pytest.mark.bench, pytest.mark.anyio]

IDLE, IDLE_SECONDS = 50, 20.0
PRINTING, LINES_A_SECOND, PRINTING_SECONDS = 20, 20, 15.0
SETTLE_SECONDS = 2.0

Serve = Callable[..., LiveService]


async def share_of_a_core(pid: int, seconds: float) -> float:
    """In percent, from now on."""
    before, began = cpu_seconds(pid), anyio.current_time()
    await anyio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (anyio.current_time() - began) * 100


def tmux_pid(live: LiveService) -> int:
    return int(live.tmux("display-message", "-p", "#{pid}").stdout)


async def idle_agents(live: LiveService, client: Client, count: int) -> None:
    limit = anyio.CapacityLimiter(8)

    async def start(number: int) -> None:
        async with limit:
            await start_agent(live, client, "scripted", f"idle{number}")

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(start, number)


async def test_fifty_idle_terminals_cost_no_time_and_no_process(serve: Serve, record: Record) -> None:
    live = serve(CHANGEOVER_MAX_TERMINALS="60")
    assert live.process
    async with live.client() as client:
        await idle_agents(live, client, IDLE)
        await anyio.sleep(SETTLE_SECONDS)
        pid, tmux = live.process.pid, tmux_pid(live)
        forks, tmux_before = Forks(pid, tmux), cpu_seconds(tmux)
        share = await share_of_a_core(pid, IDLE_SECONDS)
        forked, tmux_used = forks.seen(), cpu_seconds(tmux) - tmux_before
        record("service CPU, 50 idle terminals", share, "% of a core", 0.5)
        record("tmux CPU, 50 idle terminals", tmux_used / IDLE_SECONDS * 100, "% of a core")
        record("processes forked, 50 idle terminals", forked, "processes", 0)
        # The counter does see what a service forks, and what tmux does.
        forks = Forks(pid)
        await client.drivers()
        assert forks.seen()
        forks = Forks(tmux)
        await hand_off(live, "scripted", "seen")
        assert forks.seen()


@asynccontextmanager
async def printing(live: LiveService, client: Client) -> AsyncGenerator[None]:
    """Twenty shells that print, for as long as the block lasts and no longer than a minute."""
    rounds = 60 * LINES_A_SECOND
    task = f"for n in $(seq {rounds}); do echo line $n of the output of a busy program; sleep 0.046; done"
    ids: list[str] = []
    for _ in range(PRINTING):
        ids.append((await client.start_handoff(live.request("shell", task))).handoff_id)

    async def all_print() -> bool:
        views = (await client.terminals()).items
        return sum(each.activity == "working" for each in views) == PRINTING

    await reached(all_print, "all shells print", 60.0)
    try:
        yield
    finally:
        for handoff_id in ids:
            await client.stop(handoff_id)


async def test_twenty_printing_terminals_cost_little(serve: Serve, record: Record) -> None:
    live = serve()
    assert live.process
    async with live.client() as client, printing(live, client):
        await anyio.sleep(SETTLE_SECONDS)
        lines = await printed(client)
        began = anyio.current_time()
        share = await share_of_a_core(live.process.pid, PRINTING_SECONDS)
        rate = (await printed(client) - lines) / (anyio.current_time() - began) / PRINTING
    record("lines a second of each printing terminal", rate, "lines")
    record("service CPU, 20 terminals printing 20 lines/s", share, "% of a core", 15)


async def printed(client: Client) -> int:
    """How many lines all have printed, by the last number on each screen."""
    total = 0
    for view in (await client.terminals()).items:
        text = (await client.screen(view.terminal_id)).text
        total += int(text.rpartition("line ")[2].split()[0])
    return total


async def test_memory_stays_near_that_of_the_imports(serve: Serve, record: Record) -> None:
    live = serve(PYTHONPROFILEIMPORTTIME="1", CHANGEOVER_MAX_TERMINALS="60")
    assert live.process
    async with live.client() as client:
        await client.service()
    await anyio.sleep(SETTLE_SECONDS)
    # What the log names up to here is what an idle service has imported.
    command = [sys.executable, "-m", "tests.bench.only_imports", str(live.log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reference:  # noqa: ASYNC220
        try:
            assert reference.stdout
            print("\nthe reference", reference.stdout.readline(), end="")
            await anyio.sleep(SETTLE_SECONDS)
            floor, idle = pss_megabytes(reference.pid), pss_megabytes(live.process.pid)
            async with live.client() as client:
                await idle_agents(live, client, IDLE)
                await anyio.sleep(SETTLE_SECONDS)
                full, floor_again = pss_megabytes(live.process.pid), pss_megabytes(reference.pid)
        finally:
            reference.kill()
    record("memory (PSS) of a process that only imports", floor, "MB")
    record("service memory (PSS), idle / only imports", idle / floor, "ratio", 1.25)
    record("service memory (PSS), 50 terminals / only imports", full / floor_again, "ratio", 1.6)
