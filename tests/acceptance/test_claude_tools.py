"""The real Claude Code hands work on: what its model sees of our tools, however it was connected."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.wire import ThreadView
from tests.acceptance.claude import ClaudeService, call, environment, make_home
from tests.live import hand_off
from tests.model_server.script import characters

pytestmark = [pytest.mark.anyio, pytest.mark.cli_agents]

TOOLS = {"handoff", "assign", "wait_handoff", "stop_handoff", "read_output", "list_profiles"}


def tool(name: str, **arguments: Any) -> str:
    return call(f"mcp__changeover__{name}", arguments)


def texts(content: Any) -> list[str]:
    """A tool result's blocks, which are nothing but text."""
    assert all(set(block) == {"type", "text"} for block in content)
    return [block["text"] for block in content]


async def children(claude: ClaudeService, handoff_id: str) -> list[ThreadView]:
    """The handoffs that were made in this one, oldest first."""
    async with claude.client() as client:
        listed = await client.handoffs()
        threads = [await client.thread(each.handoff_id) for each in reversed(listed.items)]
    return [thread for thread in threads if thread.parent_id == handoff_id]


@pytest.mark.promise("handoff-tool")
async def test_the_delegates_answer_is_in_the_tools_result(claude: ClaudeService) -> None:
    message = "@wait 0.5\n@say from the delegate"
    task = tool("handoff", agent_profile="scripted", message=message) + "\nSAY=handed on"
    result = await hand_off(claude, "developer", task)
    assert (result.outcome, result.output) == ("succeeded", "handed on")
    [child] = await children(claude, result.handoff_id)
    [content] = claude.results(result.handoff_id)
    answer, facts = texts(content)
    assert answer == "from the delegate"
    told = json.loads(facts)
    assert (told["handoff_id"], told["status"], told["outcome"]) == (
        child.thread_id,
        "completed",
        "succeeded",
    )
    # Once in the whole of what the model was told, beside the task that asks for it.
    conversation = json.dumps(claude.requests(result.handoff_id)[-1]["messages"])
    assert conversation.count('"from the delegate"') == 1
    assert child.sender == f"terminal:{result.terminal_id}"


@pytest.mark.promise("D7")
async def test_a_large_answer_reaches_the_model_whole(claude: ClaudeService) -> None:
    answer = characters(200_000)
    (claude.work / "large").write_text(answer)
    message = f"@file {claude.work}/large"
    result = await hand_off(claude, "developer", tool("handoff", agent_profile="scripted", message=message))
    [content] = claude.results(result.handoff_id)
    assert texts(content)[0] == answer


@pytest.mark.promise("assign-tool")
@pytest.mark.promise("wait-tool")
async def test_work_that_was_assigned_is_collected(claude: ClaudeService) -> None:
    messages = ("@wait 1\n@say the first", "@say the second")
    given = [tool("assign", agent_profile="scripted", message=message) for message in messages]
    task = "\n".join([*given, tool("wait_handoff"), "SAY=all are in"])
    result = await hand_off(claude, "developer", task)
    assert (result.outcome, result.output) == ("succeeded", "all are in")
    ids = [child.thread_id for child in await children(claude, result.handoff_id)]
    assert len(ids) == 2
    *assigned, waited = claude.results(result.handoff_id)
    assert [json.loads(texts(each)[1])["handoff_id"] for each in assigned] == ids
    first, one, second, two, facts = texts(waited)
    assert (one, two) == ("the first", "the second")
    assert ids[0] in first
    assert ids[1] in second
    assert [each["handoff_id"] for each in json.loads(facts)["handoffs"]] == ids


async def test_a_turn_that_ends_with_work_still_out_is_taken_up_again(claude: ClaudeService) -> None:
    """The agent says it is done too early: it is told when its delegate has ended, and ends then."""
    task = tool("assign", agent_profile="scripted", message="@wait 1\n@say late") + "\nSAY=done too early"
    result = await hand_off(claude, "developer", task)
    assert result.outcome == "succeeded"
    [child] = await children(claude, result.handoff_id)
    assert child.ended_at is not None
    assert result.output is not None
    assert child.thread_id in result.output  # the stand-in echoes the text that woke it


async def test_a_failed_delegate_is_an_error_that_says_how(claude: ClaudeService) -> None:
    task = tool("handoff", agent_profile="scripted", message="@exit 3")
    result = await hand_off(claude, "developer", task)
    [found] = claude.requests(result.handoff_id)[-1]["tool_results"]
    assert found["is_error"]
    assert "terminal_dead" in json.dumps(found["content"])
    assert "Exit status: 3" in json.dumps(found["content"])


def configurations(claude: ClaudeService) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What `changeover mcp --print-config claude` prints: the two ways to connect, and the settings."""
    program = Path(sys.executable).with_name("changeover")
    printed = subprocess.run(
        [program, "mcp", "--print-config", "claude"],
        env=claude.env,
        cwd=claude.work,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    decoder, found, at = json.JSONDecoder(), [], 0
    while (at := printed.find("\n{", at)) >= 0:
        value, at = decoder.raw_decode(printed, at + 1)
        found.append(value)
    *servers, settings = found
    return servers, settings


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_the_printed_configuration_connects_a_claude_of_ones_own(
    claude: ClaudeService, tmp_path: Path, way: str
) -> None:
    servers, settings = configurations(claude)
    [config] = [each for each in servers if each["mcpServers"]["changeover"]["type"] == way]
    home = make_home(tmp_path / "home")
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "pasted.json").write_text(json.dumps(config))
    # Over HTTP the service does not know where the caller stands.
    claude.profile("here", f"driver: scripted\nworking_directory: {claude.work}")
    marker = f"pasted {way}"
    task = f"{marker}\n" + tool("handoff", agent_profile="here", message="@say hello") + "\nSAY=well"
    done = subprocess.run(
        [
            "claude",
            "-p",
            task,
            "--mcp-config",
            tmp_path / "pasted.json",
            "--allowed-tools",
            "mcp__changeover",
        ],
        env={**environment(home, claude.model.url), "CHANGEOVER_TOKEN": claude.token("agent")},
        cwd=claude.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("well", 0), done.stderr
    requests = [each for each in claude.model.requests() if each["user"].startswith(marker)]
    offered = {name.removeprefix("mcp__changeover__") for name in requests[0]["tools"] if "__" in name}
    assert offered == TOOLS
    [content] = [each["content"] for each in requests[-1]["tool_results"]]
    assert texts(content)[0] == "hello"
