"""Dialogs of the real Claude Code in a handoff: shown, never typed into, answered by a person."""

from contextlib import suppress

import pytest
from anyio import to_thread

from orchestrator.client import Client
from orchestrator.wire import HandoffResult
from tests.acceptance.claude import ClaudeService, call
from tests.live import eventually, in_phase

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.cli_agents,
    pytest.mark.promise("approvals"),
    pytest.mark.promise("never-typed-into"),
]


@pytest.fixture(autouse=True)
def asking(claude: ClaudeService) -> None:
    """A profile whose agent asks before it does anything, as people have it who never changed a setting."""
    claude.profile("asking", "command: [claude, --permission-mode, default]")


async def ended(client: Client, handoff_id: str) -> HandoffResult:
    return (await client.wait_until([handoff_id], "all", 30)).handoffs[0]


async def choose(claude: ClaudeService, asked: HandoffResult, choice: str, key: str = "Enter") -> None:
    """As a person does who is attached: goes to the choice, presses the key, and sees that the dialog went.

    A dialog may be drawn before keys are read, so what had no effect is done again.
    """
    pane = f"=changeover:={asked.terminal_id}"

    def shown() -> str:
        return claude.tmux("capture-pane", "-p", "-t", pane).stdout

    def gone() -> bool:
        before = shown()
        if choice not in before:
            return True
        claude.tmux("send-keys", "-t", pane, key if f"❯ {choice}" in before else "Down")
        with suppress(AssertionError):
            eventually(lambda: shown() != before, f"{choice} is taken", 1.0)
        return False

    def act() -> None:
        eventually(lambda: choice in shown(), f"{choice} can be chosen")
        eventually(gone, f"{choice} is taken")

    await to_thread.run_sync(act)


async def test_an_untrusted_folder_is_asked_about_and_the_task_goes_in_after_the_answer(
    claude: ClaudeService,
) -> None:
    folder = claude.work.parent / "untrusted"
    folder.mkdir()
    async with claude.client() as client:
        request = claude.request("developer", "SAY=trusted", working_directory=str(folder))
        started = await client.start_handoff(request)
        asked = await in_phase(client, started.handoff_id, "asking")
        assert asked.status == "pending"
        assert asked.question is not None
        assert str(folder) in asked.question
        assert "Yes, I trust this folder" in asked.question
        assert not claude.requests(started.handoff_id)
        await choose(claude, asked, "Yes, I trust this folder")
        result = await ended(client, started.handoff_id)
        thread = await client.thread(started.handoff_id)
    assert (result.outcome, result.output) == ("succeeded", "trusted")
    assert len(claude.requests(result.handoff_id)) == 1
    kinds = [event.type for event in thread.events]
    assert kinds.count("delivery.typing") == 1
    assert kinds.index("agent.asking") < kinds.index("agent.answered") < kinds.index("delivery.typing")


async def test_a_permission_is_asked_in_so_many_words_and_the_work_goes_on_after_it(
    claude: ClaudeService,
) -> None:
    made = claude.work / "made"
    command = {"command": f"touch {made}", "description": "make it"}
    async with claude.client() as client:
        task = call("Bash", command) + "\nSAY=made"
        started = await client.start_handoff(claude.request("asking", task))
        asked = await in_phase(client, started.handoff_id, "asking")
        assert asked.question == f"Bash\ncommand: touch {made}\ndescription: make it"
        assert not made.exists()
        await choose(claude, asked, "1. Yes")
        result = await ended(client, started.handoff_id)
        thread = await client.thread(started.handoff_id)
    assert (result.outcome, result.output) == ("succeeded", "made")
    assert made.exists()
    kinds = [event.type for event in thread.events]
    assert (kinds.count("agent.asking"), kinds.count("delivery.typing")) == (1, 1)


async def test_a_permission_that_is_declined_ends_the_handoff_and_says_why(claude: ClaudeService) -> None:
    unmade = claude.work / "unmade"
    async with claude.client() as client:
        task = call("Bash", {"command": f"touch {unmade}", "description": "x"})
        started = await client.start_handoff(claude.request("asking", task))
        asked = await in_phase(client, started.handoff_id, "asking")
        await choose(claude, asked, "1. Yes", "Escape")
        result = await ended(client, started.handoff_id)
    assert (result.status, result.outcome) == ("completed", "failed")
    assert result.error is not None
    assert "declined" in result.error.detail
    assert f"touch {unmade}" in result.error.detail
    assert not unmade.exists()
