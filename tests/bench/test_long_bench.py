"""Field case D1 at its full length: 150 s of work, for clients and proxies that cut what is silent."""

import sys
import time

import anyio
import pytest

from tests.bench.conftest import Record
from tests.live import LiveService
from tests.mcp_tools.driver import HELLO, LEGACY, Http, Message, Stdio, call, strictly_rising, texts
from tests.mcp_tools.test_http import impatient_proxy

pytestmark = [pytest.mark.bench, pytest.mark.anyio]

WORK_SECONDS = 150
CLIENT_PATIENCE, PROXY_PATIENCE = 60.0, 30.0
PROGRESS_SECONDS = 15.0

HANDOFF: Message = {"agent_profile": "bench", "message": f"@quiet {WORK_SECONDS}\n@say done"}


class Impatient(Stdio):
    """A client of the stdio server that gives up once it has heard nothing for a minute."""

    def __init__(self, process: object) -> None:
        super().__init__(process, LEGACY)
        self.silences: list[float] = []
        self._heard = time.monotonic()

    def add(self, message: Message) -> None:
        now = time.monotonic()
        self.silences.append(now - self._heard)
        self._heard = now
        super().add(message)

    async def hand_over(self, meta: Message | None) -> Message:
        self.silences, self._heard = [], time.monotonic()
        request = await self.start("tools/call", call("handoff", HANDOFF, meta=meta))
        # Without a token there is no progress to go by: such a client waits for the answer.
        return await self.response(request, WORK_SECONDS + 30)


async def over_stdio(live: LiveService, meta: Message | None) -> Impatient:
    command = [sys.executable, "-m", "orchestrator.cli", "mcp"]
    async with (
        await anyio.open_process(command, env=live.env, cwd=live.work) as process,
        anyio.create_task_group() as tasks,
    ):
        driver = Impatient(process)
        tasks.start_soon(driver.read_stdout)
        tasks.start_soon(driver.read_stderr)
        await driver.ask("initialize", HELLO)
        await driver.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        answer = await driver.hand_over(meta)
        assert texts(answer["result"])[0] == "done"
        await driver.ask("tools/list")
        assert process.stdin
        await process.stdin.aclose()
    return driver


async def test_a_long_handoff_is_never_silent_for_long(live: LiveService, record: Record) -> None:
    live.profile("bench", f"driver: scripted\nworking_directory: {live.work}")
    drivers: dict[str, Impatient] = {}
    cut: list[str] = []

    async def with_token() -> None:
        drivers["token"] = await over_stdio(live, {"progressToken": "long"})

    async def without_token() -> None:
        drivers["none"] = await over_stdio(live, None)

    async def through_a_proxy() -> None:
        async with (
            impatient_proxy(live.url, PROXY_PATIENCE) as through,
            Http(through, LEGACY, live.token("agent")) as client,
            client.stream("tools/call", call("handoff", HANDOFF)) as stream,
        ):
            await stream.read()
            answer = await stream.response(stream.request_id)
            assert texts(answer["result"])[0] == "done"
            assert all("method" not in message for message in stream.messages)
            cut.append(f"{stream.longest_silence:.3f}")

    async with anyio.create_task_group() as tasks:
        for way in (with_token, without_token, through_a_proxy):
            tasks.start_soon(way)
    asked, unasked = drivers["token"], drivers["none"]
    progress = asked.progress("long")
    assert strictly_rising([each["progress"] for each in progress])
    last = max(n for n, each in enumerate(asked.messages) if each.get("method") == "notifications/progress")
    answered = max(n for n, each in enumerate(asked.messages) if "content" in each.get("result", {}))
    assert last < answered, "progress after the result"
    assert not [each for each in unasked.messages if "method" in each]
    longest = max(asked.silences)
    assert longest < CLIENT_PATIENCE, "the client would have given up"
    record("handoff of 150 s: longest silence for who asked for progress", longest, "s", PROGRESS_SECONDS)
    record("handoff of 150 s: longest silence on HTTP without progress", float(cut[0]), "s", PROXY_PATIENCE)
