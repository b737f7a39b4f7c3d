"""Field cases D: what agent CLIs and networks do to the tools, on a running service with real agents."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psutil
import pytest

from tests.cases.ways import (
    HTTP_LEGACY,
    HTTP_MODERN,
    STDIO_LEGACY,
    STDIO_MODERN,
    Tools,
    Way,
    assigned,
    connected,
    every_way,
    id_in,
    whole,
    worker,
)
from tests.live import LiveService, in_phase, reached
from tests.mcp_tools.driver import LEGACY, Http, Stdio, call, facts, strictly_rising, texts

pytestmark = pytest.mark.anyio

both_eras_of_http = pytest.mark.parametrize("way", [HTTP_LEGACY, HTTP_MODERN], ids="-".join)
both_eras_of_stdio = pytest.mark.parametrize("way", [STDIO_LEGACY, STDIO_MODERN], ids="-".join)


def working(message: str, profile: str = "worker", **more: Any) -> dict[str, Any]:
    return {"agent_profile": profile, "message": message, **more}


async def quick(tools: Tools) -> None:
    """What a client asks beside its calls, each answered within a second."""
    asked = [("tools/list", None), ("ping", {})] if tools.era == LEGACY else [("tools/list", None)]
    for method, params in asked:
        with anyio.fail_after(1):
            assert "result" in await tools.ask(method, params)


# D1


@every_way
@pytest.mark.promise("D1", "progress")
async def test_a_long_call_tells_how_it_goes_to_who_asked_and_to_nobody_else(
    shared: LiveService, way: Way
) -> None:
    """Longer than one interval of progress; the full length is measured by the benchmarks."""
    worker(shared)
    async with connected(shared, way) as tools:
        answers: dict[str, list[dict[str, Any]]] = {}

        async def converse(name: str, meta: dict[str, Any] | None) -> None:
            params = call("handoff", working(f"@wait 11\n@say {name}"), way[1], meta)
            if isinstance(tools, Stdio):
                request_id = await tools.start("tools/call", params)
                await tools.response(request_id)
            else:
                async with tools.stream("tools/call", params) as stream:
                    await stream.read()
                    answers[name] = stream.messages

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(converse, "told", {"progressToken": "the token"})
            tasks.start_soon(converse, "not told", None)
        notes = [
            message["params"]
            for message in (tools.messages if isinstance(tools, Stdio) else answers["told"])
            if message.get("method") == "notifications/progress"
        ]
    assert {note["progressToken"] for note in notes} == {"the token"}
    assert strictly_rising([note["progress"] for note in notes])
    assert len(notes) >= 2
    if isinstance(tools, Http):
        assert "result" in answers["told"][-1]
        assert all("method" not in message for message in answers["not told"])


# D2


@both_eras_of_stdio
@pytest.mark.promise("D2")
async def test_cancelling_around_the_end_never_gives_two_answers_and_breaks_nothing(
    shared: LiveService, way: Way
) -> None:
    """100 calls in each era, ten at a time: nine cancelled about when the tenth ends."""
    worker(shared)
    dice = random.Random(2)
    async with connected(shared, way) as tools:
        assert isinstance(tools, Stdio)
        usual = 0.5
        cancelled: list[Any] = []

        async def cancel_one(number: int) -> None:
            request_id = number if number % 3 else f"id {number}"
            await tools.start("tools/call", call("handoff", working("x"), way[1]), request_id)
            await anyio.sleep(dice.uniform(0, 2 * usual))
            await tools.cancel(request_id)
            if number % 5 == 0:
                await tools.cancel(request_id)
            cancelled.append(request_id)

        async def time_one() -> None:
            nonlocal usual
            began = anyio.current_time()
            assert texts(await tools.tool("handoff", working("x")))[0] == "x"
            usual = anyio.current_time() - began

        for start in range(1000, 1100, 10):
            async with anyio.create_task_group() as tasks:
                for number in range(start, start + 9):
                    tasks.start_soon(cancel_one, number)
                tasks.start_soon(time_one)
            await tools.cancel(9999)
            await quick(tools)
        done = facts(await tools.tool("wait_handoff", {"timeout": 60}))
        assert all(each["outcome"] == "succeeded" for each in done.get("handoffs", [done]))
        assert texts(await tools.tool("handoff", working("still here")))[0] == "still here"
        counts = {len(tools.responses(request_id)) for request_id in cancelled}
    assert counts <= {0, 1}
    assert counts == {0, 1}, "the jitter missed one side of the end"
    assert b"Traceback" not in tools.log
    assert "Traceback" not in shared.log.read_text()


@both_eras_of_stdio
@pytest.mark.promise("D2")
async def test_a_cancelled_call_leaves_its_work_to_be_found(shared: LiveService, way: Way) -> None:
    worker(shared)
    async with connected(shared, way) as tools:
        assert isinstance(tools, Stdio)
        params = call("handoff", working("@wait 2\n@say done all the same"), way[1], {"progressToken": 1})
        request_id = await tools.start("tools/call", params)
        await tools.until(lambda: tools.progress(1))
        handoff_id = id_in(tools.progress(1)[0]["message"])
        await tools.cancel(request_id)
        await quick(tools)
        found = await tools.tool("wait_handoff", {"handoff_ids": [handoff_id]})
        assert texts(found)[0] == "done all the same"
        assert tools.responses(request_id) == []


# D3


@both_eras_of_http
@pytest.mark.promise("D3", "rejoin", "job-outlives-call")
async def test_a_dropped_caller_finds_its_work_and_its_retry_joins_it(live: LiveService, way: Way) -> None:
    log = live.work / "turns.jsonl"
    worker(live, "worker", "--log", str(log))
    rounds = 25
    async with connected(live, way) as tools:
        await tools.tool("handoff", working("warm"))
    await reached(lambda: _idle(live), "no terminal is left")
    assert live.process is not None
    process = psutil.Process(live.process.pid)
    before = await _settled_count(process)
    ids: set[str] = set()
    async with connected(live, way) as tools:
        assert isinstance(tools, Http)
        for number in range(rounds):
            meta = {"callId": f"call_{number}", "progressToken": "p"}
            given = working(f"@wait 0.5\n@say answer {number}")
            async with tools.stream("tools/call", call("handoff", given, way[1], meta)) as stream:
                with anyio.CancelScope() as gone:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(stream.read)
                        await stream.until(lambda stream=stream: stream.progress("p"))
                        gone.cancel()
                handoff_id = id_in(stream.progress("p")[0]["message"])
            assert len(live.agent_windows()) <= 2
            if number % 2:
                found = await tools.tool("wait_handoff", {"handoff_ids": [handoff_id]})
                assert texts(found)[0] == f"answer {number}"
            again = await tools.tool("handoff", given, meta)
            assert texts(again)[0] == f"answer {number}"
            assert facts(again)["handoff_id"] == handoff_id
            ids.add(handoff_id)
    assert len(ids) == rounds
    assert len(log.read_text().splitlines()) == rounds + 1
    await reached(lambda: _idle(live), "no terminal is left")
    await reached(lambda: _at_most(process, before), "all connections are closed", 30)


@both_eras_of_stdio
@pytest.mark.promise("D3", "rejoin", "job-outlives-call")
async def test_the_retry_of_a_caller_whose_server_was_killed_joins_the_job(
    shared: LiveService, way: Way
) -> None:
    worker(shared)
    given, meta = working("@wait 2\n@say once"), {"claudecode/toolUseId": f"toolu_killed_{way[1]}"}
    async with connected(shared, way) as tools:
        assert isinstance(tools, Stdio)
        await tools.start("tools/call", call("handoff", given, way[1], meta | {"progressToken": 1}))
        await tools.until(lambda: tools.progress(1))
        handoff_id = id_in(tools.progress(1)[0]["message"])
        tools.process.kill()
        await tools.process.wait()
    async with connected(shared, way) as tools:
        again = await tools.tool("handoff", given, meta)
    assert (texts(again)[0], facts(again)["handoff_id"]) == ("once", handoff_id)


async def _idle(service: LiveService) -> bool:
    return not service.agent_windows()


async def _settled_count(process: psutil.Process) -> int:
    """What is open once connections that are only kept alive are closed."""

    async def none_connected() -> bool:
        return not [each for each in process.net_connections("tcp") if each.status == "ESTABLISHED"]

    await reached(none_connected, "idle connections are closed", 30)
    return _open(process)


async def _at_most(process: psutil.Process, count: int) -> bool:
    return _open(process) <= count


def _open(process: psutil.Process) -> int:
    """Sockets, pipes and the like. Of the database's files a bounded pool of readers keeps some open."""
    database = [each for each in process.open_files() if "changeover.db" in each.path]
    assert len(database) <= 20
    return process.num_fds() - len(database)


# D5


@every_way
@pytest.mark.promise("D5")
async def test_two_long_calls_run_side_by_side_and_all_else_is_quick(shared: LiveService, way: Way) -> None:
    worker(shared)
    async with connected(shared, way) as tools:
        finished: list[str] = []

        async def one(name: str) -> None:
            finished.append(texts(await tools.tool("handoff", working(f"@wait 4\n@say {name}")))[0])

        await tools.ask("tools/list")  # a process that was only now started is up
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "a")
            tasks.start_soon(one, "b")
            while len(finished) < 2:
                await quick(tools)
                await anyio.sleep(0.05)
        assert anyio.current_time() - began < 7.5
    assert sorted(finished) == ["a", "b"]


@pytest.mark.promise("D5")
async def test_twenty_calls_from_five_sessions_at_once(shared: LiveService) -> None:
    worker(shared)
    ways = [HTTP_LEGACY, HTTP_MODERN, STDIO_LEGACY, STDIO_MODERN, HTTP_LEGACY]
    finished: list[str] = []

    async def session(number: int, way: Way) -> None:
        async with connected(shared, way) as tools, anyio.create_task_group() as tasks:
            for n in range(4):
                tasks.start_soon(one, tools, f"{number}.{n}")

    async def one(tools: Tools, name: str) -> None:
        finished.append(texts(await tools.tool("handoff", working(f"@wait 3\n@say {name}")))[0])

    async with anyio.create_task_group() as tasks, httpx2.AsyncClient(trust_env=False) as http:
        for number, way in enumerate(ways):
            tasks.start_soon(session, number, way)
        while len(finished) < 20:
            with anyio.fail_after(1):
                assert (await http.get(f"{shared.url}/health")).status_code == 200
            async with shared.client() as person:
                with anyio.fail_after(1):
                    await person.profiles()
            await anyio.sleep(0.05)
    assert sorted(finished) == sorted(f"{number}.{n}" for number in range(5) for n in range(4))


# D7

SIZES = {"60 KB": 60_000, "400 KB": 400_000, "5 MB": 5_000_000}


def answers(folder: Path) -> dict[str, Path]:
    """Files of each size, as one line and as many, with characters of several bytes."""
    made: dict[str, Path] = {}
    for name, size in SIZES.items():
        text = "".join(f"{number:08d} ✓ ä" for number in range(size // 15))
        lines = "".join(f"{number:08d} ✓ ä\n" for number in range(size // 16))
        for form, content in (("one line", text), ("many lines", lines)):
            path = folder / f"{size}-{form.replace(' ', '-')}.txt"
            path.write_text(content)
            made[f"{name}, {form}"] = path
    return made


@every_way
@pytest.mark.promise("D7", "long-output", "exact-output")
async def test_large_answers_are_capped_marked_and_whole_in_the_store(shared: LiveService, way: Way) -> None:
    worker(shared)
    made = answers(shared.work)
    async with connected(shared, way) as tools:
        for name, path in made.items():
            content = path.read_text()
            result = await tools.tool("handoff", working(f"@file {path}"))
            found = facts(result)
            assert found["output_chars"] == len(content), name
            sent = sum(len(text.encode()) for text in texts(result))
            if len(content.encode()) <= 256 * 1024:
                assert texts(result)[0] == content
                assert not found.get("truncated")
                continue
            assert found["truncated"] is True
            assert sent < 270_000, "once, and not beside it in another form"
            assert texts(result)[0].startswith(content[:50_000])
            assert texts(result)[0].endswith(content[-50_000:])
            assert "left out" in texts(result)[0]
            assert "read_output" in texts(result)[1]
            assert found["handoff_id"] in texts(result)[1]
            assert await whole(tools, found["handoff_id"]) == content, name


# D8


@pytest.mark.promise("D8", "stored-first")
async def test_after_a_restart_an_old_session_is_a_404_and_a_new_one_finds_the_job(live: LiveService) -> None:
    worker(live)
    async with Http(live.url, LEGACY, live.token("agent")) as tools:
        handoff_id = await assigned(tools, "worker", "@wait 3\n@say through it all")
        old = tools.session
        live.stop()
        live.start()
        tools.url = f"{live.url}/mcp"
        lost = await tools.post({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}})
        assert lost.status_code == 404
        assert len(lost.text) < 300
        assert "Traceback" not in lost.text
        assert lost.json()["error"]["message"]
        await tools.greet()
        assert tools.session not in (None, old)
        found = await tools.tool("wait_handoff", {"handoff_ids": [handoff_id]})
        assert texts(found)[0] == "through it all"


# D9


@asynccontextmanager
async def listener(service: LiveService) -> AsyncGenerator[None]:
    """A client that only listens, as clients of the older era do."""
    async with Http(service.url, LEGACY, service.token("agent")) as idle:
        headers = {
            "accept": "text/event-stream",
            "authorization": f"Bearer {idle.token}",
            "mcp-session-id": idle.session or "",
            "mcp-protocol-version": LEGACY,
        }
        async with idle._http.stream("GET", idle.url, headers=headers) as response:
            assert response.status_code == 200
            yield


@both_eras_of_http
@pytest.mark.promise("D9")
async def test_at_sigterm_callers_are_told_interrupted_with_the_id_and_the_work_goes_on(
    live: LiveService, way: Way
) -> None:
    worker(live)
    told: list[dict[str, Any]] = []
    async with connected(live, way) as tools, listener(live), live.client() as person:

        async def one(name: str) -> None:
            told.append(await tools.tool("handoff", working(f"@say half\n@wait 6\n@say {name}")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "a")
            tasks.start_soon(one, "b")
            await reached(lambda: _working(person, 2), "both work")
            began = anyio.current_time()
            assert await anyio.to_thread.run_sync(live.stop) == 0
            assert anyio.current_time() - began < 10
    assert [result["isError"] for result in told] == [True, True]
    assert all(texts(result)[0].startswith("interrupted: ") for result in told)
    ids = [id_in(texts(result)[0]) for result in told]
    assert len(set(ids)) == 2
    assert all("wait_handoff" in texts(result)[0] for result in told)
    live.start()
    async with connected(live, way) as tools:
        done = await tools.tool("wait_handoff", {"handoff_ids": ids})
        assert {text for text in texts(done) if text.startswith("half")} == {"half\na", "half\nb"}


async def _working(person: Any, count: int) -> bool:
    items = (await person.handoffs(status="accepted")).items
    return len([each for each in items if each.phase == "working"]) == count


@both_eras_of_stdio
@pytest.mark.promise("D9", "job-outlives-call")
async def test_a_call_over_stdio_waits_through_a_restart(live: LiveService, way: Way) -> None:
    worker(live)
    async with connected(live, way) as tools, live.client() as person:
        assert isinstance(tools, Stdio)
        params = call("handoff", working("@wait 5\n@say in the end"), way[1], {"progressToken": 1})
        request_id = await tools.start("tools/call", params)
        await tools.until(lambda: tools.progress(1))
        await in_phase(person, id_in(tools.progress(1)[0]["message"]), "working")
        live.stop()
        gone = await tools.tool("list_profiles", {})
        assert gone["isError"]
        assert texts(gone)[0].startswith("unavailable: ")
        live.start()
        answer = await tools.response(request_id, 60)
        assert texts(answer["result"])[0] == "in the end"
    assert b"Traceback" not in tools.log
