"""The server mounted for streamable HTTP, behind a real socket: sessions, streams, drops and proxies."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
import mcp
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp_tools.http import Mount, mount
from mcp_tools.server import Caller
from mcp_tools.waiting import Patience
from orchestrator.client import Client
from tests.mcp_tools.driver import (
    LEGACY,
    MODERN,
    Http,
    call,
    envelope,
    facts,
    long_answer,
    strictly_rising,
    texts,
)
from tests.mcp_tools.service import Service, listening

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls")]
eras = pytest.mark.parametrize("era", [LEGACY, MODERN])

HOLD = {"agent_profile": "hold", "message": "x"}


class App:
    """The API and the tools under one address, as the service serves them."""

    def __init__(self, service: Service, **options: Any) -> None:
        self.service = service

        def client_for(token: str | None, session: str | None) -> Client:
            transport = httpx2.ASGITransport(service)
            return Client("http://service", token, session=session, transport=transport)

        async def is_terminal(caller: Caller) -> bool:
            return "terminal-token" in caller.headers.get("authorization", "")

        self.tools: Mount = mount(
            client_for,
            working_directory_enabled=False,
            is_terminal=is_terminal,
            progress_interval=0.1,
            patience=Patience(first=0.5, outage=0.5, poll=0.1, settle=0.05),
            **options,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app: Any = self.tools if scope["path"] == "/mcp" else self.service
        await app(scope, receive, send)


@asynccontextmanager
async def serving(service: Service, **options: Any) -> AsyncGenerator[tuple[str, App]]:
    app = App(service, **options)
    async with app.tools.run(), listening(app) as url:
        yield url, app


@asynccontextmanager
async def waiting(client: Http, service: Service, meta: Any = None) -> AsyncGenerator[tuple[Any, str]]:
    """A handoff that waits: its open stream and its id."""
    before = len(service.jobs)
    async with anyio.create_task_group() as tasks:
        opened: list[Any] = []
        finished = anyio.Event()

        async def hold_open() -> None:
            async with client.stream("tools/call", call("handoff", HOLD, client.era, meta)) as stream:
                opened.append(stream)
                await stream.read()
            finished.set()

        tasks.start_soon(hold_open)
        await service.until(lambda: len(service.jobs) > before)

        class Answer:
            async def result(self) -> Any:
                with anyio.fail_after(30):
                    await finished.wait()
                return (await opened[0].response(opened[0].request_id))["result"]

            @property
            def stream(self) -> Any:
                return opened[0]

        yield Answer(), list(service.jobs)[-1]
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def impatient_proxy(url: str, seconds: float) -> AsyncGenerator[str]:
    """Cuts every connection on which the server was silent for `seconds`."""
    host, port = url.removeprefix("http://").split(":")

    async def up(client: Any, server: Any) -> None:
        async for chunk in client:
            await server.send(chunk)

    async def down(client: Any, server: Any) -> None:
        with suppress(TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                with anyio.fail_after(seconds):
                    chunk = await server.receive()
                await client.send(chunk)

    async def handle(client: Any) -> None:
        server = await anyio.connect_tcp(host, int(port))
        async with client, server, anyio.create_task_group() as tasks:
            tasks.start_soon(up, client, server)
            await down(client, server)
            tasks.cancel_scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


@eras
@pytest.mark.promise("D1")
async def test_a_silent_call_outlives_a_proxy_that_cuts_silent_streams(
    service: Service, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp.server import _streamable_http_modern as modern
    from sse_starlette.sse import EventSourceResponse

    assert modern._SSE_PING_INTERVAL <= 15
    assert EventSourceResponse.DEFAULT_PING_INTERVAL <= 15
    monkeypatch.setattr(modern, "_SSE_PING_INTERVAL", 0.1)
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.1)
    async with (
        serving(service) as (url, _),
        impatient_proxy(url, 1.0) as through,
        Http(through, era) as client,
        waiting(client, service) as (answer, handoff_id),
    ):
        polls = len(service.sessions)
        await service.until(lambda: len(service.sessions) > polls + 20)
        service.finish(handoff_id, "held through")
        assert texts(await answer.result())[0] == "held through"
        assert answer.stream.comments >= 5
        assert all("method" not in message for message in answer.stream.messages)


@eras
@pytest.mark.promise("D1")
@pytest.mark.promise("progress")
async def test_progress_rides_the_calls_own_stream(service: Service, era: str) -> None:
    async with (
        serving(service) as (url, _),
        Http(url, era) as client,
        waiting(client, service, {"progressToken": "p"}) as (answer, handoff_id),
    ):
        await service.until(lambda: len(service.sessions) > 8)
        service.finish(handoff_id, "ok")
        assert texts(await answer.result())[0] == "ok"
        told = answer.stream.progress("p")
    assert told[0]["message"] == f"{handoff_id}: working"
    assert len(told) >= 3
    assert strictly_rising([each["progress"] for each in told])
    assert "result" in answer.stream.messages[-1]


@eras
@pytest.mark.promise("D3")
@pytest.mark.promise("rejoin")
async def test_a_dropped_call_is_found_by_id_and_its_repetition_joins_the_job(
    service: Service, era: str
) -> None:
    async with serving(service) as (url, _), Http(url, era) as client:
        for n in range(20):
            meta = {"callId": f"call_{n}"}
            async with waiting(client, service, meta) as (_, handoff_id):
                pass
            service.finish(handoff_id, f"answer {n}")
            await service.until(lambda: service.open_requests == 0)
            found = await client.tool("wait_handoff", {"handoff_ids": [handoff_id]})
            again = await client.tool("handoff", HOLD, meta)
            assert texts(found)[0] == texts(again)[0] == f"answer {n}"
            assert facts(again)["handoff_id"] == handoff_id
    assert len(service.starts) == 20
    assert service.stopped == []


@pytest.mark.promise("D2")
async def test_a_cancelled_call_over_http_is_answered_at_most_once(service: Service) -> None:
    async with serving(service) as (url, _), Http(url, LEGACY) as client:
        for n in range(20):
            async with waiting(client, service) as (answer, handoff_id):
                params = {"requestId": client._next, "reason": "no"}
                cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                for act in [1, 0] if n % 2 else [0, 1]:
                    if act:
                        service.finish(handoff_id)
                    else:
                        assert (await client.post(cancel)).status_code == 202
                await answer.stream.until(lambda: answer.stream.messages)
                assert len(answer.stream.responses(answer.stream.request_id)) == 1
            assert (await client.ask("tools/list"))["result"]["tools"]
    assert service.stopped == []


@eras
@pytest.mark.promise("D5")
async def test_20_calls_of_5_sessions_wait_at_once_and_others_stay_quick(service: Service, era: str) -> None:
    async with serving(service) as (url, _), anyio.create_task_group() as tasks:
        answers: list[str] = []

        async def session() -> None:
            async with Http(url, era) as client, anyio.create_task_group() as calls:
                for _ in range(4):
                    calls.start_soon(one, client)

        async def one(client: Http) -> None:
            answers.extend(texts(await client.tool("handoff", HOLD))[:1])

        for _ in range(5):
            tasks.start_soon(session)
        await service.until(lambda: len(service.jobs) == 20 and service.open_requests == 20)
        async with Http(url, era) as other:
            for _ in range(10):
                with anyio.fail_after(1):
                    await other.ask("tools/list")
        for handoff_id in list(service.jobs):
            service.finish(handoff_id, handoff_id)
    assert sorted(answers) == sorted(service.jobs)


@eras
@pytest.mark.promise("D7")
@pytest.mark.parametrize("size", [60_000, 400_000, 5_000_000])
@pytest.mark.parametrize("line", [80, 10_000_000], ids=["lines", "one-line"])
async def test_a_large_answer_is_sent_once_and_read_whole(
    service: Service, era: str, size: int, line: int
) -> None:
    whole = long_answer(size, line)
    async with serving(service) as (url, _), Http(url, era) as client:
        async with waiting(client, service) as (answer, handoff_id):
            service.finish(handoff_id, whole)
            result = await answer.result()
        assert (texts(result)[0] == whole) is (size <= 262_144)
        assert sum(len(block) for block in texts(result)) < 300_000
        pages, offset = [], 0
        while offset is not None:
            page = await client.tool("read_output", {"handoff_id": handoff_id, "offset": offset})
            pages.append(texts(page)[0])
            offset = facts(page).get("next_offset")
        assert "".join(pages) == whole


@pytest.mark.promise("D8")
async def test_after_a_restart_the_old_session_is_a_short_404_and_a_new_one_finds_the_job(
    service: Service,
) -> None:
    async with serving(service) as (url, _), Http(url, LEGACY) as client:
        given = await client.tool("assign", HOLD)
        old = client.session
    async with serving(service) as (url, _), Http(url, LEGACY) as client:
        fresh, client.session = client.session, old
        lost = await client.post({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}})
        assert lost.status_code == 404
        assert lost.json()["error"]["message"] == "Session not found"
        assert len(lost.content) < 200
        client.session = fresh
        service.finish(facts(given)["handoff_id"], "still there")
        assert texts(await client.tool("wait_handoff", {}))[0] == "still there"


@pytest.mark.promise("session")
async def test_the_session_is_the_mcp_session_or_the_header_where_there_is_none(service: Service) -> None:
    async with serving(service) as (url, _):
        async with Http(url, LEGACY) as client:
            await client.tool("list_profiles", {})
            assert service.sessions[-1] == client.session
        async with Http(url, MODERN) as client:
            await client.tool("list_profiles", {})
            assert service.sessions[-1] is None
            client.headers["changeover-session"] = "mine"
            await client.tool("list_profiles", {})
            assert service.sessions[-1] == "mine"
            client.headers["changeover-session"] = "x" * 300
            assert texts(await client.tool("list_profiles", {}))[0].startswith("invalid_params: ")


@pytest.mark.promise("strangers")
async def test_a_session_belongs_to_the_token_that_opened_it(service: Service) -> None:
    async with serving(service) as (url, _), Http(url, LEGACY) as client:
        client.token = "terminal-token"
        lost = await client.post({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}})
        assert lost.status_code == 404


@eras
@pytest.mark.promise("scopes")
async def test_each_call_is_made_with_the_callers_own_token(service: Service, era: str) -> None:
    async with serving(service) as (url, _):
        async with Http(url, era, "wrong-token") as client:
            refused = await client.tool("handoff", HOLD)
            assert texts(refused)[0].startswith("unauthenticated: ")
        async with Http(url, era, "terminal-token") as client:
            names = {tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]}
            assert "complete_handoff" in names
        async with Http(url, era) as client:
            names = {tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]}
            assert "complete_handoff" not in names
    assert service.starts == []


@eras
@pytest.mark.promise("D9")
async def test_a_stop_tells_waiting_callers_interrupted_with_their_id(service: Service, era: str) -> None:
    async with serving(service) as (url, app), Http(url, era) as client:
        async with waiting(client, service) as (answer, handoff_id):
            app.tools.stop()
            result = await answer.result()
        assert result["isError"]
        assert texts(result)[0].startswith("interrupted: the service is stopping")
        assert handoff_id in texts(result)[0]
        assert "wait_handoff" in texts(result)[0]
    assert service.jobs[handoff_id].result.status == "accepted"


@pytest.mark.promise("D9")
async def test_a_stop_ends_the_streams_on_which_clients_only_listen(service: Service) -> None:
    async with serving(service) as (url, app), Http(url, LEGACY) as client:
        headers = {"accept": "text/event-stream", "mcp-session-id": client.session or ""}
        headers |= {"authorization": "Bearer agent-token", "mcp-protocol-version": LEGACY}
        async with client._http.stream("GET", client.url, headers=headers) as listened:
            assert listened.status_code == 200
            app.tools.stop()
            with anyio.fail_after(5), pytest.raises(httpx2.RemoteProtocolError):
                await listened.aread()


@eras
@pytest.mark.promise("G2")
async def test_a_body_that_is_too_large_or_no_json_is_a_short_4xx(service: Service, era: str) -> None:
    async with serving(service, max_body_bytes=10_000) as (url, _), Http(url, era) as client:
        large = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
        large["params"] = call("handoff", {"agent_profile": "echo", "message": "x" * 20_000}, era)
        assert (await client.post(large)).status_code == 413
        headers = client._headers({"method": "tools/list"})
        broken = await client._http.post(client.url, content=b"{nonsense", headers=headers)
        assert broken.status_code == 400
        assert len(broken.content) < 300
        assert (await client.ask("tools/list"))["result"]["tools"]
        half = call("handoff", {"agent_profile": "echo", "message": "\ud800"}, era)
        message = {"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": half}
        refused = await client.post(message)
        assert refused.status_code == 400 if era == LEGACY else "surrogate" in refused.text
        assert len(refused.content) < 500
    assert service.starts == []


@pytest.mark.promise("unknown-arguments")
async def test_the_schema_of_a_tool_is_checked_before_anything_runs(service: Service) -> None:
    async with serving(service) as (url, _), Http(url, MODERN) as client:
        refused = await client.tool("handoff", {**HOLD, "working_directory": "/tmp"})
        assert "unknown field `working_directory`" in texts(refused)[0]
        listed = await client.ask("tools/list", {"_meta": envelope(MODERN)})
        assert "working_directory" not in str(listed)
    assert service.starts == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_sdks_client_is_served_in_both_eras(service: Service, mode: Any) -> None:
    async with serving(service) as (url, _):
        headers = {"authorization": "Bearer agent-token"}
        async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with mcp.Client(transport, mode=mode) as client:
                assert len((await client.list_tools()).tools) == 6
                result = await client.call_tool("handoff", {"agent_profile": "echo", "message": "hello"})
    assert next(block.text for block in result.content if block.type == "text") == "hello"
