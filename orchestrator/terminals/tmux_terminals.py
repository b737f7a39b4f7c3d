"""The adapter of the `Terminals` port: agent CLIs as windows of one tmux session of our own.

Nothing here polls an idle terminal: hooks poke, panes announce output, and the kernel tells of deaths.
"""

import logging
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from orchestrator.domain.agent import AgentFact, FactKind, Source
from orchestrator.domain.errors import StartFailed, TerminalFailure, TerminalLost, TerminalNotFound
from orchestrator.domain.profile import Profile
from orchestrator.domain.terminal import Terminal
from orchestrator.ports import AgentSpec, DriverInfo, StartedPane, Taken
from orchestrator.terminals.agent import Activity, RunningAgent
from orchestrator.terminals.connection import Connection
from orchestrator.terminals.control import TmuxRefused, escape_format, quote
from orchestrator.terminals.driver import Driver, Look, Readiness
from orchestrator.terminals.environment import agent_environment
from orchestrator.terminals.exits import exit_status
from orchestrator.terminals.process import gone
from orchestrator.terminals.programs import find_programs
from orchestrator.terminals.spool import CHECK_SECONDS, SWEEP_SECONDS, Pokes, TerminalFolder
from orchestrator.terminals.text import sound
from orchestrator.terminals.tmux import COLUMNS, ROWS, SESSION, TAG, FoundPane, TmuxServer
from orchestrator.terminals.typing import Typist
from orchestrator.terminals.watching import ScreenWatch

log = logging.getLogger("changeover.terminals")

KILL_AFTER_SECONDS = 2.0
"""How long an agent may take to end after its terminal hung up, before it is killed."""
LAST_LINES = 40


class TmuxTerminals:
    """See the port for the contract. Usable inside `running`."""

    def __init__(self, home: Path, drivers: Mapping[str, Driver], environ: Mapping[str, str]) -> None:
        self._server = TmuxServer(home / "run", environ)
        self._environ = environ
        self._folders = home / "terminals"
        self._pokes = Pokes(home / "run" / "poke")
        self._drivers = drivers
        self._agents: dict[str, RunningAgent] = {}
        self._panes: dict[str, RunningAgent] = {}
        self._listener: Callable[[AgentFact], None] = lambda fact: None
        self._connection = Connection(self._server, self._printed, self._window_closed, self._lost)
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Listens to agents until left; leaving ends no agent."""
        self._folders.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._pokes.path.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._pokes.open()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._connection.open(tasks)
            tasks.start_soon(self._hear_pokes)
            tasks.start_soon(self._sweep)
            try:
                yield
            finally:
                await self._connection.close(end_server=not self._agents)
                tasks.cancel_scope.cancel()
                self._tasks = None
                self._pokes.close()

    def listen(self, listener: Callable[[AgentFact], None]) -> None:
        self._listener = listener

    async def start(self, spec: AgentSpec) -> StartedPane:
        driver = self._driver(spec.profile.driver)
        problems: list[str] = []
        driver.check(problems, spec)
        if problems:
            raise StartFailed(f"the profile {spec.profile.name} cannot be started: " + "; ".join(problems))
        folder = TerminalFolder(self._folders, spec.terminal_id)
        agent = RunningAgent(spec.terminal_id, driver, folder)
        # Known before its window is made: its first hook may come before tmux's reply.
        self._agents[agent.id] = agent
        try:
            argv, env = await anyio.to_thread.run_sync(self._prepare, spec, driver, folder)
            await self._new_window(agent, spec.working_directory, argv, env)
        except TerminalFailure:
            del self._agents[agent.id]
            await anyio.to_thread.run_sync(_remove, folder.path)
            raise
        self._watch(agent)
        assert agent.pane is not None
        return agent.pane

    async def submit(self, terminal_id: str, text: str, *, header: str | None) -> Taken:
        return await (await self._typist()).submit(self._agent(terminal_id), text, header)

    async def resume_submit(
        self, terminal_id: str, text: str, *, header: str | None, earlier: Collection[str]
    ) -> Taken:
        return await (await self._typist()).resume(self._agent(terminal_id), text, header, earlier)

    async def wait_ready(self, terminal_id: str) -> None:
        await (await self._typist()).prompt(self._agent(terminal_id))

    async def adopt(self, specs: Sequence[tuple[Terminal, Profile]]) -> dict[str, StartedPane]:
        await self._connection.control()
        found = {pane.terminal_id: pane for pane in await self._server.panes()}
        living: dict[str, StartedPane] = {}
        for terminal, profile in specs:
            agent = await self._adopt(terminal, profile, found.pop(terminal.id, None))
            if agent.pane is not None and agent.end is None:
                living[terminal.id] = agent.pane
        for pane in found.values():
            with suppress(TerminalFailure):
                await self._command(f"kill-pane -t {pane.pane_id}")
        return living

    async def close(self, terminal_id: str) -> None:
        agent = self._agents.pop(terminal_id, None)
        if agent is None:
            return
        pane = agent.pane
        if pane is not None:
            if self._panes.get(pane.pane_id) is agent:
                del self._panes[pane.pane_id]
            with suppress(TerminalFailure):
                await self._command(f"kill-window -t {quote(f'={SESSION}:={agent.id}')}")
            await self._ensure_gone(agent, pane.pid)
        await anyio.to_thread.run_sync(_remove, agent.folder.path)

    async def screen(self, terminal_id: str, *, lines: int = 0, colours: bool = False) -> str:
        agent = self._agent(terminal_id)
        try:
            return await (await self._typist()).capture(agent, lines, colours)
        except TerminalFailure as error:
            if agent.end is not None:
                raise agent.failure() from error
            raise

    async def partial(self, terminal_id: str) -> str | None:
        agent = self._agents.get(terminal_id)
        if agent is None:
            return None
        so_far = await anyio.to_thread.run_sync(agent.driver.partial, agent.folder.path)
        return sound(so_far) if so_far is not None else None

    def attach_command(self, terminal_id: str) -> list[str]:
        return self._server.attach_argv(terminal_id)

    async def drivers(self) -> list[DriverInfo]:
        return await find_programs(self._drivers)

    def _driver(self, name: str) -> Driver:
        driver = self._drivers.get(name)
        if driver is None:
            known = ", ".join(sorted(self._drivers))
            raise StartFailed(f"there is no driver {name!r}; the known ones are {known}", driver=name)
        return driver

    def _agent(self, terminal_id: str) -> RunningAgent:
        agent = self._agents.get(terminal_id)
        if agent is None:
            raise TerminalNotFound(f"no living terminal {terminal_id}", terminal_id=terminal_id)
        return agent

    # the tmux server

    async def _lost(self, gone: Callable[[str], bool]) -> None:
        for agent in list(self._agents.values()):
            if agent.end is None and agent.pane is not None and gone(agent.pane.boot_id):
                await self._read_spool(agent)
                self._tell_lost(agent)

    async def _command(self, *commands: str) -> list[str]:
        return await self._connection.command(*commands)

    async def _typist(self) -> Typist:
        control = await self._connection.control()
        return Typist(control, self._connection.boot_id)

    # start

    def _prepare(
        self, spec: AgentSpec, driver: Driver, folder: TerminalFolder
    ) -> tuple[list[str], dict[str, str]]:
        folder.create()
        launch = driver.prepare(spec, folder.path)
        env = {
            **agent_environment(self._environ, driver.env_names, spec.profile.env),
            "CHANGEOVER_TERMINAL": spec.terminal_id,
            "CHANGEOVER_URL": spec.url,
            "CHANGEOVER_TOKEN": spec.token,
            "CHANGEOVER_SPOOL": str(folder.spool),
            "CHANGEOVER_POKE": str(self._pokes.path),
            **launch.env,
        }
        program = shutil.which(launch.argv[0], path=env.get("PATH"))
        if program is None:
            raise StartFailed(
                f"the program {launch.argv[0]!r} of the profile {spec.profile.name} was not found on PATH:"
                " install it, or set `command` in the profile",
                exit_status=127,
                program=launch.argv[0],
            )
        if not Path(spec.working_directory).is_dir():
            raise StartFailed(f"the working directory {spec.working_directory} does not exist")
        return [program, *launch.argv[1:]], env

    async def _new_window(
        self, agent: RunningAgent, directory: str, argv: list[str], env: dict[str, str]
    ) -> None:
        # `env` takes away what tmux adds by itself; a vector of several words is never given to a shell.
        words = ["/usr/bin/env", "-u", "TMUX", "-u", "TMUX_PANE", *argv]
        settings = " ".join(f"-e {quote(f'{name}={value}')}" for name, value in env.items())
        vector = " ".join(quote(word) for word in words)
        window = quote(agent.id)
        target = quote(f"={SESSION}:={agent.id}")

        async def make() -> StartedPane:
            boot = await self._boot()
            [made] = await self._command(
                f'new-window -d -t "={SESSION}:" -n {window} -P -F "#{{pane_id}} #{{pane_pid}}"'
                f" -c {quote(escape_format(directory))} {settings} -- {vector}",
                f"set-option -p -t {target} {TAG} {quote(f'{boot}/{agent.id}')}",
                # Fixes its size, whoever looks at it; the option that does so for all windows ends tmux 3.3a.
                f"resize-window -t {target} -x {COLUMNS} -y {ROWS}",
            )
            pane_id, pid = made.split(" ")
            return StartedPane(boot_id=boot, pane_id=pane_id, pid=int(pid))

        try:
            agent.pane = await make()
        except TerminalLost:  # the server went away under an idle connection: make a new one
            agent.pane = await make()

    async def _boot(self) -> str:
        await self._connection.control()
        return self._connection.boot_id

    async def _adopt(self, terminal: Terminal, profile: Profile, pane: FoundPane | None) -> RunningAgent:
        folder = TerminalFolder(self._folders, terminal.id)
        agent = RunningAgent(terminal.id, self._driver(profile.driver), folder)
        self._agents[terminal.id] = agent
        if pane is not None and pane.boot_id == self._server.boot_id:
            agent.pane = StartedPane(boot_id=pane.boot_id, pane_id=pane.pane_id, pid=pane.pid)
            await self._read_spool(agent)
            self._watch(agent)
            return agent
        await self._read_spool(agent)
        lost = terminal.boot_id is not None and terminal.boot_id != self._server.boot_id
        kind = FactKind.LOST if lost else FactKind.EXITED
        self._tell(agent, kind, Source.PROCESS, reason="it was gone when the service came back")
        return agent

    # watching

    def _watch(self, agent: RunningAgent) -> None:
        assert agent.pane is not None
        assert self._tasks is not None
        self._panes[agent.pane.pane_id] = agent
        self._spawn(self._watch_process, agent)
        if agent.driver.readiness is Readiness.SCREEN:
            self._spawn(self._watch_screen, agent)

    async def _watch_process(self, agent: RunningAgent) -> None:
        assert agent.pane is not None
        await gone(agent.pane.pid)
        agent.gone.set()
        closed_by_us = self._agents.get(agent.id) is not agent
        if agent.end is None and not closed_by_us:
            await self._ended(agent)

    async def _ended(self, agent: RunningAgent) -> None:
        """The process is gone: read how, what it said last, and what its hooks still left behind."""
        try:
            status = await self._last_of(agent)
        except TerminalLost:
            status = None
        await self._read_spool(agent)
        if agent.end is None and status is not None:
            self._tell(agent, FactKind.EXITED, Source.PROCESS, **status)
        elif agent.end is None:
            self._tell_lost(agent)

    async def _last_of(self, agent: RunningAgent) -> dict[str, Any]:
        """How it ended and the last lines of its screen, as far as its pane still tells."""
        pane = agent.pane
        control = await self._connection.control()
        if pane is None or pane.boot_id != self._connection.boot_id:
            raise TerminalLost("its tmux server is gone")
        status: dict[str, Any] = {"reason": "its terminal was closed"}
        with suppress(TmuxRefused):  # the pane was closed by hand: there is no status and no screen
            status = await exit_status(control, pane.pane_id)
            lines = await control.command(f"capture-pane -p -J -S -{LAST_LINES} -t {pane.pane_id}")
            text = "\n".join(line.rstrip() for line in lines).strip("\n")
            status["last_lines"] = "\n".join(text.split("\n")[-LAST_LINES:])
        return status

    async def _watch_screen(self, agent: RunningAgent) -> None:
        async def look(agent: RunningAgent) -> Look:
            return await (await self._typist()).look(agent)

        def tell(agent: RunningAgent, kind: FactKind, **fields: Any) -> None:
            self._tell(agent, kind, Source.SCREEN, **fields)

        await ScreenWatch(agent, look, tell).run()

    def _printed(self, pane_id: str) -> None:
        agent = self._panes.get(pane_id)
        if agent is not None:
            agent.wake()

    def _window_closed(self) -> None:
        """Some window went away. A process that outlives its window is told by nothing else."""
        if self._agents:
            self._spawn(self._check_panes)

    async def _check_panes(self) -> None:
        with suppress(TerminalFailure):
            there = set(await self._command('list-panes -s -F "#{pane_id}"'))
            for agent in list(self._agents.values()):
                if agent.pane and agent.pane.pane_id not in there and agent.end is None:
                    await self._ended(agent)

    def _spawn(self, watch: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Runs `watch` beside everything else; a fault in it is logged and ends nothing but itself."""

        async def guarded() -> None:
            try:
                await watch(*args)
            except Exception:
                log.exception("watching a terminal failed")

        if self._tasks is not None:
            self._tasks.start_soon(guarded)

    def _poked(self, terminal_ids: set[str]) -> None:
        assert self._tasks is not None
        for terminal_id in terminal_ids:
            agent = self._agents.get(terminal_id)
            if agent is not None:
                self._spawn(self._read_spool, agent)

    async def _hear_pokes(self) -> None:
        """Hears the hooks, by a new FIFO where the old one was removed."""
        while True:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pokes.run, self._poked)
                await self._fifo_lost()
                tasks.cancel_scope.cancel()
            log.warning("the FIFO for hooks was removed and is made again: %s", self._pokes.path)
            self._pokes.close()
            self._pokes.open()
            await self._read_working()

    async def _fifo_lost(self) -> None:
        while True:
            await anyio.sleep(CHECK_SECONDS)
            if self._working() and not self._pokes.stands():
                return

    def _working(self) -> list[RunningAgent]:
        busy = (Activity.STARTING, Activity.WORKING, Activity.ASKING)
        return [agent for agent in self._agents.values() if agent.activity in busy]

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            await self._read_working()

    async def _read_working(self) -> None:
        for agent in self._working():
            await self._read_spool(agent)

    async def _read_spool(self, agent: RunningAgent) -> None:
        async with agent.reading:
            facts = await anyio.to_thread.run_sync(agent.folder.read_new, agent.driver, agent.id, agent.seen)
            for fact in facts:
                if agent.end is None:
                    self._apply(agent, fact)

    def _tell(self, agent: RunningAgent, kind: FactKind, source: Source, **fields: Any) -> None:
        fact = AgentFact(terminal_id=agent.id, kind=kind, at=datetime.now(UTC), source=source, **fields)
        self._apply(agent, fact)

    def _tell_lost(self, agent: RunningAgent) -> None:
        self._tell(agent, FactKind.LOST, Source.PROCESS, reason="the tmux server is gone")

    def _apply(self, agent: RunningAgent, fact: AgentFact) -> None:
        doubtful = agent.doubtful
        if fact.kind is FactKind.SUBMITTED and doubtful is not None and agent.driver.took(fact, doubtful):
            agent.doubtful = None
            fact = msgspec.structs.replace(fact, late=True)
        self._listener(fact)
        agent.apply(fact)

    async def _ensure_gone(self, agent: RunningAgent, pid: int) -> None:
        with anyio.move_on_after(KILL_AFTER_SECONDS):
            await agent.gone.wait()
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with anyio.move_on_after(KILL_AFTER_SECONDS):
            await agent.gone.wait()


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
