"""A real program on a real pseudo-terminal, with a spool of its own, for tests that need no tmux.

`PtyProgram` plays the terminal emulator: it reads all output (a full pty buffer would block the program),
answers where the cursor is, and types as a terminal does. Nothing here sleeps: every wait is for a condition,
under a deadline.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from orchestrator.domain.profile import Profile
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import Driver, Launch, SpoolEntry

DEADLINE = 20.0


def prepared(driver: Driver, folder: Path, command: list[str] | None = None) -> Launch:
    """The start of an agent whose profile says this `command`."""
    profile = Profile(name="worker", driver=driver.name, command=command or None)
    spec = AgentSpec(terminal_id="term_1", profile=profile, working_directory="/", token="secret", url="")
    return driver.prepare(spec, folder)


class PtyProgram:
    """`output` is all that the program wrote; `status` its wait status once it ended, else None."""

    def __init__(
        self, argv: Sequence[str], folder: Path, *, env: dict[str, str] | None = None, answers: bool = True
    ) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.spool.mkdir(parents=True, exist_ok=True)
        self.answers = answers
        self.output = bytearray()
        self.status: int | None = None
        self.seen: set[str] = set()
        environment = {
            "PATH": os.environ["PATH"],
            "TERM": "tmux-256color",
            "CHANGEOVER_SPOOL": str(self.spool),
            "CHANGEOVER_TERMINAL": "term_1",
        }
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(folder)
                os.execvpe(argv[0], list(argv), environment | (env or {}))
            finally:
                os._exit(127)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        os.set_blocking(self.master, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)

    def pump(self, timeout: float = 0.02) -> None:
        """Reads what is there; waits for it `timeout` at most."""
        ready, _, _ = select.select([self.master], [], [], timeout)
        if not ready:
            return
        with contextlib.suppress(OSError):
            data = os.read(self.master, 65536)
            self.output += data
            if self.answers and b"\x1b[6n" in data:
                self.type(b"\x1b[1;1R")

    def type(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            _, writable, _ = select.select([], [self.master], [], 0)
            if writable:
                rest = rest[os.write(self.master, rest[:4000]) :]
            self.pump(0)

    def paste(self, text: str) -> None:
        self.type(b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~")

    def submit(self, text: str) -> None:
        """Pastes and presses Enter once the paste shows."""
        before = len(self.output)
        self.paste(text)
        self.until(lambda: "❯ ".encode() in self.output[before:])
        self.type(b"\r")

    def until(self, condition: Callable[[], object], *, seconds: float = DEADLINE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing came of it; the screen's end: {bytes(self.output[-2000:])!r}")
            self.pump()

    def events(self) -> list[SpoolEntry]:
        names = sorted(path for path in self.spool.iterdir() if not path.name.startswith("."))
        return [SpoolEntry.read(path) for path in names]

    def event(self, event: str, number: int = 1) -> SpoolEntry:
        """The number-th event of that name, waited for."""

        def found() -> list[SpoolEntry]:
            return [entry for entry in self.events() if entry.event == event]

        self.until(lambda: len(found()) >= number)
        return found()[number - 1]

    def shown(self, text: str) -> None:
        """Waits until the text was written to the screen."""
        self.until(lambda: text.encode() in self.output)

    def ended(self) -> int:
        """Waits for the end; the exit status, or minus the signal."""

        def gone() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            return bool(pid)

        self.until(gone)
        return os.waitstatus_to_exitcode(self.status or 0)

    def plain(self) -> str:
        """The output without its escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.output.decode("utf-8", "replace"))
