"""Handoffs to the real Claude Code by the real service, its model being the stand-in."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from orchestrator.wire import EventView, HandoffResult
from tests.acceptance.claude import ClaudeService, folder
from tests.live import eventually, hand_off, in_phase, reached
from tests.model_server.script import characters, numbered

pytestmark = [pytest.mark.anyio, pytest.mark.cli_agents]

DEATH_SECONDS = 1.0


async def events(claude: ClaudeService, handoff_id: str) -> list[EventView]:
    async with claude.client() as client:
        return (await client.thread(handoff_id)).events


async def asked(claude: ClaudeService, handoff_id: str) -> None:
    """Returns once the model was asked, which then keeps silent as the task says."""

    async def look() -> bool:
        return bool(claude.requests(handoff_id))

    await reached(look, "the model is asked")


async def once(claude: ClaudeService, result: HandoffResult) -> bool:
    """Whether the task went in once: one text typed, one request."""
    typed = [each for each in await events(claude, result.handoff_id) if each.type == "delivery.typing"]
    return len(typed) == len(claude.requests(result.handoff_id)) == 1


async def at_once(claude: ClaudeService, profile: str, messages: list[str]) -> list[HandoffResult]:
    """Handoffs side by side, their results in the order of the messages."""
    found: dict[str, HandoffResult] = {}

    async def give(message: str) -> None:
        found[message] = await hand_off(claude, profile, message)

    async with anyio.create_task_group() as tasks:
        for message in messages:
            tasks.start_soon(give, message)
    return [found[message] for message in messages]


@pytest.mark.promise("exact-output")
@pytest.mark.promise("word-for-word")
@pytest.mark.promise("header")
async def test_the_answer_comes_back_byte_for_byte(claude: ClaudeService) -> None:
    message = "Grüße, 漢字 😀\n\n  blanks stay\n/not a command\n!ls\nSAY=  done; exactly `$HOME` %H \\n  \n."
    result = await hand_off(claude, "developer", message)
    assert (result.status, result.outcome) == ("completed", "succeeded")
    assert result.output == "  done; exactly `$HOME` %H \\n  "
    [request] = claude.requests(result.handoff_id)
    assert request["user"] == f"[handoff {result.handoff_id}]\n{message}"
    eventually(lambda: not claude.agent_windows(), "its terminal is closed")


@pytest.mark.promise("model-override")
async def test_prompt_model_and_tools_of_the_profile_reach_the_model(claude: ClaudeService) -> None:
    claude.profile("narrow", "model: claude-haiku-4-5\nallowed_tools: [Read]", "You are narrow.\n")
    own = await hand_off(claude, "narrow", "SAY=own")
    other = await hand_off(claude, "narrow", "SAY=other", model="claude-opus-4-5")
    [request] = claude.requests(own.handoff_id)
    assert request["model"] == "claude-haiku-4-5"
    assert "You are narrow." in request["system"]
    built_in = {name for name in request["tools"] if not name.startswith("mcp__")}
    assert built_in - {"DeferredToolPlaceholder"} == {"Read"}
    assert claude.requests(other.handoff_id)[0]["model"] == "claude-opus-4-5"


@pytest.mark.promise("header")
async def test_a_task_is_never_a_command(claude: ClaudeService) -> None:
    messages = ["/clear SAY=as said", "!touch ran SAY=as said"]
    for message, result in zip(messages, await at_once(claude, "developer", messages), strict=True):
        assert result.output == "as said"
        assert claude.requests(result.handoff_id)[0]["user"].endswith(message)
    assert not (claude.work / "ran").exists()


async def test_a_long_task_and_long_answers_are_whole(claude: ClaudeService) -> None:
    task = "".join(f"{number:07d} zeile ✓\n" for number in range(6_000))
    assert len(task.encode()) > 100_000
    lines, chars = await at_once(claude, "developer", [f"{task}LINES=12000", "CHARS=100000"])
    assert claude.requests(lines.handoff_id)[0]["user"].endswith(f"]\n{task}LINES=12000")
    assert lines.output == numbered(12_000)
    assert chars.output == characters(100_000)


async def test_an_error_of_the_model_is_a_failure_that_says_so(claude: ClaudeService) -> None:
    claude.profile("impatient", "env: [CLAUDE_CODE_MAX_RETRIES]")
    said = {401: "401", 403: "403", 413: "too large", 429: "429", 500: "500", 529: "529"}
    # A wait longer than Claude Code is willing to make is an error too.
    tasks = [f"HTTP={status}{' RETRY_AFTER=7200' if status == 429 else ''}" for status in said]
    for words, result in zip(said.values(), await at_once(claude, "impatient", tasks), strict=True):
        assert (result.status, result.outcome) == ("completed", "failed")
        assert result.error is not None
        assert result.error.code == "agent_failed"
        assert words in result.error.detail


async def test_a_limit_is_shown_while_it_is_waited_for_and_the_work_can_be_stopped(
    claude: ClaudeService,
) -> None:
    async with claude.client() as client:
        started = await client.start_handoff(claude.request("developer", "HTTP=429 RETRY_AFTER=40"))
        limited = await in_phase(client, started.handoff_id, "limited")
        assert limited.status == "accepted"
        stopped = await client.stop(started.handoff_id)
    assert (stopped.status, stopped.outcome) == ("completed", "interrupted")
    eventually(lambda: not claude.agent_windows(), "its terminal is closed")


@pytest.mark.promise("dead-delegate")
async def test_a_claude_that_is_killed_is_a_failure_at_once(claude: ClaudeService) -> None:
    async with claude.client() as client:
        started = await client.start_handoff(claude.request("developer", "WAIT=60"))
        await asked(claude, started.handoff_id)
        working = await in_phase(client, started.handoff_id, "working")
        view = await client.terminal(working.terminal_id or "")
        assert view.pid is not None
        os.kill(view.pid, signal.SIGKILL)
        killed = time.monotonic()
        waited = await client.wait_until([started.handoff_id], "all", 20)
        took = time.monotonic() - killed
    [result] = waited.handoffs
    assert result.outcome == "failed"
    assert result.error is not None
    assert (result.error.code, result.error.signal) == ("terminal_dead", "SIGKILL")
    assert f"[handoff {result.handoff_id}]" in (result.error.last_lines or "")
    assert took < DEATH_SECONDS


@pytest.mark.promise("job-outlives-call")
@pytest.mark.promise("adoption")
async def test_a_service_that_is_killed_finds_its_claude_again(claude: ClaudeService) -> None:
    async with claude.client() as client:
        started = await client.start_handoff(claude.request("developer", "WAIT=2 SAY=still here"))
        await asked(claude, started.handoff_id)
        await in_phase(client, started.handoff_id, "working")
    claude.kill()
    claude.start()
    async with claude.client() as client:
        waited = await client.wait_until([started.handoff_id], "all", 30)
    [result] = waited.handoffs
    assert (result.outcome, result.output) == ("succeeded", "still here")
    assert "terminal.adopted" in [each.type for each in await events(claude, result.handoff_id)]
    assert await once(claude, result)


@pytest.mark.promise("spool")
async def test_an_answer_given_while_no_service_runs_is_found(claude: ClaudeService) -> None:
    async with claude.client() as client:
        started = await client.start_handoff(claude.request("developer", "WAIT=1 SAY=nobody listens"))
        await asked(claude, started.handoff_id)
        working = await in_phase(client, started.handoff_id, "working")
    claude.kill()
    spool = claude.home / "terminals" / (working.terminal_id or "") / "spool"
    eventually(lambda: list(spool.glob("*.Stop")), "Claude Code has ended its turn")
    claude.start()
    async with claude.client() as client:
        waited = await client.wait_until([started.handoff_id], "all", 30)
    [result] = waited.handoffs
    assert (result.outcome, result.output) == ("succeeded", "nobody listens")
    assert await once(claude, result)


def test_doctor_shows_which_claude_code_there_is(claude: ClaudeService) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", "doctor", "--json"],
        env=claude.env,
        capture_output=True,
        text=True,
        check=False,
    )
    [found] = [each for each in json.loads(done.stdout)["findings"] if "claude_code" in each["name"]]
    assert found["ok"]
    pinned = json.loads((Path(__file__).parents[1] / "agents" / "package.json").read_text())
    assert pinned["dependencies"]["@anthropic-ai/claude-code"] in found["detail"]
    assert f"{folder()}/claude" in found["detail"]
