"""What an agent or a person may break by hand, and what the service makes of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.domain.errors import DuplicateIdempotencyKey
from tests.live import LiveService, delivered, eventually, hand_off, start_agent

pytestmark = pytest.mark.anyio


def changeover(service: LiveService, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *words],
        env={**service.env, **env},
        cwd=service.work,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.promise("spool")
async def test_hooks_are_heard_again_after_an_agent_removed_the_fifo(live: LiveService) -> None:
    gone = await hand_off(live, "shell", 'rm "$CHANGEOVER_POKE"; echo gone', seconds=20)
    assert (gone.outcome, gone.output) == ("succeeded", "gone")
    assert (await hand_off(live, "scripted", "still there?", seconds=20)).output == "still there?"
    assert "made again" in live.log.read_text()


@pytest.mark.promise("spool")
async def test_an_agent_that_removes_its_spool_is_heard_all_the_same(shared: LiveService) -> None:
    result = await hand_off(shared, "shell", 'rm -rf "$CHANGEOVER_SPOOL"; echo gone', seconds=20)
    assert (result.outcome, result.output) == ("succeeded", "gone")


async def test_a_nul_in_an_answer_costs_a_character_and_never_the_answer(shared: LiveService) -> None:
    result = await hand_off(shared, "shell", r"printf 'a\0b'")
    assert (result.outcome, result.output) == ("succeeded", "a\ufffdb")


async def test_a_key_rejoins_its_handoff_however_long_one_waits(shared: LiveService) -> None:
    async with shared.client() as client:
        first = await client.start_handoff(shared.request("scripted", "one", timeout=5), key="same")
        again = await client.start_handoff(shared.request("scripted", "one", timeout=50), key="same")
        assert (again.handoff_id, again.replayed) == (first.handoff_id, True)
        with pytest.raises(DuplicateIdempotencyKey, match=first.handoff_id):
            await client.start_handoff(shared.request("scripted", "two"), key="same")


async def test_a_large_answer_is_paged_to_its_end(shared: LiveService) -> None:
    result = await hand_off(shared, "shell", "head -c 8000000 /dev/zero | tr '\\0' x; echo END")
    printed = changeover(shared, "output", result.handoff_id)
    assert printed.stdout == "x" * 8_000_000 + "END"


async def test_an_agent_that_cannot_start_is_an_error_of_start(shared: LiveService) -> None:
    shared.profile("missing", 'driver: scripted\ncommand: ["no-such-cli-xyz"]')
    started = changeover(shared, "start", "missing", "--name", "nobody")
    assert started.returncode == 1
    assert "no-such-cli-xyz" in started.stderr
    assert "no-such-cli-xyz" in changeover(shared, "logs", "nobody").stdout


async def test_a_service_without_agents_leaves_no_tmux_server_behind(tmp_path: Path) -> None:
    with LiveService(tmp_path) as service:
        service.start()
        assert (await hand_off(service, "scripted", "hello")).output == "hello"
        eventually(lambda: not service.agent_windows(), "the window of the agent is gone")
        assert service.stop() == 0
        eventually(lambda: service.tmux("list-sessions").returncode != 0, "the tmux server is gone")


async def test_a_missing_tmux_is_named_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(shutil.which("python3") or sys.executable)
    with LiveService(tmp_path) as service:
        failed = changeover(service, "serve", PATH=str(folder))
    assert failed.returncode == 1
    assert "tmux is not found on PATH" in failed.stderr


def test_a_fifo_is_no_profile(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.md")
    with LiveService(tmp_path) as service:
        checked = changeover(service, "profiles", "check", str(tmp_path / "fifo.md"))
    assert checked.returncode == 1
    assert "no regular file" in checked.stdout + checked.stderr


@pytest.mark.promise("spool", "submit-proof")
async def test_the_end_of_a_turn_whose_begin_was_lost_tells_that_its_text_was_taken(
    shared: LiveService,
) -> None:
    async with shared.client() as client:
        agent = await start_agent(shared, client, "shell", "half-heard")
        folder = shared.home / "terminals" / agent.terminal_id
        spool = folder / "spool"
        spool.rename(folder / "aside")
        spool.touch()  # so that the hook can't write what it has to say
        text = 'until [ -d "$CHANGEOVER_SPOOL" ]; do sleep 0.05; done; echo told'
        sent = await client.send_text("half-heard", text)
        eventually((folder / "tasks" / "1.out").exists, "the task runs")
        spool.unlink()
        (folder / "aside").rename(spool)
        assert (await delivered(client, sent)).turn == "1"
