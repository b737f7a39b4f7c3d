"""The real Claude Code for tests: where it is, a home that asks nothing, and a service that drives it.

Its model is the stand-in of `tests/model_server`: tasks are written in that one's directives.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.live import LiveService
from tests.model_server.running import ROOT, StandIn

KEY = "sk-ant-not-a-key-000000000000000000001234567890"


@cache
def folder() -> str:
    """The folder with the `claude` to test. These tests prove nothing without it, so they fail."""
    places = (os.environ.get("CHANGEOVER_TEST_NODE_BIN"), str(ROOT / "tests/agents/node_modules/.bin"))
    found = next((place for place in places if place and (Path(place) / "claude").exists()), None)
    if found is None:
        pytest.fail("Claude Code is not installed. Install it: npm ci --prefix tests/agents", pytrace=False)
    return found


def environment(home: Path, model_url: str) -> dict[str, str]:
    """What Claude Code needs to be found, to use this home, and to ask the stand-in."""
    return {
        "PATH": f"{folder()}:{os.environ['PATH']}",
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def make_home(home: Path, *trusted: Path) -> Path:
    """A home in which all start-up questions were answered, for these folders."""
    home.mkdir()
    known = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        # Asked once of whoever has chosen a permission mode, some 0.1 s after the prompt first shows.
        "hasSeenAutoDefaultNudge": True,
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(place): {"hasTrustDialogAccepted": True} for place in trusted},
    }
    (home / ".claude.json").write_text(json.dumps(known))
    return home


def call(tool: str, arguments: Mapping[str, Any]) -> str:
    """A task whose model calls this tool."""
    return f"TOOL={tool}:{json.dumps(arguments)}"


def script(*replies: list[dict[str, Any]]) -> str:
    """A task whose model replies with these blocks, one list a reply."""
    return f"SCRIPT={json.dumps([{'blocks': blocks} for blocks in replies])}"


class ClaudeService(LiveService):
    """A service whose `claude_code` agents ask the stand-in; `model` has what they asked."""

    def __init__(self, folder: Path, model: StandIn) -> None:
        super().__init__(folder)
        self.model = model
        self.agent_home = make_home(folder / "agent_home", self.work)
        self.env |= environment(self.agent_home, model.url)
        # Reaches the agents whose profile names it; the default are ten tries, over some minutes.
        self.env["CLAUDE_CODE_MAX_RETRIES"] = "1"

    def requests(self, handoff_id: str) -> list[dict[str, Any]]:
        """What the model was asked in this handoff, oldest first."""
        header = f"[handoff {handoff_id}]"
        return [each for each in self.model.requests() if each["user"].startswith(header)]

    def results(self, handoff_id: str) -> list[Any]:
        """The content of each tool result that this handoff's model was given."""
        return [each["content"] for each in self.requests(handoff_id)[-1]["tool_results"]]
