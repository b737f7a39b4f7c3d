"""The connection to our tmux server, made again whenever it was lost, and the server with it if it is gone.

It knows nothing of agents: whoever holds panes is told when they may have gone with their server.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup

from orchestrator.domain.errors import TerminalFailure, TerminalLost
from orchestrator.terminals.control import Control
from orchestrator.terminals.tmux import COLUMNS, ROWS, TmuxServer

TRIES = 3
_END_SECONDS = 2.0


class Connection:
    """One control-mode connection at a time, read in the task group given to `open`.

    `on_lost` is called after a connection that had worked was lost. By then there may be another server,
    where pane ids mean other panes: what belongs to `boot_id` is there, unless it is told `gone`.
    """

    def __init__(
        self,
        server: TmuxServer,
        on_output: Callable[[str], None],
        on_window_close: Callable[[], None],
        on_lost: Callable[[Callable[[str], bool]], Awaitable[None]],
    ) -> None:
        self._server = server
        self._on_output = on_output
        self._on_window_close = on_window_close
        self._on_lost = on_lost
        self._connecting = anyio.Lock()
        self._control: Control | None = None
        self._tasks: TaskGroup | None = None

    @property
    def boot_id(self) -> str:
        return self._server.boot_id

    def open(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    async def close(self, *, end_server: bool) -> None:
        """`end_server` where no agent lives: a server of nobody's is not left behind."""
        self._tasks = None
        control = self._control
        if control is None:
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END_SECONDS), suppress(TerminalFailure):
            if end_server:
                await control.command("kill-server")
        await control.close()

    async def control(self) -> Control:
        """The connection to a server that runs; makes both when they are not there."""
        async with self._connecting:
            if self._control is not None and not self._control.closed:
                return self._control
            for _ in range(TRIES - 1):
                with suppress(TerminalLost):
                    return await self._attach()
            return await self._attach()

    async def command(self, *commands: str) -> list[str]:
        return await (await self.control()).command(*commands)

    async def _attach(self) -> Control:
        assert self._tasks is not None, "used outside open() and close()"
        await self._server.ensure()
        control = Control(self._server.control_argv(), self._on_output, self._on_window_close)
        await control.open(self._server.environment())
        worked = anyio.Event()
        self._tasks.start_soon(self._read, control, worked)
        await control.command(f"refresh-client -C {COLUMNS}x{ROWS}")
        worked.set()
        self._control = control
        return control

    async def _read(self, control: Control, worked: anyio.Event) -> None:
        await control.run()
        if self._tasks is None or not worked.is_set():
            return
        boot = self.boot_id
        lives = await self._server.alive()
        if lives:
            with suppress(TerminalLost):
                await self.control()
        await self._on_lost(lambda of: of != self.boot_id or (not lives and of == boot))
