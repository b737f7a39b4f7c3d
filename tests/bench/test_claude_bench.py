"""A call of the real Claude Code at full length: longer than the 120 s after which it puts calls aside."""

import json
from pathlib import Path

import pytest

from tests.acceptance.claude import ClaudeService, call
from tests.live import hand_off
from tests.model_server.running import StandIn

pytestmark = [pytest.mark.bench, pytest.mark.cli_agents, pytest.mark.anyio]

SILENT_SECONDS = 135


async def test_a_long_silent_call_is_neither_put_aside_nor_cut(tmp_path: Path) -> None:
    message = f"@quiet {SILENT_SECONDS}\n@say at last"
    task = (
        call("mcp__changeover__handoff", {"agent_profile": "scripted", "message": message}) + "\nSAY=got it"
    )
    with StandIn(tmp_path) as model, ClaudeService(tmp_path, model) as live:
        result = await hand_off(live.start(), "developer", task, seconds=SILENT_SECONDS + 60)
        assert (result.outcome, result.output) == ("succeeded", "got it")
        asked, told = live.requests(result.handoff_id)
        assert told["at"] - asked["at"] > SILENT_SECONDS
        [content] = live.results(result.handoff_id)
    answer, facts = (block["text"] for block in content)
    assert answer == "at last"
    assert json.loads(facts)["outcome"] == "succeeded"
