"""Field cases B1 to B9: names, environment, life and death of terminals."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from orchestrator.client import Client
from orchestrator.domain.errors import InvalidParams, NameTaken, TerminalNotFound
from orchestrator.wire import StartAgentRequest
from tests.live import LiveService, delivered, eventually, hand_off, in_phase, reached, start_agent

pytestmark = pytest.mark.anyio


async def answer_of(client: Client, service: LiveService, name: str, text: str) -> None:
    """Sends a text to an agent and sees it become a turn of that agent."""
    delivery = await delivered(client, await client.send_text(name, text))
    assert service.turns(delivery.terminal_id)[-1]["text"] == text


async def only_living(client: Client, *terminal_ids: str) -> None:
    async def look() -> bool:
        return {each.terminal_id for each in (await client.terminals()).items} == set(terminal_ids)

    await reached(look, f"only {terminal_ids} live")


def files_outside(service: LiveService) -> set[Path]:
    """What lies beside the service's own folders."""
    folder = service.home.parent
    known = {service.home, service.work, service.profiles, service.log, folder / "config"}
    return set(folder.iterdir()) - known


# B1

GOOD_NAMES = [
    *(
        "api.v2",
        "job:8",
        "my project",
        "日本語",
        "emoji 😀",
        "-x",
        "=x",
        "%3",
        "@1",
        "n" * 200,
    ),
    *("#(touch pwned)", "..", ".", "a?b=c", "%2e%2e", "a;b", "'\"$"),
]


@pytest.mark.promise("B1")
@pytest.mark.parametrize("name", GOOD_NAMES)
async def test_a_name_means_one_agent_in_every_step_and_nothing_to_tmux_or_the_disk(
    shared: LiveService, name: str
) -> None:
    async with shared.client() as client:
        before = files_outside(shared), len(shared.agent_windows())
        agent = await start_agent(shared, client, "scripted", name)
        assert [each.name for each in (await client.terminals()).items] == [name]
        assert (await client.terminal(name)).terminal_id == agent.terminal_id
        await answer_of(client, shared, name, f"hello {name}")
        assert f"hello {name[:20]}" in (await client.screen(name)).text
        assert (await client.close_terminal(name)).state == "ended"
        assert (await client.terminals()).items == []
        assert (files_outside(shared), len(shared.agent_windows())) == before
        assert list((shared.home / "terminals").iterdir()) == []
        assert not list(shared.work.glob("pwned"))


@pytest.mark.promise("B1")
@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a/b",
        "../x",
        "n" * 201,
        "a\nb",
        "a\tb",
        "\x1b[31m",
        "\u202eabc",
        "term_01m8qb8fe1etxcsaa70etqpe8d",
    ],
)
async def test_a_name_that_cannot_be_used_is_refused_with_the_rule(shared: LiveService, name: str) -> None:
    async with shared.client() as client:
        with pytest.raises(InvalidParams, match="name") as refused:
            await client.start_agent(
                StartAgentRequest(agent_profile="scripted", name=name, caller_directory=str(shared.work))
            )
        assert refused.value.facts["path"] == "name"
        assert (await client.terminals()).items == []


# B2


@pytest.mark.promise("B2")
async def test_a_name_never_matches_a_longer_one(shared: LiveService) -> None:
    async with shared.client() as client:
        await start_agent(shared, client, "scripted", "foo-bar")
        with pytest.raises(TerminalNotFound):
            await client.close_terminal("foo")
        await start_agent(shared, client, "scripted", "foo")
        with pytest.raises(NameTaken):
            await start_agent(shared, client, "scripted", "foo")
        await client.close_terminal("foo")
        with pytest.raises(TerminalNotFound):
            await client.close_terminal("foo")
        await answer_of(client, shared, "foo-bar", "still here")
        await client.close_terminal("foo-bar")


@pytest.mark.promise("B2", "tagged-panes")
async def test_a_pane_that_a_person_put_beside_the_agents_is_never_typed_into_nor_read(
    shared: LiveService,
) -> None:
    async with shared.client() as client:
        agent = await start_agent(shared, client, "scripted", "split")
        heard = shared.work / "heard"
        window = f"changeover:{agent.terminal_id}"
        made = shared.tmux("split-window", "-t", window, f"printf STRANGER; cat > {shlex.quote(str(heard))}")
        assert made.returncode == 0, made.stderr
        eventually(heard.exists, "the person's pane runs")
        await answer_of(client, shared, "split", "for the agent")
        screen = (await client.screen("split")).text
        assert "for the agent" in screen
        assert "STRANGER" not in screen
        assert heard.read_bytes() == b""
        await client.close_terminal("split")
        assert agent.terminal_id not in shared.agent_windows()


# B3


@pytest.mark.promise("B3", "never-typed-into")
async def test_a_paste_to_a_worker_that_just_died_is_an_error_and_the_other_workers_live(
    shared: LiveService,
) -> None:
    shared.profile("dies", 'driver: scripted\ncommand: ["--die-on-input", "3"]')
    async with shared.client() as client:
        for name in ("other1", "other2"):
            await start_agent(shared, client, "scripted", name)
        result = await hand_off(shared, "dies", "a task\nof two lines")
        assert result.error is not None
        assert (result.outcome, result.error.code, result.error.exit_status) == ("failed", "terminal_dead", 3)
        assert "dead, exit 3" in result.error.detail
        for name in ("other1", "other2"):
            await answer_of(client, shared, name, "ping")
            await client.close_terminal(name)


@pytest.mark.promise("B3")
async def test_a_text_for_a_worker_that_is_killed_at_that_moment_leaves_the_others_alone(
    shared: LiveService,
) -> None:
    async with shared.client() as client:
        await start_agent(shared, client, "scripted", "bystander")
        for number in range(5):
            agent = await start_agent(shared, client, "scripted", f"victim{number}")
            assert agent.pid is not None
            os.kill(agent.pid, signal.SIGKILL)
            with suppress(TerminalNotFound):
                await delivered(client, await client.send_text(agent.terminal_id, "too late"), "failed")
        await answer_of(client, shared, "bystander", "ping")
        await client.close_terminal("bystander")


# B4


@pytest.mark.promise("B4", "tagged-panes")
async def test_a_tmux_server_that_vanishes_fails_its_handoffs_by_name_and_the_next_one_works(
    live: LiveService,
) -> None:
    async with live.client() as client:
        running = [
            await client.start_handoff(live.request("scripted", f"@say part {number}\n@wait 600"))
            for number in range(2)
        ]
        for each in running:
            await in_phase(client, each.handoff_id, "working")
        live.tmux("kill-server")
        third = await hand_off(live, "scripted", "third")
        assert (third.outcome, third.output) == ("succeeded", "third")
        ended = await client.wait_until([each.handoff_id for each in running], "all", 15)
        assert ended.wait == "done"
        for number, result in enumerate(ended.handoffs):
            assert result.error is not None
            assert (result.outcome, result.error.code) == ("failed", "terminal_lost")
            assert result.terminal_id is not None
            assert result.terminal_id in result.error.detail
            assert (result.output, result.partial) == (f"part {number}", True)
            assert "third" not in (result.error.last_lines or "")
        await only_living(client)


@pytest.mark.promise("B4")
async def test_a_tmux_server_replaced_many_times_never_leaves_a_handoff_hanging(live: LiveService) -> None:
    async with live.client() as client:
        for _ in range(3):
            running = await client.start_handoff(live.request("scripted", "@wait 600"))
            await in_phase(client, running.handoff_id, "working")
            live.tmux("kill-server")
            ended = await client.wait_until([running.handoff_id], "all", 15)
            assert (ended.wait, ended.handoffs[0].outcome) == ("done", "failed")
        assert (await hand_off(live, "scripted", "still works")).output == "still works"


# B5


@contextmanager
def services(folder: Path, env: dict[str, str]) -> Iterator[LiveService]:
    with LiveService(folder, env) as service:
        (service.home / "run").mkdir(parents=True, mode=0o700)
        service.home.chmod(0o700)
        yield service


@pytest.mark.promise("B5", "environment")
async def test_agents_get_what_the_profile_names_whatever_tmux_server_was_there_before(
    tmp_path: Path,
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    cli = tools / "our-cli"
    cli.write_text("#!/bin/sh\necho found\n")
    cli.chmod(0o755)
    env = {
        "TEST_API_KEY": "abc $x ;",
        "NOT_NAMED": "secret",
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    with services(tmp_path, env) as service:
        made = service.tmux(
            "-f", "/dev/null", "start-server", ";", "set", "-s", "exit-empty", "off", ";",
            *("set-environment", "-g", "OLD_ONE", "stale", ";"),
            *("set-environment", "-g", "TEST_API_KEY", "stale"),
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        before = service.tmux("display-message", "-p", "#{pid}").stdout
        service.start()
        service.profile("prints", "driver: shell\nenv: [TEST_API_KEY]")
        script = (
            'echo "$TEST_API_KEY|$HOME|${NOT_NAMED-unset}|${OLD_ONE-unset}|${TMUX-unset}|$(our-cli)";'
            " env | grep -c ^CHANGEOVER_TOKEN="
        )
        result = await hand_off(service, "prints", script)
        assert result.output == f"abc $x ;|{tmp_path}|unset|unset|unset|found\n1"
        assert service.tmux("display-message", "-p", "#{pid}").stdout == before
        for secret in ("person.token", "agent.token"):
            assert (service.home / secret).read_text().strip() not in (
                (await hand_off(service, "prints", "env")).output or ""
            )


# B6


@pytest.mark.promise("B6", "private-tmux")
async def test_started_inside_tmux_and_another_agent_it_leaves_the_users_sessions_alone(
    tmp_path: Path,
) -> None:
    home = tmp_path / "user"
    home.mkdir()
    (home / ".tmux.conf").write_text(
        "set -g base-index 1\nset -g default-command /bin/false\nset -g mouse on\nset -g remain-on-exit off\n"
    )
    outer = tmp_path / "outer.sock"
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "CLAUDECODE": "1", "TERM": "xterm-256color"}

    def tmux(*arguments: str) -> str:
        argv = ["tmux", "-u", "-S", str(outer), *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=True, env=environ).stdout

    with LiveService(tmp_path) as service:
        tmux("new-session", "-d", "-s", "work", "sleep 600")
        try:
            # Whatever the pane of the user's own server hands down is in the service's environment.
            given = tmp_path / "given"
            tmux(
                "new-window",
                "-d",
                "-t",
                "work:",
                "-n",
                "inner",
                f"env > {shlex.quote(str(given))}; sleep 600",
            )
            lines = eventually(lambda: given.exists() and given.read_text(), "the pane runs").splitlines()
            inherited = dict(line.split("=", 1) for line in lines if "=" in line)
            assert "TMUX" in inherited
            assert "CLAUDECODE" in inherited
            service.env |= {**inherited, "HOME": str(home)}
            before = tmux("list-panes", "-a", "-F", "#{session_name} #{window_index} #{pane_id} #{pane_pid}")
            service.start()
            async with service.client() as client:
                await start_agent(service, client, "scripted", "lead")
                result = await hand_off(service, "shell", "env -0 | sort -z | tr '\\0' '\\n'")
                names = {line.partition("=")[0] for line in (result.output or "").splitlines()}
                assert result.outcome == "succeeded"
                assert not names & {"TMUX", "TMUX_PANE", "CLAUDECODE"}
                assert "HOME" in names
                assert len(service.agent_windows()) >= 1
                assert service.tmux("show-options", "-gv", "mouse").stdout == "off\n"
                await client.close_terminal("lead")
            assert service.stop() == 0
            after = tmux("list-panes", "-a", "-F", "#{session_name} #{window_index} #{pane_id} #{pane_pid}")
            assert after == before
            assert tmux("show-options", "-gv", "mouse") == "on\n"
        finally:
            tmux("kill-server")


# B7


@pytest.mark.promise("B7")
@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LANG": "POSIX"}, {}])
async def test_without_a_utf_8_locale_a_text_round_trips(tmp_path: Path, locale: dict[str, str]) -> None:
    text = "é漢字😀 ünïcode"
    with LiveService(tmp_path) as service:
        service.env = {
            name: value
            for name, value in service.env.items()
            if name in ("PATH", "HOME") or name.startswith("CHANGEOVER")
        } | locale
        service.start()
        assert (await hand_off(service, "scripted", text)).output == text
        assert (await hand_off(service, "shell", f"printf '%s' '{text}'")).output == text
        async with service.client() as client:
            agent = await start_agent(service, client, "scripted", text)
            await answer_of(client, service, text, text)
            assert text in (await client.screen(agent.terminal_id)).text


# B8


@pytest.mark.promise("B8")
async def test_a_cli_that_never_gets_ready_leaves_no_window_and_no_living_row(shared: LiveService) -> None:
    shared.profile("unready", 'driver: scripted\ncommand: ["--never-ready"]\nstart_timeout: 1')
    result = await hand_off(shared, "unready", "a task")
    assert result.error is not None
    assert (result.outcome, result.error.code) == ("failed", "start_failed")
    assert "Starting…" in (result.error.last_lines or "")
    async with shared.client() as client:
        await only_living(client)
    assert result.terminal_id not in shared.agent_windows()
    assert not (shared.home / "terminals" / (result.terminal_id or "")).exists()


@pytest.mark.promise("B8", "adoption")
async def test_after_a_kill_busy_workers_are_taken_over_and_usable(live: LiveService) -> None:
    async with live.client() as client:
        agents = [await start_agent(live, client, "scripted", f"worker{number}") for number in range(2)]
        for agent in agents:
            await delivered(client, await client.send_text(agent.terminal_id, "@wait 1"))
    live.kill()
    live.start()
    async with live.client() as client:
        listed = {each.terminal_id: each for each in (await client.terminals()).items}
        assert listed.keys() == {agent.terminal_id for agent in agents} == set(live.agent_windows())
        assert {each.state for each in listed.values()} == {"running"}
        for agent in agents:
            await answer_of(client, live, agent.name or "", "and again")
            assert [turn["text"] for turn in live.turns(agent.terminal_id)] == ["@wait 1", "and again"]


@pytest.mark.promise("B8", "adoption")
async def test_what_died_while_the_service_was_down_is_never_shown_as_alive(live: LiveService) -> None:
    async with live.client() as client:
        gone = await start_agent(live, client, "scripted", "gone")
        closed = await start_agent(live, client, "scripted", "closed")
        stays = await start_agent(live, client, "scripted", "stays")
        live.kill()
        assert gone.pid is not None
        os.kill(gone.pid, signal.SIGKILL)
        live.tmux("kill-window", "-t", f"changeover:{closed.terminal_id}")
        live.start()
    async with live.client() as client:
        await only_living(client, stays.terminal_id)
        assert ((await client.terminal(gone.terminal_id)).exit or {})["signal"] == "SIGKILL"
        assert (await client.terminal(closed.terminal_id)).state == "ended"
        assert live.agent_windows() == [stays.terminal_id]


@pytest.mark.promise("B8")
@pytest.mark.parametrize("fails", range(1, 5))
async def test_one_failed_call_of_tmux_at_the_restart_costs_no_living_worker(
    tmp_path: Path, fails: int
) -> None:
    """The call that fails is the first one, and then any other."""
    shim = tmp_path / "shim"
    shim.mkdir()
    calls = shim / "calls"
    real = shutil.which("tmux")
    (shim / "tmux").write_text(
        f"#!/bin/sh\necho x >> {shlex.quote(str(calls))}\n"
        f'[ "$(wc -l < {shlex.quote(str(calls))})" -eq {fails} ] && exit 1\nexec {real} "$@"\n'
    )
    (shim / "tmux").chmod(0o755)
    with LiveService(tmp_path) as service:
        service.start()
        async with service.client() as client:
            agent = await start_agent(service, client, "scripted", "worker")
        service.kill()
        service.env |= {"PATH": f"{shim}:{service.env['PATH']}"}
        service.start()
        async with service.client() as client:
            await answer_of(client, service, "worker", "are you there?")
            assert (await client.terminal("worker")).pid == agent.pid
        assert len(calls.read_text().splitlines()) >= fails


# B9


@pytest.mark.promise("B9", "dead-delegate")
async def test_a_missing_cli_is_told_at_once(shared: LiveService) -> None:
    shared.profile("missing", "driver: scripted\ncommand: [no-such-cli-xyz]")
    result = await hand_off(shared, "missing", "a task")
    assert result.error is not None
    assert (result.error.code, result.error.exit_status) == ("start_failed", 127)
    assert "no-such-cli-xyz" in result.error.detail
    assert result.duration_s < 5


@pytest.mark.promise("B9", "dead-delegate")
@pytest.mark.parametrize("driver", ["scripted"])
async def test_a_cli_that_dies_at_once_is_told_with_its_status_and_its_words(
    shared: LiveService, driver: str
) -> None:
    command = json.dumps(["sh", "-c", "echo bad key; exit 2"])
    shared.profile("bad-key", f"driver: {driver}\ncommand: {command}")
    result = await hand_off(shared, "bad-key", "a task nobody may see")
    assert result.error is not None
    assert (result.outcome, result.error.code, result.error.exit_status) == ("failed", "terminal_dead", 2)
    assert (result.error.last_lines or "").strip() == "bad key"
    assert result.duration_s < 5


@pytest.mark.promise("B9", "never-typed-into")
async def test_a_banner_eats_no_task(shared: LiveService) -> None:
    command = json.dumps(["--banner", "Update available, press Enter", "--banner-s", "1.5"])
    shared.profile("banner", f"driver: scripted\ncommand: {command}")
    result = await hand_off(shared, "banner", "the task")
    assert (result.outcome, result.output) == ("succeeded", "the task")
    assert 1.5 <= result.duration_s < 10


def test_no_process_of_these_tests_is_left(shared: LiveService) -> None:
    """Each agent that was closed above is gone with all it started."""

    def left() -> list[int]:
        return [
            each.pid
            for each in psutil.process_iter(["environ"])
            if (each.info["environ"] or {}).get("CHANGEOVER_URL") == shared.url
        ]

    eventually(lambda: not left(), "the last agent is gone", 10)
