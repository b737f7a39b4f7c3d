"""The contract of the tools: schemas, strictness, and what an answer looks like, through the SDK's client."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp
import mcp_types as types
import pytest

from mcp_tools.server import build_server
from mcp_tools.waiting import Patience
from orchestrator.client import Client
from tests.mcp_tools.service import Service

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls")]

LOOKALIKES = [
    '{"k":1}',
    "[1,2]",
    "123",
    "null",
    "true",
    '"quoted"',
    " ",
    "",
    "-dash",
    "@say hi",
    "日本 🙂",
    "a\r\nb",
]
QUICK = Patience(first=3.0, outage=5.0, poll=0.2, settle=0.05)


@asynccontextmanager
async def connected(
    service: Service, *, folder: bool = False, terminal: bool = False, mode: Any = "auto", name: str = "mcp"
) -> AsyncGenerator[mcp.Client]:
    @asynccontextmanager
    async def open_client(caller: Any) -> AsyncGenerator[Client]:
        transport = httpx2.ASGITransport(service)
        async with Client("http://service", "agent-token", session="s1", transport=transport) as client:
            yield client

    async def is_terminal(caller: Any) -> bool:
        return terminal

    server = build_server(
        open_client,
        working_directory_enabled=folder,
        is_terminal=is_terminal,
        caller_directory="/somewhere",
        progress_interval=0.05,
        patience=QUICK,
    )
    info = types.Implementation(name=name, version="1")
    async with mcp.Client(server, mode=mode, client_info=info) as client:
        yield client


def texts(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


def facts(result: types.CallToolResult) -> dict[str, Any]:
    assert result.structured_content is not None
    return result.structured_content


async def schemas(client: mcp.Client) -> dict[str, dict[str, Any]]:
    return {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}


async def test_the_tools_have_exactly_the_promised_signatures(service: Service) -> None:
    async with connected(service, folder=True, terminal=True) as client:
        found = await schemas(client)
    assert {name: (sorted(s["properties"]), s["required"]) for name, s in found.items()} == {
        "handoff": (
            ["agent_profile", "message", "model", "timeout", "working_directory"],
            ["agent_profile", "message"],
        ),
        "assign": (
            ["agent_profile", "message", "model", "timeout", "working_directory"],
            ["agent_profile", "message"],
        ),
        "wait_handoff": (["handoff_ids", "mode", "timeout"], []),
        "stop_handoff": (["handoff_id"], ["handoff_id"]),
        "read_output": (["handoff_id", "offset"], ["handoff_id"]),
        "list_profiles": ([], []),
        "complete_handoff": (["handoff_id", "outcome", "result"], ["result"]),
    }
    assert all(schema["additionalProperties"] is False for schema in found.values())
    timeout = found["handoff"]["properties"]["timeout"]
    assert (timeout["minimum"], timeout["maximum"], timeout["default"]) == (1, 3600, 600)
    assert found["wait_handoff"]["properties"]["mode"]["default"] == "all"


async def test_every_tool_says_what_it_is_and_what_it_does_to_the_world(service: Service) -> None:
    async with connected(service, terminal=True) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert client.instructions is not None
        assert "wait_handoff" in client.instructions
    assert all(tool.title and tool.description and tool.annotations for tool in tools.values())
    read_only = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
    assert read_only == {"wait_handoff", "read_output", "list_profiles"}
    destructive = {
        name for name, tool in tools.items() if tool.annotations and tool.annotations.destructive_hint
    }
    assert destructive == {"handoff", "assign", "stop_handoff"}
    whole = {name for name, tool in tools.items() if "anthropic/maxResultSizeChars" in (tool.meta or {})}
    assert whole == {"handoff", "wait_handoff", "read_output"}, "Claude Code previews what is long, else"
    assert all(tool.output_schema is None for tool in tools.values())


@pytest.mark.promise("working-directory-gate")
async def test_the_folder_is_a_parameter_only_where_it_is_switched_on(service: Service) -> None:
    given = {"agent_profile": "echo", "message": "x", "working_directory": "/tmp"}
    async with connected(service) as client:
        assert "working_directory" not in (await schemas(client))["handoff"]["properties"]
        for tool in ("handoff", "assign"):
            refused = await client.call_tool(tool, given)
            assert refused.is_error
            assert "unknown field `working_directory`" in texts(refused)[0]
    assert service.starts == []
    async with connected(service, folder=True) as client:
        assert not (await client.call_tool("handoff", given)).is_error
    assert service.starts[0][1].working_directory == "/tmp"


@pytest.mark.promise("unknown-arguments")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_unknown_argument_of_any_tool_is_a_validation_error(service: Service, mode: str) -> None:
    required = {"agent_profile": "echo", "message": "x", "handoff_id": "th_1", "result": "r"}
    async with connected(service, terminal=True, mode=mode) as client:
        for tool, schema in (await schemas(client)).items():
            given = {name: required[name] for name in schema["required"]}
            refused = await client.call_tool(tool, {**given, "speed": "fast"})
            assert refused.is_error
            assert texts(refused)[0].startswith("invalid_params: ")
            assert "speed" in texts(refused)[0]
    assert service.starts == []


@pytest.mark.promise("timeout-range")
@pytest.mark.parametrize("seconds", [0, -1, 3601, 10**30, "600", 600.5, True, None])
async def test_a_timeout_outside_the_range_is_refused_with_the_range(service: Service, seconds: Any) -> None:
    async with connected(service) as client:
        for tool, given in {"handoff": {"agent_profile": "echo", "message": "x"}, "wait_handoff": {}}.items():
            refused = await client.call_tool(tool, {**given, "timeout": seconds})
            assert refused.is_error
            assert "1 to 3600" in texts(refused)[0]
    assert service.starts == []


@pytest.mark.promise("D6")
@pytest.mark.parametrize("text", LOOKALIKES)
async def test_a_text_argument_arrives_as_it_was_sent(service: Service, text: str) -> None:
    async with connected(service, folder=True, terminal=True) as client:
        for tool in ("handoff", "assign"):
            await client.call_tool(
                tool, {"agent_profile": "echo", "message": text, "working_directory": text, "model": text}
            )
            request = service.starts[-1][1]
            assert (request.message, request.working_directory, request.model) == (text, text, text)
            wrong = await client.call_tool(tool, {"agent_profile": text, "message": "x"})
            assert f"no profile {text!r}" in texts(wrong)[0]
        for tool in ("stop_handoff", "read_output"):
            missing = await client.call_tool(tool, {"handoff_id": text})
            assert f"thread_not_found: no handoff {text!r}" in texts(missing)[0] or text == ""
        missing = await client.call_tool("wait_handoff", {"handoff_ids": [text]})
        assert f"no handoff {text!r}" in texts(missing)[0]
        await client.call_tool("complete_handoff", {"handoff_id": "th_1", "result": text})
        assert service.reports[-1] == ("th_1", service.reports[-1][1])
        assert service.reports[-1][1].result == text


@pytest.mark.promise("D6")
@pytest.mark.parametrize("value", [None, 123, True, {"k": 1}, ["x"]])
async def test_what_is_no_text_is_refused_where_a_text_is_needed(service: Service, value: Any) -> None:
    async with connected(service, terminal=True) as client:
        for tool, given, name in [
            ("handoff", {"agent_profile": "echo"}, "message"),
            ("handoff", {"message": "x"}, "agent_profile"),
            ("stop_handoff", {}, "handoff_id"),
            ("read_output", {}, "handoff_id"),
            ("complete_handoff", {"handoff_id": "th_1"}, "result"),
        ]:
            refused = await client.call_tool(tool, {**given, name: value})
            assert refused.is_error
            assert f"`$.{name}`" in texts(refused)[0]
    assert service.starts == []


@pytest.mark.promise("F4")
async def test_half_a_surrogate_pair_is_refused(service: Service) -> None:
    async with connected(service) as client:
        refused = await client.call_tool("handoff", {"agent_profile": "echo", "message": "x\ud800"})
    assert refused.is_error
    assert "surrogate" in texts(refused)[0]
    assert service.starts == []


@pytest.mark.promise("handoff-tool")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("name", "structured"),
    [
        ("mcp", True),
        ("scripted", True),
        ("changeover-bench", True),
        ("claude-code", False),
        ("codex-mcp-client", False),
        ("opencode", False),
        ("an agent nobody heard of", False),
    ],
)
async def test_the_answer_stands_alone_and_the_facts_come_where_the_client_shows_both(
    service: Service, mode: str, name: str, structured: bool
) -> None:
    async with connected(service, mode=mode, name=name) as client:
        result = await client.call_tool("handoff", {"agent_profile": "echo", "message": "one\n  two\n"})
    assert not result.is_error
    assert texts(result)[0] == "one\n  two\n"
    if structured:
        assert len(result.content) == 1
        known = facts(result)
    else:
        assert len(result.content) == 2
        assert result.structured_content is None, "agent CLIs show their model this in place of the text"
        known = json.loads(texts(result)[1])
    assert "output" not in known
    assert (known["handoff_id"], known["status"], known["outcome"]) == ("th_1", "completed", "succeeded")
    assert known["terminal_id"] == "te_1"
    assert service.starts[0][1].waits
    assert service.starts[0][1].caller_directory == "/somewhere"


@pytest.mark.promise("dead-delegate")
async def test_an_agent_that_failed_is_an_error_that_says_everything_in_its_first_block(
    service: Service,
) -> None:
    async with connected(service) as client:
        result = await client.call_tool("handoff", {"agent_profile": "dies", "message": "x"})
    assert result.is_error
    said = texts(result)[0]
    for part in [
        "terminal_dead: the agent ended",
        "th_1",
        "Exit status: 3",
        "Segmentation fault",
        "half an ans",
    ]:
        assert part in said
    assert facts(result)["error"]["exit_status"] == 3


@pytest.mark.promise("unknown-profile")
async def test_an_expected_error_is_told_with_its_code_and_detail(service: Service) -> None:
    async with connected(service) as client:
        unknown = await client.call_tool("handoff", {"agent_profile": "nobody", "message": "x"})
        missing = await client.call_tool("stop_handoff", {"handoff_id": "th_404"})
    assert texts(unknown)[0] == "unknown_profile: no profile 'nobody'; known are echo, hold, dies"
    assert texts(missing)[0] == "thread_not_found: no handoff 'th_404'\nhandoff_id: th_404"
    assert unknown.is_error
    assert missing.is_error
    assert facts(missing)["code"] == "thread_not_found"


@pytest.mark.promise("wait-ran-out")
async def test_a_wait_that_ran_out_gives_the_id_the_partial_output_and_what_to_do(service: Service) -> None:
    async with connected(service) as client:
        async with anyio.create_task_group() as tasks:

            async def partial_answer() -> None:
                await service.until(lambda: service.jobs)
                service.tell("th_1", output="half an", partial=True)

            tasks.start_soon(partial_answer)
            result = await client.call_tool(
                "handoff", {"agent_profile": "hold", "message": "x", "timeout": 1}
            )
        assert not result.is_error
        assert texts(result)[0].startswith("The wait ran out: handoff th_1 to hold is accepted (working)")
        assert 'wait_handoff(handoff_ids=["th_1"])' in texts(result)[0]
        assert texts(result)[1] == "Partial output so far, not the answer:\nhalf an"
        known = facts(result)
        assert (known["status"], known["wait"]) == ("accepted", "timed_out")
        assert "outcome" not in known
        service.finish("th_1", "whole")
        again = await client.call_tool("wait_handoff", {"handoff_ids": ["th_1"]})
        assert texts(again)[0] == "whole"
    assert service.stopped == []


@pytest.mark.promise("assign-tool")
@pytest.mark.promise("wait-tool")
async def test_assign_returns_at_once_and_wait_collects_all_any_or_what_is_open(service: Service) -> None:
    async with connected(service) as client:
        for task in ("first", "second"):
            given = await client.call_tool("assign", {"agent_profile": "hold", "message": task})
            assert facts(given)["status"] == "accepted"
        assert not service.starts[0][1].waits
        service.finish("th_2", "two")
        either = await client.call_tool("wait_handoff", {"handoff_ids": ["th_1", "th_2"], "mode": "any"})
        assert facts(either)["wait"] == "done"
        assert [each["handoff_id"] for each in facts(either)["handoffs"]] == ["th_1", "th_2"]
        first, still, second, answer = texts(either)
        assert (first, second) == ("Handoff th_1 to hold: accepted", "Handoff th_2 to hold: succeeded")
        assert still.startswith("Still at work: handoff th_1")
        assert answer == "two"
        service.finish("th_1", "one")
        rest = await client.call_tool("wait_handoff", {})
        assert texts(rest)[0] == "one"
        assert facts(rest)["handoff_id"] == "th_1"
        nothing = await client.call_tool("wait_handoff", {})
        assert texts(nothing)[0] == "No handoff of yours is open or uncollected."


@pytest.mark.promise("stop-tool")
@pytest.mark.promise("list-profiles-tool")
async def test_stopping_and_listing_say_what_became_of_it(service: Service) -> None:
    async with connected(service) as client:
        await client.call_tool("assign", {"agent_profile": "hold", "message": "x"})
        stopped = await client.call_tool("stop_handoff", {"handoff_id": "th_1"})
        assert texts(stopped)[0] == "Handoff th_1 is interrupted."
        assert not stopped.is_error
        listed = await client.call_tool("list_profiles", {})
        assert json.loads(texts(listed)[0])[0]["name"] == "echo"


@pytest.mark.promise("done-report")
async def test_only_a_terminal_is_shown_the_report_and_may_make_it(service: Service) -> None:
    async with connected(service) as client:
        assert "complete_handoff" not in await schemas(client)
        with pytest.raises(mcp.MCPError, match="unknown tool: complete_handoff"):
            await client.call_tool("complete_handoff", {"handoff_id": "th_1", "result": "x"})
        await client.call_tool("assign", {"agent_profile": "report", "message": "x"})
    async with connected(service, terminal=True) as client:
        assert "complete_handoff" in await schemas(client)
        await client.call_tool(
            "complete_handoff", {"handoff_id": "th_1", "result": "no", "outcome": "failed"}
        )
    assert service.jobs["th_1"].result.outcome == "failed"


async def test_an_unknown_tool_is_a_json_rpc_error(service: Service) -> None:
    async with connected(service) as client:
        with pytest.raises(mcp.MCPError, match="unknown tool: nothing") as raised:
            await client.call_tool("nothing", {})
    assert raised.value.error.code == types.INVALID_PARAMS


@pytest.mark.promise("D7")
@pytest.mark.promise("long-output")
async def test_an_answer_above_the_cap_says_so_and_can_be_read_whole(service: Service) -> None:
    whole = "".join(f"line {n} äöü\n" for n in range(60_000))
    async with connected(service) as client:
        await client.call_tool("assign", {"agent_profile": "hold", "message": "x"})
        service.finish("th_1", whole)
        result = await client.call_tool("wait_handoff", {"handoff_ids": ["th_1"]})
        assert facts(result)["truncated"] is True
        assert 'read_output(handoff_id="th_1", offset=0)' in texts(result)[1]
        assert sum(len(block) for block in texts(result)) < 300_000, "sent once"
        pages, offset = [], 0
        while offset is not None:
            page = await client.call_tool("read_output", {"handoff_id": "th_1", "offset": offset})
            pages.append(texts(page)[0])
            offset = facts(page).get("next_offset")
        assert "".join(pages) == whole


@pytest.mark.promise("rejoin")
@pytest.mark.parametrize("name", ["claudecode/toolUseId", "callId", "toolCallId"])
async def test_a_repeated_call_with_the_clients_own_id_joins_the_same_job(
    service: Service, name: str
) -> None:
    given = {"agent_profile": "echo", "message": "once"}
    async with connected(service) as client:
        meta: Any = {name: "toolu_1"}
        answers = [facts(await client.call_tool("handoff", given, meta=meta)) for _ in range(3)]
    assert {answer["handoff_id"] for answer in answers} == {"th_1"}
    assert [key for key, _ in service.starts] == ["toolu_1"]


async def test_a_client_whose_ids_are_not_unique_still_gets_each_task_done(service: Service) -> None:
    async with connected(service) as client:
        meta: Any = {"callId": "call_0"}
        for task in ("a", "b", "a", "b"):
            answer = await client.call_tool("handoff", {"agent_profile": "echo", "message": task}, meta=meta)
            assert texts(answer)[0] == task
    assert [request.message for _, request in service.starts] == ["a", "b"]


async def test_without_an_id_of_the_client_each_call_is_a_job_and_a_retry_is_none(service: Service) -> None:
    async with connected(service) as client:
        service.refuse(2)
        for _ in range(2):
            await client.call_tool("handoff", {"agent_profile": "echo", "message": "x"})
    keys = [key for key, _ in service.starts]
    assert len(keys) == len(set(keys)) == 2


@pytest.mark.promise("job-outlives-call")
async def test_a_wait_goes_on_through_a_service_that_stops_and_comes_back(service: Service) -> None:
    async with connected(service) as client, anyio.create_task_group() as tasks:

        async def restart() -> None:
            await service.until(lambda: service.jobs and service.open_requests)
            service.refuse(3)
            service.tell("th_1")
            await service.until(lambda: not service._refusals)
            service.finish("th_1", "after all")

        tasks.start_soon(restart)
        answer = await client.call_tool("handoff", {"agent_profile": "hold", "message": "x"})
    assert texts(answer)[0] == "after all"
    assert len(service.starts) == 1


@pytest.mark.promise("session")
async def test_the_session_is_sent_with_each_call(service: Service) -> None:
    async with connected(service) as client:
        await client.call_tool("handoff", {"agent_profile": "echo", "message": "x"})
    assert set(service.sessions) == {"s1"}
