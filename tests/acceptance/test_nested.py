"""Agents in terminals that hand work on: chains, reports, children that outlast a turn, places and tokens."""

import json
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import psutil
import pytest

from tests.cases.ways import (
    HTTP_LEGACY,
    HTTP_MODERN,
    Way,
    assigned,
    call,
    connected,
    every_way,
    id_in,
    worker,
)
from tests.live import LiveService, hand_off, in_phase, reached, start_agent
from tests.mcp_tools.driver import LEGACY, MODERN, facts, texts
from tests.mcp_tools.driver import call as params

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """Three places, two for one caller."""
    limits = {"CHANGEOVER_MAX_TERMINALS": "3", "CHANGEOVER_MAX_TERMINALS_PER_CALLER": "2"}
    with LiveService(tmp_path_factory.mktemp("narrow"), limits) as service:
        yield service.start()


# chains


async def test_what_an_agent_hands_on_is_a_child_of_its_own_handoff(shared: LiveService) -> None:
    for name in ("giver", "taker"):
        worker(shared, name)
    result = await hand_off(shared, "giver", call("handoff", agent_profile="taker", message="the answer"))
    assert result.output == "the answer"
    async with shared.client() as client:
        child = next(each for each in (await client.handoffs()).items if each.agent_profile == "taker")
        thread = await client.thread(child.handoff_id)
    assert thread.parent_id == result.handoff_id
    assert thread.sender == f"terminal:{result.terminal_id}"
    assert thread.working_directory == str(shared.work)


@pytest.mark.promise("chain")
async def test_an_agent_cannot_wait_for_the_handoff_it_works_on(shared: LiveService) -> None:
    worker(shared, "waiter")
    result = await hand_off(shared, "waiter", call("wait_handoff", handoff_ids=["$HANDOFF"]))
    assert (result.output or "").startswith("handoff_cycle: ")
    assert result.handoff_id in (result.output or "")


# reports


@pytest.mark.promise("done-report")
@pytest.mark.parametrize("named", [{}, {"handoff_id": "$HANDOFF"}], ids=["its own", "by id"])
async def test_a_report_is_the_answer(shared: LiveService, named: dict[str, str]) -> None:
    worker(shared, "reporter", front="completion: report")
    report = call("complete_handoff", result="the ✓ report\n", **named)
    result = await hand_off(shared, "reporter", f"@say not this\n{report}\n@wait 60")
    assert (result.outcome, result.output) == ("succeeded", "the ✓ report\n")
    failure = call("complete_handoff", result="cannot be done", outcome="failed", **named)
    result = await hand_off(shared, "reporter", failure)
    assert (result.outcome, result.output) == ("failed", "cannot be done")
    assert result.error is not None
    assert result.error.code == "agent_failed"


@pytest.mark.promise("done-report")
async def test_an_agent_that_ends_its_turn_without_its_report_is_reminded_and_held(live: LiveService) -> None:
    worker(live, "forgetful", front="completion: report")
    async with live.client() as client:
        started = await client.start_handoff(live.request("forgetful", "@say not the answer"))
        held = await in_phase(client, started.handoff_id, "held")
        assert held.outcome is None
        terminal = held.terminal_id or ""
        await reached(lambda: _turns(live, terminal, 3), "two reminders came")
        reminders = [turn["text"] for turn in live.turns(terminal)[1:]]
        assert all("complete_handoff" in text and started.handoff_id in text for text in reminders)
        await client.send_text(terminal, call("complete_handoff", result="at last"))
        done = (await client.wait_until([started.handoff_id], timeout=30)).handoffs[0]
    assert (done.outcome, done.output) == ("succeeded", "at last")


async def _turns(service: LiveService, terminal: str, count: int) -> bool:
    return len(service.turns(terminal)) >= count


@pytest.mark.promise("first-end-wins")
async def test_a_report_that_comes_before_the_turns_end_is_what_the_giver_gets(shared: LiveService) -> None:
    worker(shared, "both")
    task = f"@say the turn's answer\n{call('complete_handoff', result='the report')}"
    result = await hand_off(shared, "both", task)
    assert (result.outcome, result.output) == ("succeeded", "the report")


@every_way
@pytest.mark.promise("done-report")
async def test_only_who_works_on_a_handoff_can_report_it(shared: LiveService, way: Way) -> None:
    worker(shared, "slow")
    worker(shared, "meddler")
    async with connected(shared, way) as tools:
        handoff_id = await assigned(tools, "slow", "@wait 60")
        answer = await tools.ask("tools/call", _raw(way, "complete_handoff", {"result": "forged"}))
        assert "unknown tool: complete_handoff" in json.dumps(answer)
        meddled = await tools.tool(
            "handoff",
            {
                "agent_profile": "meddler",
                "message": call("complete_handoff", result="forged", handoff_id=handoff_id),
            },
        )
        assert texts(meddled)[0].startswith("thread_not_found: ")
        await tools.tool("stop_handoff", {"handoff_id": handoff_id})


def _raw(way: Way, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return params(tool, arguments, way[1])


# children that outlast the turn


@pytest.mark.promise("done-turn-end")
async def test_a_parent_is_held_until_its_children_end_then_told_and_then_done(live: LiveService) -> None:
    worker(live, "child")
    worker(live, "parent", "--answer", "", "--answer", "put together")
    task = "\n".join(
        call("assign", agent_profile="child", message=f"@wait 1.5\n@say part {n}") for n in (1, 2)
    )
    async with live.client() as client:
        started = await client.start_handoff(live.request("parent", task))
        held = await in_phase(client, started.handoff_id, "held")
        assert (held.status, held.outcome) == ("accepted", None)
        done = (await client.wait_until([started.handoff_id], timeout=60)).handoffs[0]
        assert (done.outcome, done.output) == ("succeeded", "put together")
        told = live.turns(done.terminal_id or "")[1]["text"]
        children = (await client.handoffs(limit=10)).items
        named = [each for each in children if each.agent_profile == "child" and each.handoff_id in told]
        assert len(named) == 2
        assert {each.outcome for each in named} == {"succeeded"}


@pytest.mark.promise("done-turn-end")
async def test_a_parent_whose_wait_ran_out_is_told_of_the_end_too(live: LiveService) -> None:
    """Its blocked handoff has become an assigned one; else the parent would be held for ever."""
    worker(live, "child")
    worker(live, "parent", "--answer", "", "--answer", "I have it")
    task = call("handoff", agent_profile="child", message="@wait 3\n@say it", timeout=1)
    done = await hand_off(live, "parent", task)
    assert (done.outcome, done.output) == ("succeeded", "I have it")
    assert "(succeeded)" in live.turns(done.terminal_id or "")[1]["text"]


async def test_children_whose_answers_were_collected_hold_nobody(live: LiveService) -> None:
    worker(live, "child")
    worker(live, "parent")
    lines = [call("assign", agent_profile="child", message=f"part {n}") for n in (1, 2)]
    done = await hand_off(live, "parent", "\n".join([*lines, call("wait_handoff")]))
    assert done.outcome == "succeeded"
    assert "part 1" in (done.output or "")
    assert "part 2" in (done.output or "")
    assert len(live.turns(done.terminal_id or "")) == 1


# places


@pytest.mark.promise("limits")
async def test_callers_take_turns_and_see_their_places(narrow: LiveService) -> None:
    """One caller has two places at most, so the other is served though it came last."""
    worker(narrow)
    async with connected(narrow, HTTP_MODERN) as tools, narrow.client() as person:
        greedy = [await assigned(tools, "worker", "@wait 60") for _ in range(4)]
        places = [(await person.handoff(each)).queue_place for each in greedy]
        assert places == [None, None, 1, 2]
        waited = await tools.tool("wait_handoff", {"handoff_ids": [greedy[3]], "timeout": 1})
        assert "at place 2" in texts(waited)[0]
        modest = await person.start_handoff(narrow.request("worker", "my turn"))
        done = await person.wait_until([modest.handoff_id], timeout=30)
        assert done.handoffs[0].output == "my turn"
        assert (await person.handoff(greedy[2])).queue_place == 1
        await tools.tool("stop_handoff", {"handoff_id": greedy[0]})
        await in_phase(person, greedy[2], "working")
        assert (await person.handoff(greedy[3])).queue_place == 1
        for each in greedy[1:]:
            await tools.tool("stop_handoff", {"handoff_id": each})
        await reached(lambda: _empty(narrow), "all terminals are gone")


async def _empty(service: LiveService) -> bool:
    return not service.agent_windows()


@pytest.mark.promise("limits")
@pytest.mark.promise("progress")
async def test_a_waiting_caller_is_told_its_place(narrow: LiveService) -> None:
    worker(narrow)
    async with connected(narrow, HTTP_MODERN) as tools:
        first = [await assigned(tools, "worker", "@wait 60") for _ in range(2)]
        given = {"agent_profile": "worker", "message": "later", "timeout": 30}
        asked = _raw(HTTP_MODERN, "handoff", given)
        asked["_meta"] |= {"progressToken": "p"}
        async with (
            tools.stream("tools/call", asked) as stream,  # type: ignore[union-attr]
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(stream.read)
            await stream.until(lambda: stream.progress("p"))
            assert "queued at place 1" in stream.progress("p")[0]["message"]
            for each in first:
                await tools.tool("stop_handoff", {"handoff_id": each})
            answer = await stream.response(stream.request_id)
        assert texts(answer["result"])[0] == "later"


@pytest.mark.promise("limits")
async def test_agents_that_wait_for_children_lend_them_their_places(narrow: LiveService) -> None:
    """All places are taken by agents that wait for agents that wait for agents."""
    for name in ("top", "middle", "bottom"):
        worker(narrow, name)
    task = call(
        "handoff", agent_profile="middle", message=call("handoff", agent_profile="bottom", message="deep")
    )
    async with narrow.client() as person, connected(narrow, HTTP_LEGACY) as tools:
        ours = [await assigned(tools, "top", task) for _ in range(2)]
        theirs = [(await person.start_handoff(narrow.request("top", task))).handoff_id for _ in range(2)]
        done = await person.wait_until([*ours, *theirs], timeout=90)
    assert [each.output for each in done.handoffs] == ["deep"] * 4


# credentials


async def _token_of_a_running_agent(service: LiveService) -> tuple[str, str, str]:
    """The handoff, terminal and token of an agent that works."""
    worker(service, "leaky")
    async with service.client() as client:
        started = await client.start_handoff(service.request("leaky", "@wait 300"))
        running = await in_phase(client, started.handoff_id, "working")
        view = await client.terminal(running.terminal_id or "")
    environment = psutil.Process(view.pid).environ()
    return started.handoff_id, view.terminal_id, environment["CHANGEOVER_TOKEN"]


@pytest.mark.promise("scopes", "environment")
async def test_a_terminals_token_is_its_own_and_ends_with_it(live: LiveService) -> None:
    handoff_id, terminal, token = await _token_of_a_running_agent(live)
    assert token not in (live.token("person"), live.token("agent"))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as http:
        who = (await http.get("/v1/caller")).json()
        assert who == {
            "scope": "terminal",
            "principal": f"terminal:{terminal}",
            "terminal_id": terminal,
            "handoff_id": handoff_id,
        }
        for method, path in [
            ("POST", "/v1/terminals"),
            ("GET", "/v1/service"),
            ("GET", "/v1/drivers"),
            ("GET", f"/v1/terminals/{terminal}/screen"),
            ("POST", f"/v1/terminals/{terminal}/messages"),
            ("DELETE", f"/v1/terminals/{terminal}"),
        ]:
            body = {"agent_profile": "leaky", "text": "x"} if method == "POST" else None
            refused = await http.request(method, path, json=body)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
        stop = await http.post(f"/v1/handoffs/{handoff_id}/stop", json={})
        assert (stop.status_code, stop.json()["code"]) == (403, "not_authorized_transition")
        async with live.client() as client:
            await client.stop(handoff_id)
            await reached(lambda: _ended(live, terminal), "its terminal ended")
        for path in ("/v1/caller", "/v1/handoffs", "/mcp"):
            assert (await http.get(path)).status_code == 401


async def _ended(service: LiveService, terminal: str) -> bool:
    async with service.client() as client:
        return (await client.terminal(terminal)).state == "ended"


@pytest.mark.promise("environment")
async def test_no_agent_has_the_persons_token_or_the_services_variables(live: LiveService) -> None:
    worker(live, "leaky")
    async with live.client() as client:
        lead = await start_agent(live, client, "leaky", "lead")
        environment = psutil.Process(lead.pid).environ()
    ours = {name for name in environment if name.startswith("CHANGEOVER_")}
    assert ours == {
        "CHANGEOVER_URL", "CHANGEOVER_TOKEN", "CHANGEOVER_TERMINAL", "CHANGEOVER_SPOOL", "CHANGEOVER_POKE",
    }  # fmt: skip
    values = " ".join(environment.values())
    assert live.token("person") not in values
    assert live.token("agent") not in values


@pytest.mark.promise("strangers")
async def test_an_agent_neither_sees_nor_stops_what_others_gave(shared: LiveService) -> None:
    worker(shared)
    async with shared.client() as person, connected(shared, HTTP_MODERN) as tools:
        private = await person.start_handoff(shared.request("worker", "@wait 60"))
        for tool in ("stop_handoff", "read_output"):
            refused = await tools.tool(tool, {"handoff_id": private.handoff_id})
            assert texts(refused)[0].startswith("thread_not_found: ")
        refused = await tools.tool("wait_handoff", {"handoff_ids": [private.handoff_id], "timeout": 1})
        assert texts(refused)[0].startswith("thread_not_found: ")
        assert private.handoff_id in texts(refused)[0]
        await person.stop(private.handoff_id)


@pytest.mark.promise("session", "done-report")
async def test_the_stdio_server_inside_a_terminal_acts_as_that_terminal(live: LiveService) -> None:
    worker(live, "helper")
    handoff_id, terminal, token = await _token_of_a_running_agent(live)
    for era in (LEGACY, MODERN):
        async with connected(live, ("stdio", era), token=token) as tools:
            names = [tool["name"] for tool in (await tools.ask("tools/list"))["result"]["tools"]]
            assert "complete_handoff" in names
            own = await tools.tool("handoff", {"agent_profile": "helper", "message": "help"})
            assert texts(own)[0] == "help"
            if era == MODERN:
                reported = await tools.tool("complete_handoff", {"result": "from inside"})
                assert id_in(texts(reported)[0]) == handoff_id
    async with live.client() as client:
        thread = await client.thread(facts(own)["handoff_id"])
        done = await client.handoff(handoff_id)
    assert (thread.sender, thread.parent_id) == (f"terminal:{terminal}", handoff_id)
    assert (done.outcome, done.output) == ("succeeded", "from inside")
