"""The stdio server as a process, driven by raw JSON-RPC: what a real client does to it, and worse."""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import mcp
import pytest

from tests.mcp_tools.driver import (
    LEGACY,
    MODERN,
    PROGRAM,
    Stdio,
    call,
    envelope,
    facts,
    long_answer,
    stdio,
    strictly_rising,
    texts,
)
from tests.mcp_tools.service import Service, listening

pytestmark = pytest.mark.anyio
eras = pytest.mark.parametrize("era", [LEGACY, MODERN])

HOLD = {"agent_profile": "hold", "message": "x"}
QUICK = {"progress_interval": 0.1, "patience": {"first": 1.0, "outage": 5.0, "poll": 0.1, "settle": 0.05}}


async def start_hold(
    driver: Stdio, service: Service, meta: dict[str, Any] | None = None, **known: Any
) -> tuple[Any, str]:
    """A waiting handoff: the request's id and the handoff's."""
    before = len(service.jobs)
    request_id = await driver.start("tools/call", call("handoff", HOLD, driver.era, meta), **known)
    await service.until(lambda: len(service.jobs) > before)
    return request_id, list(service.jobs)[-1]


@eras
@pytest.mark.promise("D1")
@pytest.mark.promise("progress")
@pytest.mark.promise("id-early")
@pytest.mark.parametrize("token", ["tok-1", 0])
async def test_progress_rises_under_the_clients_token_from_the_first_moment_to_the_answer(
    service: Service, url: str, era: str, token: Any
) -> None:
    async with stdio({"url": url, **QUICK}, era=era) as driver:
        request_id, handoff_id = await start_hold(driver, service, {"progressToken": token})
        await driver.until(lambda: driver.progress(token))
        assert driver.progress(token)[0]["message"] == f"{handoff_id}: working"
        service.tell(handoff_id, question="May I delete it?")
        await driver.until(lambda: any("May I delete it?" in p["message"] for p in driver.progress(token)))
        service.tell(handoff_id, question=None, queue_place=3)
        await driver.until(lambda: any("place 3" in p["message"] for p in driver.progress(token)))
        service.finish(handoff_id, "the answer")
        answer = await driver.response(request_id)
        told = len(driver.progress(token))
        await driver.ask("tools/list")
        assert texts(answer["result"])[0] == "the answer"
        assert strictly_rising([p["progress"] for p in driver.progress(token)])
        assert len(driver.progress(token)) == told, "progress after the result"
        assert driver.messages.index(answer) > max(
            driver.messages.index(m) for m in driver.messages if m.get("method") == "notifications/progress"
        )


@eras
@pytest.mark.promise("D1")
async def test_a_client_that_asked_for_no_progress_gets_none(service: Service, url: str, era: str) -> None:
    async with stdio({"url": url, **QUICK}, era=era) as driver:
        quiet, first = await start_hold(driver, service)
        _, second = await start_hold(driver, service, {"progressToken": "other"})
        await driver.until(lambda: len(driver.progress("other")) >= 3)
        service.finish(first)
        service.finish(second)
        await driver.response(quiet)
        notes = [m for m in driver.messages if "method" in m]
        assert {m["params"]["progressToken"] for m in notes} == {"other"}


@eras
@pytest.mark.promise("D2")
@pytest.mark.promise("job-outlives-call")
async def test_a_cancelled_call_is_never_answered_and_its_job_goes_on(
    service: Service, url: str, era: str
) -> None:
    async with stdio({"url": url, **QUICK}, era=era) as driver:
        number, first = await start_hold(driver, service)
        named, second = await start_hold(driver, service, request_id="call-a")
        for request_id in (number, number, named, 9999, "nothing"):
            await driver.cancel(request_id)
        await driver.ask("tools/list")
        service.finish(first, "found later")
        service.finish(second)
        found = await driver.tool("wait_handoff", {"handoff_ids": [first]})
        assert texts(found)[0] == "found later"
        assert driver.responses(number) == driver.responses(named) == []
        assert service.stopped == []
    assert b"Traceback" not in driver.log


@eras
@pytest.mark.promise("D2")
async def test_200_cancels_at_the_moment_of_completion_give_at_most_one_response_each(
    service: Service, url: str, era: str
) -> None:
    jitter = random.Random(7)
    async with stdio({"url": url, **QUICK}, era=era) as driver:
        for _ in range(200):
            request_id, handoff_id = await start_hold(driver, service)
            for act in jitter.sample(["cancel", "finish"], 2):
                if act == "cancel":
                    await driver.cancel(request_id)
                else:
                    service.finish(handoff_id)
                for _ in range(jitter.randrange(8)):
                    await anyio.lowlevel.checkpoint()
        tools = await driver.ask("tools/list")
        assert tools["result"]["tools"]
        answers = [m["id"] for m in driver.messages if "method" not in m]
        assert len(answers) == len(set(answers))
        assert all(job.result.outcome == "succeeded" for job in service.jobs.values())
    assert b"Traceback" not in driver.log


@eras
@pytest.mark.promise("D4")
async def test_nothing_but_json_rpc_is_on_stdout_whatever_goes_on(tmp_path: Path, era: str) -> None:
    address = tmp_path / "address"
    options = {"address_file": str(address), "noisy": True, "log_level": "DEBUG", **QUICK}
    # Buffered, so that what is printed while serving is flushed only at the end.
    environment = {**os.environ, "PYTHONWARNINGS": "default", "PYTHONUNBUFFERED": ""}
    service = Service()
    async with stdio(options, era=era, environment=environment) as driver:
        down = await driver.tool("handoff", HOLD)
        assert down["isError"]
        assert texts(down)[0] == "unavailable: no service runs: start it with `changeover serve`"
        address.write_text("http://127.0.0.1:9")
        refused = await driver.tool("list_profiles", {})
        assert texts(refused)[0].startswith("unavailable: no service answers at http://127.0.0.1:9")
        async with listening(service) as url:
            address.write_text(url)
            done = await driver.tool("handoff", {"agent_profile": "echo", "message": "back again"})
            assert texts(done)[0] == "back again"
            await driver.tool("handoff", {"agent_profile": "nobody", "message": "x"})
            await driver.send(b"this is not JSON")
        fd = Path(f"/proc/{driver.process.pid}/fd")
        assert (fd / "0").readlink() == Path(os.devnull)
        assert (fd / "1").readlink() == (fd / "2").readlink()
    assert driver.process.returncode == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in driver.lines)
    assert b"what has no business on stdout" in driver.log
    assert b"nor has this" in driver.log
    assert b"a warning at start" in driver.log
    assert b"Traceback" not in driver.log
    assert b"agent-token" not in driver.log


@eras
@pytest.mark.promise("D5")
async def test_pings_and_lists_are_quick_while_calls_wait_and_calls_run_at_once(
    service: Service, url: str, era: str
) -> None:
    async with stdio({"url": url}, era=era) as driver:
        waiting = [await start_hold(driver, service) for _ in range(20)]
        await service.until(lambda: service.open_requests == 20)
        for method in ["tools/list", "server/discover" if era == MODERN else "ping"] * 10:
            with anyio.fail_after(1):
                await driver.ask(method)
        for _, handoff_id in waiting:
            service.finish(handoff_id, f"answer of {handoff_id}")
        for request_id, handoff_id in waiting:
            answer = await driver.response(request_id)
            assert texts(answer["result"])[0] == f"answer of {handoff_id}"


@pytest.mark.promise("D7")
@pytest.mark.parametrize("size", [60_000, 400_000, 5_000_000])
@pytest.mark.parametrize("line", [80, 10_000_000], ids=["lines", "one-line"])
async def test_a_large_answer_comes_whole_or_capped_and_is_whole_in_the_store(
    service: Service, url: str, size: int, line: int
) -> None:
    whole = long_answer(size, line)
    async with stdio({"url": url}) as driver:
        request_id, handoff_id = await start_hold(driver, service)
        service.finish(handoff_id, whole)
        result = (await driver.response(request_id))["result"]
        if size <= 262_144:
            assert texts(result)[0] == whole
        else:
            assert facts(result)["truncated"] is True
            assert f'read_output(handoff_id="{handoff_id}"' in texts(result)[1]
            assert len(driver.lines[-1]) < 320_000
        pages, offset = [], 0
        while offset is not None:
            page = await driver.tool("read_output", {"handoff_id": handoff_id, "offset": offset})
            pages.append(texts(page)[0])
            offset = facts(page).get("next_offset")
        assert "".join(pages) == whole


@pytest.mark.promise("A4")
async def test_a_task_of_1_mb_arrives_whole(service: Service, url: str) -> None:
    task = "".join(chr(97 + n % 26) for n in range(1_000_000)) + "é\n"
    async with stdio({"url": url}) as driver:
        await driver.tool("assign", {"agent_profile": "hold", "message": task})
    assert service.starts[0][1].message == task


@eras
async def test_a_line_that_cannot_be_read_is_answered_under_its_id_where_it_has_one(
    service: Service, url: str, era: str
) -> None:
    half = {"jsonrpc": "2.0", "id": "s1", "method": "tools/call"}
    half["params"] = call("handoff", {"agent_profile": "echo", "message": "\ud800"}, era)
    async with stdio({"url": url}, era=era) as driver:
        await driver.ask("tools/list")
        await driver.send(half)
        assert "surrogate" in (await driver.response("s1"))["error"]["message"]
        await driver.send(b"{nonsense")
        assert (await driver.response(None))["error"]["code"] == -32700
        await driver.send(b'[{"jsonrpc":"2.0","id":77,"method":"ping"}]')
        await driver.until(lambda: len(driver.responses(None)) == 2)
        assert (await driver.ask("tools/list"))["result"]["tools"]
    assert service.starts == []


async def test_an_unknown_tool_and_an_unknown_method_are_json_rpc_errors(service: Service, url: str) -> None:
    async with stdio({"url": url}) as driver:
        assert (await driver.ask("tools/call", call("nothing", {})))["error"]["code"] == -32602
        assert (await driver.ask("no/such/method", {}))["error"]["code"] == -32601


@pytest.mark.promise("session")
@pytest.mark.promise("rejoin")
async def test_a_process_is_one_session_and_a_new_one_joins_the_job_of_the_old(
    service: Service, url: str
) -> None:
    meta = {"claudecode/toolUseId": "toolu_7"}
    async with stdio({"url": url, **QUICK}) as driver:
        await start_hold(driver, service, meta)
        await driver.tool("list_profiles", {})
        driver.process.kill()
    assert len(set(service.sessions)) == 1
    service.finish("th_1", "from before")
    async with stdio({"url": url, **QUICK}) as driver:
        again = await driver.tool("handoff", HOLD, meta)
    assert texts(again)[0] == "from before"
    assert len(service.starts) == 1
    assert len(set(service.sessions)) == 2
    assert service.starts[0][1].caller_directory == os.getcwd()


async def test_the_report_is_offered_only_where_the_token_is_a_terminals(service: Service, url: str) -> None:
    async with stdio({"url": url}) as plain, stdio({"url": url, "token": "terminal-token"}) as terminal:
        names = [
            {tool["name"] for tool in (await driver.ask("tools/list"))["result"]["tools"]}
            for driver in (plain, terminal)
        ]
    assert names[1] - names[0] == {"complete_handoff"}


@pytest.mark.promise("job-outlives-call")
async def test_it_ends_when_stdin_closes_though_calls_wait(service: Service, url: str) -> None:
    async with stdio({"url": url, **QUICK}) as driver:
        await start_hold(driver, service, {"progressToken": 1})
        await driver.process.stdin.aclose()
        with anyio.fail_after(5):
            assert await driver.process.wait() == 0
    assert b"Traceback" not in driver.log
    assert service.jobs["th_1"].result.status == "accepted"
    assert service.stopped == []


async def test_it_ends_with_its_parent_though_stdin_stays_open(service: Service, url: str) -> None:
    parent = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    command = [sys.executable, "-c", parent, sys.executable, str(PROGRAM), json.dumps({"url": url})]
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    hello["params"] = {**call("handoff", HOLD, MODERN), "_meta": envelope(MODERN)}
    async with await anyio.open_process(command) as process:
        assert process.stdin
        assert process.stdout
        watched = os.pidfd_open(int(await process.stdout.receive()))
        await process.stdin.send(json.dumps(hello).encode() + b"\n")
        await service.until(lambda: service.jobs)
        process.kill()
        await process.wait()
        with anyio.fail_after(5):
            await anyio.wait_readable(watched)
        os.close(watched)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_sdks_client_is_served_in_both_eras(service: Service, url: str, mode: Any) -> None:
    told: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    server = mcp.StdioServerParameters(
        command=sys.executable, args=[str(PROGRAM), json.dumps({"url": url, **QUICK})]
    )
    async with mcp.Client(server, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 6
        result = await client.call_tool(
            "handoff", {"agent_profile": "echo", "message": "hello"}, progress_callback=hear
        )
    assert next(block.text for block in result.content if block.type == "text") == "hello"
    assert all("th_1" in (message or "") for _, message in told)
