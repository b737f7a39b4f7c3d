"""A service that is killed or stopped and comes back: what was under way ends once, and nothing is lost."""

import json
import os
import signal
import time
from pathlib import Path

import anyio
import pytest

from orchestrator.client import Client
from orchestrator.wire import HandoffResult, WaitRequest
from tests.live import LiveService, delivered, eventually, hand_off, in_phase, reached, start_agent

pytestmark = [pytest.mark.anyio, pytest.mark.promise("adoption")]


class Scripted:
    """A profile whose turns are logged where they outlive its terminals."""

    def __init__(self, service: LiveService, name: str, *switches: str, front: str = "") -> None:
        self.name = name
        self.log = service.work / f"{name}.jsonl"
        command = json.dumps([*switches, "--log", str(self.log)])
        service.profile(name, f"driver: scripted\ncommand: {command}\n{front}")

    def turns(self) -> list[str | None]:
        """The text of each turn without the header of its handoff; None for an empty submit."""
        if not self.log.exists():
            return []
        turns = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [each["text"].partition("\n")[2] if each["turn"] else None for each in turns]


async def ended(service: LiveService, handoff_id: str, seconds: float = 40) -> HandoffResult:
    async with service.client() as client:
        waited = await client.wait_until([handoff_id], "all", seconds)
        assert waited.wait == "done", waited.handoffs[0]
        return waited.handoffs[0]


async def terminal_of(client: Client, handoff_id: str) -> str:
    async def look() -> str | None:
        return (await client.handoff(handoff_id)).terminal_id

    return await reached(look, f"{handoff_id} has a terminal")


def pasted(service: LiveService, terminal_id: str) -> bool:
    """Whether its text is on its way into the agent: written for tmux, and no longer held by it."""
    there = (service.home / "terminals" / terminal_id / "paste").exists()
    return there and terminal_id not in service.tmux("list-buffers", "-F", "#{buffer_name}").stdout


# kill -9


@pytest.mark.promise("job-outlives-call", "exactly-once", "stored-first")
async def test_ten_handoffs_that_run_when_the_service_is_killed_all_end_and_each_task_is_done_once(
    live: LiveService,
) -> None:
    agent = Scripted(live, "logged")
    tasks = [f"@wait {1 + number % 3}\n@say answer {number}" for number in range(10)]
    async with live.client() as client:
        started = [
            await client.start_handoff(live.request("logged", task), f"key-{number}")
            for number, task in enumerate(tasks)
        ]
        for each in started:
            await in_phase(client, each.handoff_id, "working")
    live.kill()
    live.start()
    async with live.client() as client:
        waited = await client.wait_until([each.handoff_id for each in started], "all", 40)
        assert waited.wait == "done"
        assert [each.output for each in waited.handoffs] == [f"answer {number}" for number in range(10)]
        assert {each.outcome for each in waited.handoffs} == {"succeeded"}
        again = await client.start_handoff(live.request("logged", tasks[0]), "key-0")
        assert (again.handoff_id, again.replayed) == (started[0].handoff_id, True)
    assert sorted(text or "" for text in agent.turns()) == sorted(tasks)


@pytest.mark.promise("exactly-once")
async def test_a_task_whose_agent_was_still_starting_is_typed_once_after_the_restart(
    live: LiveService,
) -> None:
    agent = Scripted(live, "banner", "--banner", "Update available")
    async with live.client() as client:
        started = await client.start_handoff(live.request("banner", "the task"))
        terminal = await terminal_of(client, started.handoff_id)
        eventually(lambda: "Update" in pane(live, terminal), "the banner shows")
    live.kill()
    live.tmux("send-keys", "-t", f"changeover:{terminal}", "Enter")
    live.start()
    result = await ended(live, started.handoff_id)
    assert (result.outcome, result.output, result.terminal_id) == ("succeeded", "the task", terminal)
    assert agent.turns() == ["the task"]


@pytest.mark.promise("exactly-once")
async def test_a_terminal_that_was_recorded_and_never_made_is_made_anew(live: LiveService) -> None:
    """The kill comes somewhere between the row and the window, each time somewhere else."""
    agent = Scripted(live, "early")
    for number in range(4):
        async with live.client() as client:
            started = await client.start_handoff(live.request("early", f"task {number}"))
        live.kill()
        live.start()
        result = await ended(live, started.handoff_id)
        assert (result.outcome, result.output) == ("succeeded", f"task {number}")
    assert agent.turns() == [f"task {number}" for number in range(4)]
    async with live.client() as client:
        living = {each.terminal_id for each in (await client.terminals()).items}
    assert set(live.agent_windows()) <= living | {result.terminal_id}


def pane(service: LiveService, terminal_id: str) -> str:
    return service.tmux("capture-pane", "-p", "-t", f"changeover:{terminal_id}").stdout


@pytest.mark.promise("exactly-once", "submit-proof")
@pytest.mark.parametrize("moment", ["before the draft shows", "after Enter"])
async def test_a_text_that_was_being_typed_when_the_service_was_killed_becomes_one_turn(
    live: LiveService, moment: str
) -> None:
    agent = Scripted(live, "late", "--react-late-ms", "2500")
    async with live.client() as client:
        started = await client.start_handoff(live.request("late", "the task"))
        terminal = await terminal_of(client, started.handoff_id)
        eventually(lambda: pasted(live, terminal), "the text is pasted")
        if moment == "after Enter":
            eventually(lambda: "the task" in pane(live, terminal), "the draft shows")
            for _ in range(20):  # the service saw the draft too, and pressed Enter within a millisecond
                await client.health()
        assert (await client.deliveries(terminal)).items[0].state == "typing"
    live.kill()
    assert agent.turns() == []
    live.start()
    result = await ended(live, started.handoff_id)
    assert (result.outcome, result.output) == ("succeeded", "the task")
    assert agent.turns() == ["the task"]


@pytest.mark.promise("exactly-once", "submit-proof")
async def test_an_agent_that_stood_still_over_the_kill_gets_its_text_once(live: LiveService) -> None:
    """It reads nothing from its prompt on, so that the paste stays unread whatever the service does."""
    agent = Scripted(live, "still", "--stand-still")
    async with live.client() as client:
        started = await client.start_handoff(live.request("still", "the task"))
        terminal = await terminal_of(client, started.handoff_id)
        eventually(lambda: pasted(live, terminal), "the text is pasted")
        pid = (await client.terminal(terminal)).pid
        assert pid is not None
    live.kill()
    os.kill(pid, signal.SIGUSR1)
    live.start()
    result = await ended(live, started.handoff_id)
    assert (result.outcome, result.output) == ("succeeded", "the task")
    assert agent.turns() == ["the task"]


@pytest.mark.promise("exactly-once", "submit-proof")
async def test_the_same_text_sent_twice_is_two_turns_though_the_service_is_killed_in_the_second(
    live: LiveService,
) -> None:
    live.profile("late", 'driver: scripted\ncommand: ["--react-late-ms", "2500"]')
    async with live.client() as client:
        agent = await start_agent(live, client, "late", "worker")
        await delivered(client, await client.send_text("worker", "go on"))
        await reached(ready(client, "worker"), "the first turn is over")
        (live.home / "terminals" / agent.terminal_id / "paste").unlink()
        second = await client.send_text("worker", "go on")
        eventually(lambda: pasted(live, agent.terminal_id), "the text is pasted")
    live.kill()
    live.start()
    async with live.client() as client:
        first, last = (await client.deliveries("worker")).items
        taken = await delivered(client, last)
        assert taken.delivery_id == second.delivery_id
        assert taken.turn != first.turn
    assert [turn["text"] for turn in live.turns(agent.terminal_id)] == ["go on", "go on"]


def ready(client: Client, name: str):
    async def look() -> bool:
        return (await client.terminal(name)).activity == "ready"

    return look


@pytest.mark.promise("spool", "stored-first")
async def test_an_answer_that_came_while_the_service_was_down_is_read_when_it_is_back(
    live: LiveService,
) -> None:
    agent = Scripted(live, "logged")
    async with live.client() as client:
        started = await client.start_handoff(live.request("logged", "@wait 0.5\n@say done meanwhile"))
        await in_phase(client, started.handoff_id, "working")
        terminal = await terminal_of(client, started.handoff_id)
    live.kill()
    spool = live.home / "terminals" / terminal / "spool"
    eventually(lambda: list(spool.glob("*.stopped")), "the agent ended its turn")
    live.start()
    result = await ended(live, started.handoff_id, 10)
    assert (result.outcome, result.output) == ("succeeded", "done meanwhile")
    assert len(agent.turns()) == 1


@pytest.mark.promise("spool", "dead-delegate")
async def test_an_agent_that_answered_and_was_gone_with_its_tmux_before_the_restart_has_answered(
    live: LiveService,
) -> None:
    async with live.client() as client:
        started = [
            await client.start_handoff(live.request("scripted", f"@say {text}\n@wait {seconds}"))
            for text, seconds in (("whole", "0.3"), ("half", "600"))
        ]
        for each in started:
            await in_phase(client, each.handoff_id, "working")
        terminal = await terminal_of(client, started[0].handoff_id)
        live.kill()
    spool = live.home / "terminals" / terminal / "spool"
    eventually(lambda: list(spool.glob("*.stopped")), "the agent ended its turn")
    live.tmux("kill-server")
    live.start()
    whole, half = [await ended(live, each.handoff_id, 10) for each in started]
    assert (whole.outcome, whole.output) == ("succeeded", "whole")
    assert half.error is not None
    assert (half.outcome, half.error.code) == ("failed", "terminal_lost")
    assert (half.output, half.partial) == ("half", True)


@pytest.mark.promise("exactly-once")
async def test_a_text_under_way_whose_terminal_is_gone_too_is_a_failure_and_no_second_run(
    live: LiveService,
) -> None:
    agent = Scripted(live, "late", "--react-late-ms", "2500")
    async with live.client() as client:
        started = await client.start_handoff(live.request("late", "the task"))
        terminal = await terminal_of(client, started.handoff_id)
        eventually(lambda: pasted(live, terminal), "the text is pasted")
    live.kill()
    live.tmux("kill-server")
    live.start()
    result = await ended(live, started.handoff_id, 15)
    assert result.error is not None
    assert (result.outcome, result.error.code) == ("failed", "terminal_lost")
    assert agent.turns() == []


async def test_an_agent_keeps_its_driver_though_its_profile_changed_or_broke_meanwhile(
    live: LiveService,
) -> None:
    for name in ("changed", "broken", "removed"):
        live.profile(name)
    async with live.client() as client:
        for name in ("changed", "broken", "removed"):
            await start_agent(live, client, name, name)
    live.kill()
    live.profile("changed", "driver: shell")
    live.profile("broken", "driver: [")
    (live.profiles / "removed.md").unlink()
    live.start()
    async with live.client() as client:
        for name in ("changed", "broken", "removed"):
            sent = await delivered(client, await client.send_text(name, "still you?"))
            assert [turn["text"] for turn in live.turns(sent.terminal_id)] == ["still you?"]


async def test_an_adopted_agent_still_reaches_the_service_with_its_tools(live: LiveService) -> None:
    """The home keeps its port, where the next one may choose."""
    async with live.client() as client:
        await start_agent(live, client, "scripted", "lead")
    live.kill()
    live.start()
    call = json.dumps({"agent_profile": "shell", "message": "echo $((20 + 3)) below"})
    async with live.client() as client:
        await delivered(client, await client.send_text("lead", f"@call handoff {call}"))

        async def answered() -> bool:
            return "23 below" in (await client.screen("lead")).text

        await reached(answered, "the agent's own handoff is answered")


# queued


@pytest.mark.promise("limits", "job-outlives-call")
async def test_handoffs_that_wait_for_a_place_survive_a_kill_in_their_order(tmp_path: Path) -> None:
    with LiveService(tmp_path, {"CHANGEOVER_MAX_TERMINALS": "1"}) as service:
        service.start()
        agent = Scripted(service, "logged")
        async with service.client() as client:
            started = [
                await client.start_handoff(service.request("logged", f"@wait 0.5\n@say {number}"))
                for number in range(4)
            ]
            await in_phase(client, started[0].handoff_id, "working")
            places = [(await client.handoff(each.handoff_id)).queue_place for each in started]
            assert places == [None, 1, 2, 3]
        service.kill()
        service.start()
        async with service.client() as client:
            waited = await client.wait_until([each.handoff_id for each in started], "all", 40)
            assert [each.output for each in waited.handoffs] == ["0", "1", "2", "3"]
        assert [text and text[-1] for text in agent.turns()] == ["0", "1", "2", "3"]


@pytest.mark.promise("limits")
async def test_one_that_waits_for_a_place_can_be_stopped_or_expires_and_the_next_moves_up(
    tmp_path: Path,
) -> None:
    with LiveService(tmp_path, {"CHANGEOVER_MAX_TERMINALS": "1"}) as service:
        service.start()
        agent = Scripted(service, "logged")
        stops = Scripted(service, "stops", front="on_timeout: stop")
        async with service.client() as client:
            first = await client.start_handoff(service.request("logged", "@wait 600"))
            await in_phase(client, first.handoff_id, "working")
            second = await client.start_handoff(service.request("logged", "second"))
            third = await client.start_handoff(service.request("stops", "third", timeout=1))
            last = await client.start_handoff(service.request("logged", "last"))
            stopped = await client.stop(second.handoff_id)
            assert (stopped.status, stopped.outcome, stopped.cancel_reason) == ("cancelled", None, "stop")
            expired = await ended(service, third.handoff_id)
            assert (expired.status, expired.outcome, expired.cancel_reason) == ("cancelled", None, "expired")
            assert (await client.handoff(last.handoff_id)).queue_place == 1
            await client.stop(first.handoff_id)
        assert (await ended(service, last.handoff_id)).output == "last"
        assert (agent.turns(), stops.turns()) == (["@wait 600", "last"], [])


# stop and timeouts


@pytest.mark.promise("stop-tool")
async def test_a_stopped_handoff_is_interrupted_with_what_there_was_and_its_agent_is_ended(
    live: LiveService,
) -> None:
    async with live.client() as client:
        started = await client.start_handoff(live.request("scripted", "@say so far\n@wait 600"))
        working = await in_phase(client, started.handoff_id, "working")
        await partial(client, started.handoff_id, "so far")
        stopped = await client.stop(started.handoff_id)
        assert (stopped.status, stopped.outcome) == ("completed", "interrupted")
        assert (stopped.output, stopped.partial) == ("so far", True)
        eventually(lambda: working.terminal_id not in live.agent_windows(), "its window is gone")


async def partial(client: Client, handoff_id: str, text: str) -> None:
    async def look() -> bool:
        return (await client.handoff(handoff_id)).output == text

    await reached(look, f"{text!r} is the partial answer")


@pytest.mark.promise("on-timeout-stop", "max-duration")
@pytest.mark.parametrize(
    ("front", "seconds"), [("on_timeout: stop", 1), ("max_duration: 1", 600), ("max_duration: 0.8", 1)]
)
async def test_at_its_deadline_a_handoff_ends_as_timed_out_with_what_there_was(
    live: LiveService, front: str, seconds: int
) -> None:
    live.profile("limited", f"driver: scripted\n{front}")
    result = await hand_off(live, "limited", "@say half\n@wait 600", timeout=seconds)
    assert (result.status, result.outcome) == ("completed", "timed_out")
    assert (result.output, result.partial) == ("half", True)
    eventually(lambda: live.agent_windows() == [], "its window is gone")


@pytest.mark.promise("on-timeout-stop", "job-outlives-call")
async def test_a_deadline_that_passed_while_the_service_was_down_holds_when_it_is_back(
    live: LiveService,
) -> None:
    live.profile("limited", "driver: scripted\non_timeout: stop")
    async with live.client() as client:
        started = await client.start_handoff(live.request("limited", "@wait 600", timeout=2))
        await in_phase(client, started.handoff_id, "working")
        deadline = (await client.thread(started.handoff_id)).deadline_at
    live.kill()
    assert deadline is not None
    eventually(lambda: time.time() > deadline.timestamp(), "the deadline is past")
    live.start()
    assert (await ended(live, started.handoff_id, 10)).outcome == "timed_out"


@pytest.mark.promise("wait-ran-out")
async def test_a_wait_that_runs_out_says_so_and_the_job_goes_on_under_the_same_id(live: LiveService) -> None:
    agent = Scripted(live, "logged")
    async with live.client() as client:
        started = await client.start_handoff(live.request("logged", "@say one\n@wait 2\n@say two", timeout=1))
        await partial(client, started.handoff_id, "one")
        waited = await client.wait(WaitRequest(handoff_ids=[started.handoff_id], timeout=0.3))
        [still] = waited.handoffs
        assert (waited.wait, still.wait, still.status) == ("timed_out", "timed_out", "accepted")
        assert (still.outcome, still.output, still.partial) == (None, "one", True)
    result = await ended(live, started.handoff_id)
    assert (result.outcome, result.output, result.partial) == ("succeeded", "one\ntwo", False)
    assert len(agent.turns()) == 1


# leaving, and who else is there


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
async def test_leaving_by_a_signal_leaves_the_agents_and_tells_the_waiting_callers(
    live: LiveService, sent: signal.Signals
) -> None:
    async with live.client() as client, anyio.create_task_group() as tasks:
        started = await client.start_handoff(live.request("scripted", "@wait 3\n@say whole"))
        await in_phase(client, started.handoff_id, "working")
        told: list[str] = []

        async def wait() -> None:
            request = WaitRequest(handoff_ids=[started.handoff_id], timeout=60)
            told.append((await client.wait(request)).wait)

        tasks.start_soon(wait)
        await client.health()
        before = time.monotonic()
        assert await anyio.to_thread.run_sync(live.stop, sent) == 0
        assert time.monotonic() - before < 10
    assert told == ["interrupted"]
    assert len(live.agent_windows()) == 1
    assert not (live.home / "service.json").exists()
    live.start()
    result = await ended(live, started.handoff_id)
    assert (result.outcome, result.output) == ("succeeded", "whole")


async def test_with_end_agents_the_agents_and_their_handoffs_end_with_the_service(
    tmp_path: Path,
) -> None:
    with LiveService(tmp_path) as service:
        service.start("--end-agents")
        async with service.client() as client:
            await start_agent(service, client, "scripted", "lead")
            started = await client.start_handoff(service.request("scripted", "@say half\n@wait 600"))
            await in_phase(client, started.handoff_id, "working")
            await partial(client, started.handoff_id, "half")
        assert service.stop() == 0
        assert service.agent_windows() == []
        service.start()
        result = await ended(service, started.handoff_id, 5)
        assert result.error is not None
        assert (result.outcome, result.error.code) == ("failed", "interrupted")
        assert (result.output, result.partial) == ("half", True)
        async with service.client() as client:
            assert (await client.terminals()).items == []


@pytest.mark.promise("one-service")
async def test_a_second_service_on_a_home_ends_and_names_the_address_of_the_first(
    live: LiveService, tmp_path: Path
) -> None:
    second = LiveService(tmp_path)
    with pytest.raises(AssertionError, match="the service ended at once") as refused:
        second.start()
    assert live.url in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert second.process is not None
    assert second.process.returncode not in (0, None)
    assert (await hand_off(live, "scripted", "the first goes on")).output == "the first goes on"


@pytest.mark.promise("private-tmux")
async def test_two_services_with_homes_of_their_own_do_not_touch_each_other(
    live: LiveService, tmp_path: Path
) -> None:
    with LiveService(tmp_path / "other") as other:
        other.start()
        async with live.client() as one, other.client() as two:
            mine = await start_agent(live, one, "scripted", "same-name")
            theirs = await start_agent(other, two, "scripted", "same-name")
            assert (await hand_off(other, "scripted", "there")).output == "there"
            await two.close_terminal("same-name")
            other.kill()
            other.tmux("kill-server")
            assert [each.terminal_id for each in (await one.terminals()).items] == [mine.terminal_id]
            assert theirs.terminal_id != mine.terminal_id
            assert (await hand_off(live, "scripted", "here")).output == "here"
