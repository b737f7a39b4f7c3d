"""Field cases D9, and F4 as far as terminals go: an end in the middle of things, halves of characters."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest

from orchestrator.terminals.drivers.scripted_agent import Reply, Tools
from orchestrator.wire import HandoffResult, WaitRequest
from tests.live import LiveService, in_phase, reached

pytestmark = pytest.mark.anyio


class Raw:
    """One connection of plain HTTP to the service."""

    def __init__(self, service: LiveService) -> None:
        address = urlsplit(service.url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        self._headers = {"Authorization": f"Bearer {service.token()}", "Content-Type": "application/json"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def post(self, path: str, body: str) -> tuple[int, Any]:
        with self._request("POST", path, body, Accept="application/json, text/event-stream") as answer:
            return answer.status, json.loads(answer.read())

    def listen(self) -> http.client.HTTPResponse:
        """The stream of a client of the older protocol era that only listens."""
        hello = (
            '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",'
            ' "capabilities": {}, "clientInfo": {"name": "idle", "version": "1"}}}'
        )
        accept = "application/json, text/event-stream"
        with self._request("POST", "/mcp", hello, Accept=accept) as answer:
            session = answer.headers["mcp-session-id"]
            answer.read()
        return self._request("GET", "/mcp", None, Accept=accept, **{"Mcp-Session-Id": session})

    def _request(self, method: str, path: str, body: str | None, **headers: str) -> http.client.HTTPResponse:
        self._connection.request(method, path, body and body.encode(), self._headers | headers)
        return self._connection.getresponse()


@pytest.fixture
def raw(shared: LiveService) -> Iterator[Raw]:
    with Raw(shared) as connection:
        yield connection


@pytest.mark.promise("D9", "job-outlives-call")
async def test_one_sigterm_ends_the_service_in_its_grace_and_no_half_answer_becomes_final(
    live: LiveService,
) -> None:
    said: list[str] = []
    tools = Tools()
    tools.base, tools.token = live.url, live.token()
    live.profile("placed", f"driver: scripted\nworking_directory: {live.work}")
    task = {"agent_profile": "placed", "message": "@say by tool\n@wait 4\n@say and whole"}
    idle = Raw(live)
    stream = await anyio.to_thread.run_sync(idle.listen)
    assert stream.status == 200
    async with live.client() as client, anyio.create_task_group() as tasks:
        started = await client.start_handoff(live.request("scripted", "@say half\n@wait 4\n@say whole"))

        async def wait() -> None:
            waited = await client.wait(WaitRequest(handoff_ids=[started.handoff_id], timeout=60))
            assert waited.handoffs[0].outcome is None
            said.append(waited.wait)

        async def call() -> None:
            reply: Reply = await anyio.to_thread.run_sync(tools.call, "handoff", json.dumps(task))
            said.append(reply.text)

        tasks.start_soon(wait)
        tasks.start_soon(call)
        await in_phase(client, started.handoff_id, "working")

        async def both() -> list[HandoffResult] | None:
            found = (await client.handoffs()).items
            return found if len(found) == 2 else None

        found = await reached(both, "the tool's handoff is there")
        for each in found:
            await in_phase(client, each.handoff_id, "working")
        before = time.monotonic()
        assert await anyio.to_thread.run_sync(live.stop) == 0
        assert time.monotonic() - before < 10
    assert len(said) == 2
    assert all("interrupted" in each for each in said)
    with idle, stream, suppress(http.client.IncompleteRead):  # it is cut, and a listener comes back
        await anyio.to_thread.run_sync(stream.read)
    assert b"Traceback" not in live.log.read_bytes()
    live.start()
    async with live.client() as client:
        waited = await client.wait_until([each.handoff_id for each in found], "all", 30)
        assert sorted(each.output or "" for each in waited.handoffs) == ["by tool\nand whole", "half\nwhole"]
        assert {(each.outcome, each.partial) for each in waited.handoffs} == {("succeeded", False)}


@pytest.mark.promise("F4")
@pytest.mark.parametrize("half", [r"\ud83d", r"a\udc00b", r"\ude00\ud83d"])
async def test_half_of_a_character_is_refused_at_every_door_to_a_terminal(
    shared: LiveService, raw: Raw, half: str
) -> None:
    profile = f'"agent_profile": "scripted", "caller_directory": {json.dumps(str(shared.work))}'
    bodies = {
        "/v1/handoffs": f'{{{profile}, "message": "{half}"}}',
        "/v1/terminals": f'{{{profile}, "name": "{half}"}}',
        "/v1/terminals/none/messages": f'{{"text": "{half}"}}',
        "/v1/handoffs/none/complete": f'{{"result": "{half}"}}',
    }
    for path, body in bodies.items():
        status, problem = await anyio.to_thread.run_sync(raw.post, path, body)
        assert (status, problem["code"]) == (400, "invalid_params"), path
    async with shared.client() as client:
        assert (await client.terminals()).items == []


@pytest.mark.promise("F4")
async def test_a_whole_pair_is_one_character_in_the_terminal_and_in_the_answer(
    shared: LiveService, raw: Raw
) -> None:
    profile = f'"agent_profile": "scripted", "caller_directory": {json.dumps(str(shared.work))}'
    body = rf'{{{profile}, "message": "a\ud83d\ude00b"}}'
    status, started = await anyio.to_thread.run_sync(raw.post, "/v1/handoffs", body)
    assert status in (200, 201, 202)
    async with shared.client() as client:
        waited = await client.wait_until([started["handoff_id"]], "all", 30)
        assert waited.handoffs[0].output == "a😀b"
        thread = await client.thread(started["handoff_id"])
        assert thread.messages[0].text == "a😀b"
