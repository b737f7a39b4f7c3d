"""The built-in profiles on the real Claude Code: ordinary work asks nobody, and the limits hold."""

import subprocess
from typing import Any

import pytest

from tests.acceptance.claude import ClaudeService, call
from tests.live import hand_off

pytestmark = [pytest.mark.anyio, pytest.mark.cli_agents]

Call = tuple[str, dict[str, Any]]


def bash(command: str) -> Call:
    return "Bash", {"command": command, "description": "x"}


async def ran(claude: ClaudeService, profile: str, *calls: Call) -> list[str]:
    """What came of each call, made by the agent in this order and without a question to anybody."""
    result = await hand_off(claude, profile, "\n".join([*(call(*each) for each in calls), "SAY=worked"]))
    assert (result.outcome, result.output) == ("succeeded", "worked")
    async with claude.client() as client:
        thread = await client.thread(result.handoff_id)
    assert "agent.asking" not in [event.type for event in thread.events]
    return [str(content) for content in claude.results(result.handoff_id)]


@pytest.fixture(scope="module", autouse=True)
def repository(claude: ClaudeService) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *arguments], cwd=claude.work, env=claude.env, check=True)

    (claude.work / "text").write_text("before\n")
    git("init", "--quiet")
    git("add", "text")
    git("commit", "--quiet", "--message", "one")
    (claude.work / "text").write_text("after\n")


@pytest.mark.parametrize("profile", ["developer", "tester"])
async def test_who_writes_can_write_and_run_anything(claude: ClaudeService, profile: str) -> None:
    made = claude.work / profile
    *_, printed, gone = await ran(
        claude,
        profile,
        ("Write", {"file_path": str(made), "content": "one two"}),
        ("Edit", {"file_path": str(made), "old_string": "two", "new_string": "three"}),
        bash(f"python3 -c 'print(open(\"{made}\").read(), end=chr(33))'"),
        ("WebSearch", {"query": "x"}),
    )
    assert made.read_text() == "one three"
    assert printed == "one three!"
    assert "No such tool available" in gone


@pytest.mark.parametrize("profile", ["reviewer", "supervisor"])
async def test_who_reads_can_read_everything_and_change_nothing(claude: ClaudeService, profile: str) -> None:
    written = claude.work / "written"
    can = [bash("git diff"), bash("git log --oneline"), bash("cat text"), ("Read", {"file_path": "text"})]
    cannot = [
        bash(f"touch {written}"),
        bash(f"git diff --output={written}"),
        bash(f"git diff > {written}"),
        ("Write", {"file_path": str(written), "content": "x"}),
    ]
    found = await ran(claude, profile, *can, *cannot)
    assert "+after" in found[0]
    assert found[1].endswith("one")
    assert found[2] == "after"
    assert "after" in found[3]
    assert all("denied" in each for each in found[4:7])
    assert "No such tool available" in found[7]
    assert not written.exists()
