"""The control-mode connection: what it promises to callers that come, go and fail, on a real tmux."""

import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from orchestrator.domain.errors import TerminalLost
from orchestrator.terminals.control import Control, TmuxRefused
from orchestrator.terminals.tmux import TmuxServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    server = TmuxServer(tmp_path / "run", os.environ)
    await server.ensure()
    control = Control(server.control_argv(), lambda pane: None, lambda: None)
    await control.open(server.environment())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(control.run)
        try:
            yield control
        finally:
            with suppress(TerminalLost):
                await control.command("kill-server")


@pytest.mark.parametrize("steps", range(6))
async def test_a_caller_that_gives_up_at_any_moment_leaves_the_connection_in_step(
    control: Control, steps: int
) -> None:
    await control.command("display-message -p attached")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(control.command, "display-message -p given-up")
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(5):
        assert await control.command("display-message -p one", "display-message -p two") == ["one", "two"]


async def test_a_refused_command_drops_the_rest_of_its_line_and_no_other(control: Control) -> None:
    with anyio.fail_after(5), pytest.raises(TmuxRefused):
        await control.command("no-such-command", "set-option -s @seen yes")
    with anyio.fail_after(5):
        assert await control.command('display-message -p "#{@seen}."') == ["."]
