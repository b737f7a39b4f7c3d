"""A desk of real terminals without the service above it, for what only the bytes in a terminal can show.

RECORDER tells nobody that it was given a text, so its driver has no proof that one was taken: what is typed
into it ends as `Uncertain`, and the record is the truth.
"""

import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from orchestrator.domain.agent import AgentFact
from orchestrator.domain.errors import Uncertain
from orchestrator.domain.profile import Profile
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import Driver, Launch, Look, Readiness, SpoolEntry, TypingRules, View
from orchestrator.terminals.drivers.scripted import Scripted
from orchestrator.terminals.drivers.shell import Shell
from orchestrator.terminals.tmux_terminals import TmuxTerminals

RECORDER = Path(__file__).parent.parent / "terminals" / "recorder.py"
FRAME = (b"\x1b[200~", b"\x1b[201~")
SECONDS = 30.0


class Recorder:
    """The driver of RECORDER; to one that asked for no bracketed paste, a line end at the end is an Enter."""

    program = sys.executable
    readiness = Readiness.SCREEN
    env_names = ()

    def __init__(self, name: str, *, bracketed: bool) -> None:
        self.name = name
        self._switches = ["--bracketed"] if bracketed else []
        self.typing = TypingRules(
            header=False, sees_paste=False, give_up=0.05, keeps_trailing_newlines=bracketed
        )

    def check(self, spec_problems: list[str], spec: AgentSpec) -> None: ...

    def prepare(self, spec: AgentSpec, folder: Path) -> Launch:
        return Launch(
            argv=[sys.executable, "-I", "-S", str(RECORDER), str(folder / "record"), *self._switches]
        )

    def compose(self, text: str, header: str | None, folder: Path) -> str:
        return text

    def interpret(self, terminal_id: str, entry: SpoolEntry, folder: Path) -> list[AgentFact]:
        return []

    def took(self, fact: AgentFact, typed: str) -> bool:
        return False

    def look(self, screen: str) -> Look:
        return Look(view=View.PROMPT if screen.startswith("recording") else View.OTHER)

    def partial(self, folder: Path) -> str | None:
        return None

    def version_argv(self) -> list[str] | None:
        return None


class Impatient(Scripted):
    """A driver that knows its agent for a quick one."""

    name = "impatient"
    typing = TypingRules(enter_again=0.5, give_up=5.0)


class Desk:
    """Terminals by name. `facts` are all that was told about them, in order."""

    def __init__(self, home: Path) -> None:
        self.home = home
        drivers: list[Driver] = [
            Recorder("bracketed", bracketed=True),
            Recorder("plain", bracketed=False),
            Scripted(),
            Impatient(),
            Shell(),
        ]
        self.terminals = TmuxTerminals(home, {each.name: each for each in drivers}, os.environ)
        self.facts: list[AgentFact] = []
        self.terminals.listen(self.facts.append)
        self.panes: dict[str, str] = {}

    async def start(self, name: str, driver: str, command: list[str] | None = None) -> str:
        """Starts an agent and waits for its prompt."""
        terminal_id = f"term_{name}"
        profile = Profile(name=name, driver=driver, command=command)
        spec = AgentSpec(
            terminal_id=terminal_id, profile=profile, working_directory=str(self.home), token="", url=""
        )
        self.panes[terminal_id] = (await self.terminals.start(spec)).pane_id
        with anyio.fail_after(SECONDS):
            await self.terminals.wait_ready(terminal_id)
        return terminal_id

    async def type(self, terminal_id: str, text: str) -> None:
        """Types a text into a RECORDER, which can give no proof that it took it."""
        try:
            await self.terminals.submit(terminal_id, text, header=None)
        except Uncertain:
            return
        raise AssertionError("a recorder proves nothing")

    def record(self, terminal_id: str) -> bytes:
        return (self.home / "terminals" / terminal_id / "record").read_bytes()

    async def recorded(self, terminal_id: str, size: int) -> bytes:
        """All that this RECORDER has read, once it is `size` bytes and nothing more is on its way to it.

        What tmux still holds for it comes before the mark that is sent last.
        """
        mark = b"<that was all>"
        deadline = time.monotonic() + SECONDS
        while len(self.record(terminal_id)) < size:
            assert time.monotonic() < deadline, f"{self.record(terminal_id)[-200:]!r} and no more"
            await anyio.sleep(0.01)
        self.tmux("send-keys", "-t", self.panes[terminal_id], "-l", mark.decode())
        while not (record := self.record(terminal_id)).endswith(mark):
            assert time.monotonic() < deadline, f"{record[-200:]!r} and no mark"
            await anyio.sleep(0.01)
        return record.removesuffix(mark)

    def tmux(self, *arguments: str) -> str:
        """The tmux server of this desk, used from outside, as a person would."""
        socket = self.home / "run" / "tmux.sock"
        done = subprocess.run(
            ["tmux", "-u", "-S", str(socket), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout


@asynccontextmanager
async def desk(folder: Path) -> AsyncGenerator[Desk]:
    made = Desk(folder)
    try:
        async with made.terminals.running():
            yield made
    finally:
        made.tmux("kill-server")
