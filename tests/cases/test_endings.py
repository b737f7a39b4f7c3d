"""Field cases C1, C2, C3 and C7: when a task is over, how it ended, and what then becomes of its terminal."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from orchestrator.domain.errors import TerminalNotFound
from orchestrator.terminals.drivers import scripted
from orchestrator.wire import HandoffResult, WaitRequest
from tests.cases.scripted import ScriptedProfile, activity, current, seen, settled, terminal_of
from tests.live import LiveService, eventually, hand_off, start_agent

pytestmark = pytest.mark.anyio


# C1


@pytest.mark.promise("C1", "quiet-screen")
async def test_an_agent_that_shows_its_prompt_and_falls_silent_is_busy_until_its_turn_ends(
    shared: LiveService,
) -> None:
    """Two at once: one repaints its spinner four times a second, the other once."""
    task = "@wait 13.5\n@quiet 3\n@wait 13.5\n@say DONE-42"
    quick = ScriptedProfile(shared, "--history", "welcome")
    slow = ScriptedProfile(shared, "--history", "welcome", "--spinner-every", "1")

    async def watched(profile: ScriptedProfile) -> None:
        async with shared.client() as client:
            started = await client.start_handoff(shared.request(profile.name, task))
            terminal_id = await terminal_of(client, started.handoff_id)
            working, screens = set[tuple[str, str | None]](), set[str]()
            while (result := await client.handoff(started.handoff_id)).status != "completed":
                if result.phase == "working":
                    working.add((result.status, result.outcome))
                    with suppress(TerminalNotFound):  # it ended between the two questions
                        screens.add((await client.screen(terminal_id)).text.rpartition("\n")[2])
                else:
                    assert not working, f"back from working to {result.phase}"
                await client.wait(WaitRequest(handoff_ids=[started.handoff_id], timeout=0.5))
            assert result.output == "DONE-42"
            assert result.duration_s > 30
            assert working == {("accepted", None)}
            assert screens == {"❯"}, "its prompt was there all the time, and nothing typed at it"
            assert profile.texts() == [task]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched, quick)
        tasks.start_soon(watched, slow)


# C2

HALF_DONE = "@say ⏺ partial\n@wait 3600"


@pytest.mark.promise("C2")
@pytest.mark.parametrize(
    ("end", "name", "value"),
    [("@kill KILL", "signal", "SIGKILL"), ("@kill TERM", "signal", "SIGTERM"), ("@exit 0", "exit_status", 0)],
)
async def test_an_agent_that_dies_in_its_task_is_a_failure_that_says_how(
    shared: LiveService, end: str, name: str, value: object
) -> None:
    result = await hand_off(shared, "scripted", f"@say ⏺ partial\n@wait 0.2\n{end}")
    assert (result.outcome, result.output, result.partial) == ("failed", "⏺ partial", True)
    assert result.error is not None
    assert result.error.code == "terminal_dead"
    assert getattr(result.error, name) == value
    assert "⏺ partial" in (result.error.last_lines or "")
    assert result.duration_s < 15


@pytest.mark.promise("C2")
async def test_a_pane_that_somebody_closes_is_a_failure_with_what_was_answered(shared: LiveService) -> None:
    async with shared.client() as client:
        started = await client.start_handoff(shared.request("scripted", HALF_DONE))
        await seen(lambda: client.handoff(started.handoff_id), lambda each: each.output == "⏺ partial")
        terminal_id = await terminal_of(client, started.handoff_id)
        shared.tmux("kill-pane", "-t", f"changeover:{terminal_id}")
        [result] = (await client.wait_until([started.handoff_id], timeout=15)).handoffs
    assert (result.outcome, result.output, result.partial) == ("failed", "⏺ partial", True)
    assert result.error is not None
    assert result.error.code == "terminal_dead"
    assert "closed" in result.error.detail or result.error.signal == "SIGHUP"


@pytest.mark.promise("C2", "on-timeout-stop")
async def test_an_agent_that_is_stopped_for_good_times_out_at_its_limit_and_is_gone(
    shared: LiveService,
) -> None:
    wrapped(shared, "stopped", "on_timeout: stop")
    task = "@say ⏺ partial\n@wait 0.2\n@kill STOP\n@say more"
    async with shared.client() as client:
        started = await client.start_handoff(shared.request("stopped", task, timeout=3))
        terminal_id = await terminal_of(client, started.handoff_id)
        view = await seen(lambda: client.terminal(terminal_id), lambda view: view.pid is not None)
        [agent] = eventually(lambda: children(view.pid or 0), "the shell has started the agent")
        [result] = (await client.wait_until([started.handoff_id], timeout=20)).handoffs
        assert (result.outcome, result.output, result.partial) == ("timed_out", "⏺ partial", True)
        assert 3 <= result.duration_s < 6
        await activity(client, terminal_id, "ended")
    eventually(lambda: not Path(f"/proc/{agent}").exists(), "the stopped agent is gone")
    assert terminal_id not in shared.agent_windows()


@pytest.mark.promise("C2")
async def test_an_agent_that_is_stopped_and_is_the_pane_s_own_process_is_set_going_again(
    shared: LiveService,
) -> None:
    """By tmux, which does so for the processes it started."""
    result = await hand_off(shared, "scripted", "@say before\n@wait 0.2\n@kill STOP\n@say after")
    assert (result.outcome, result.output) == ("succeeded", "before\nafter")


@pytest.mark.promise("C2", "own-process")
async def test_after_a_death_no_shell_runs_what_is_sent_next(shared: LiveService) -> None:
    ran = shared.work / "ran"
    async with shared.client() as client:
        agent = await ScriptedProfile(shared).start(client)
        await client.send_text(agent.terminal_id, HALF_DONE)
        busy = await activity(client, agent.terminal_id, "working")
        assert "scripted_agent" in command_line(busy.pid), "it is the pane's process"
        waiting = await client.send_text(agent.terminal_id, f"touch {ran}")
        os.kill(busy.pid or 0, signal.SIGKILL)
        await activity(client, agent.terminal_id, "ended")
        with pytest.raises(TerminalNotFound):
            await client.send_text(agent.terminal_id, f"touch {ran}")
        assert (await settled(client, waiting)).state == "failed"
        ended = await seen(lambda: client.terminal(agent.terminal_id), lambda view: view.state == "ended")
        assert (ended.activity, (ended.exit or {}).get("signal")) == ("ended", "SIGKILL")
    assert agent.terminal_id not in shared.agent_windows()
    assert not ran.exists()


@pytest.mark.promise("C2", "never-typed-into")
@pytest.mark.parametrize("busy", [True, False], ids=["in its task", "at its prompt"])
async def test_a_shell_that_a_wrapper_leaves_behind_is_typed_nothing(shared: LiveService, busy: bool) -> None:
    """A profile whose command starts the agent from a shell, which takes over when the agent dies."""
    ran, name = shared.work / f"ran-{busy}", wrapped(shared, f"wrapped-{busy}".lower())
    async with shared.client() as client:
        agent = (await start_agent(shared, client, name, name)).terminal_id
        if busy:
            await settled(client, await client.send_text(agent, HALF_DONE))
        pane = f"changeover:{agent}"
        [child] = children((await client.terminal(agent)).pid or 0)
        os.kill(child, signal.SIGKILL)
        eventually(lambda: screen_of(shared, agent).endswith(("$", "#")), "the shell shows its prompt")
        sent = await client.send_text(agent, f"touch {ran}")
        shared.tmux("send-keys", "-t", pane, "echo this shell lives", "Enter")
        eventually(lambda: screen_of(shared, agent).count("this shell lives") == 2, "the shell is in use")
        assert (await current(client, sent)).state == "queued"
        await client.close_terminal(agent)
    assert not ran.exists()


def wrapped(service: LiveService, name: str, front: str = "") -> str:
    """A profile whose agent is the child of a shell that goes on when it dies."""
    agent = f"python3 -I -S {scripted.PROGRAM} --partial $CHANGEOVER_SPOOL/../{scripted.PARTIAL}"
    command = f"{agent}; stty sane; exec sh -i"
    return service.profile(name, f"driver: scripted\ncommand: [sh, -c, '{command}']\n{front}")


def command_line(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def screen_of(service: LiveService, terminal_id: str) -> str:
    return service.tmux("capture-pane", "-p", "-J", "-t", f"changeover:{terminal_id}").stdout.strip()


# C3

QUESTION = "Allow command? rm -rf build"


def press(service: LiveService, terminal_id: str, key: str) -> None:
    """As a person at the terminal would."""
    service.tmux("send-keys", "-t", f"changeover:{terminal_id}", key)


@pytest.mark.promise("C3", "never-typed-into")
@pytest.mark.parametrize("switches", [(), ("--start-dialog", QUESTION)], ids=["mid-task", "at the start"])
async def test_a_message_waits_while_a_dialog_is_open_and_is_delivered_once_after_it(
    shared: LiveService, switches: tuple[str, ...]
) -> None:
    profile = ScriptedProfile(shared, *switches)
    async with shared.client() as client:
        agent = await profile.start(client)
        first: list[str] = []
        if not switches:
            first = [f"@ask {QUESTION}\n@say went on"]
            await settled(client, await client.send_text(agent.terminal_id, first[0]))
        asking = await activity(client, agent.terminal_id, "asking")
        assert asking.question == QUESTION
        sent = await client.send_text(agent.terminal_id, "1")
        for _ in range(20):
            waiting = await current(client, sent)
            assert (waiting.state, waiting.attempts) == ("queued", 0)
            assert QUESTION in (waiting.reason or "")
            assert (await client.terminal(agent.terminal_id)).activity == "asking"
            await anyio.sleep(0.05)
        assert profile.texts() == first
        press(shared, agent.terminal_id, "Enter")
        assert (await settled(client, sent)).state == "delivered"
        await settled(client, await client.send_text(agent.terminal_id, "last"))
    assert profile.texts() == [*first, "1", "last"]


@pytest.mark.promise("C3")
@pytest.mark.parametrize("switches", [(), ("--start-dialog", QUESTION)], ids=["mid-task", "at the start"])
async def test_a_blocking_handoff_surfaces_the_question_and_goes_on_when_a_person_answers(
    shared: LiveService, switches: tuple[str, ...]
) -> None:
    profile = ScriptedProfile(shared, *switches)
    task = "@say hello" if switches else f"@ask {QUESTION}\n@say hello"
    progress: list[HandoffResult] = []
    async with shared.client() as client:
        started = await client.start_handoff(shared.request(profile.name, task))

        async def answer_once_asked(answer: object) -> None:
            [now] = (await client.wait(WaitRequest(handoff_ids=[started.handoff_id], timeout=0))).handoffs
            progress.append(now)
            if now.phase == "asking":
                press(shared, now.terminal_id or "", "1")

        done = await client.wait_until(
            [started.handoff_id], timeout=30, on_progress=answer_once_asked, poll=0.5
        )
    [asked] = [each for each in progress if each.phase == "asking"][:1]
    assert (asked.question, asked.outcome) == (QUESTION, None)
    assert (done.handoffs[0].outcome, done.handoffs[0].output) == ("succeeded", "hello")
    assert profile.texts() == [task]


# C7

TABLE = "\n".join(
    f"| {row:03d} | " + " | ".join(f"{row * column % 997:03d}" for column in range(28)) + " |"
    for row in range(400)
)


@pytest.mark.promise("C7", "stored-first")
async def test_a_large_answer_is_stored_before_its_terminal_goes_and_outlives_the_service(
    live: LiveService,
) -> None:
    assert len(TABLE.split("\n")) == 400
    assert len(TABLE.split("\n")[0]) > 170
    (live.work / "table.md").write_text(TABLE)
    result = await hand_off(live, "scripted", f"@file {live.work / 'table.md'}")
    assert (result.outcome, result.output, result.truncated) == ("succeeded", TABLE, False)
    async with live.client() as client:
        await activity(client, result.terminal_id or "", "ended")
        events = (await client.thread(result.handoff_id)).events
        order = [event.type for event in events if event.type in ("thread.completed", "terminal.ended")]
    assert order == ["thread.completed", "terminal.ended"]
    assert live.agent_windows() == []
    live.kill()
    live.start()
    async with live.client() as client:
        assert (await client.handoff(result.handoff_id)).output == TABLE
        pages, offset = "", 0
        while offset is not None:
            page = await client.output(result.handoff_id, offset)
            pages, offset = pages + page.output, page.next_offset
        assert pages == TABLE


FORGETFUL = """\
import sys
sys.path.insert(0, {folder!r})
import scripted_agent

class Journal(scripted_agent.Journal):
    def event(self, event, **fields):
        fields.pop("answer", None)
        super().event(event, **fields)

scripted_agent.Journal = Journal
scripted_agent.main()
"""


@pytest.mark.promise("C7")
async def test_a_terminal_whose_answer_cannot_be_read_is_kept_and_the_result_says_so(
    live: LiveService,
) -> None:
    program = live.work / "forgetful.py"
    program.write_text(FORGETFUL.format(folder=str(scripted.PROGRAM.parent)))
    live.profile("forgetful", f"driver: scripted\ncommand: [python3, {program}]")
    result = await hand_off(live, "forgetful", "the only copy stands on the screen")
    terminal_id = result.terminal_id or ""
    [warning] = result.warnings
    assert terminal_id in warning
    assert "kept" in warning
    live.kill()
    live.start()
    async with live.client() as client:
        assert (await client.handoff(result.handoff_id)).warnings == [warning]
        for _ in range(20):  # as long as a keeper would need to close it
            assert (await client.terminal(terminal_id)).state == "running"
            await anyio.sleep(0.05)
        assert "⏺ the only copy" in (await client.screen(terminal_id)).text
        await client.close_terminal(terminal_id)
    assert live.agent_windows() == []
