"""The spools: what hooks left in a terminal's folder, and the FIFO by which they poke the service.

The files are the truth and the pokes only wake: what was written while nobody listened is read later.
"""

import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from orchestrator.domain.agent import AgentFact
from orchestrator.terminals.driver import Driver, SpoolEntry
from orchestrator.terminals.text import sound_fact

log = logging.getLogger("changeover.terminals")

SWEEP_SECONDS = 5.0
"""How often the spools of working agents are read without a poke, in case one was lost."""
CHECK_SECONDS = 1.0
"""How often it is looked whether the FIFO is still there, while an agent is at work."""


class TerminalFolder:
    """The private folder of one terminal: mode 0700, removed when the terminal is closed."""

    def __init__(self, root: Path, terminal_id: str) -> None:
        self.path = root / terminal_id
        self.spool = self.path / "spool"

    def create(self) -> None:
        self.spool.mkdir(mode=0o700, parents=True)
        self.path.chmod(0o700)

    def read_new(self, driver: Driver, terminal_id: str, seen: set[str]) -> list[AgentFact]:
        """The facts of the entries not in `seen`, oldest first; adds those entries to `seen`. Blocks."""
        facts: list[AgentFact] = []
        with suppress(FileNotFoundError):
            names = sorted(entry.name for entry in os.scandir(self.spool) if not entry.name.startswith("."))
            for name in names:
                if name in seen:
                    continue
                seen.add(name)
                facts += self._facts_of(driver, terminal_id, name)
        return facts

    def _facts_of(self, driver: Driver, terminal_id: str, name: str) -> list[AgentFact]:
        """What one entry tells; what cannot be read tells nothing, and hides nothing that comes after."""
        try:
            entry = SpoolEntry.read(self.spool / name)
            found = [sound_fact(fact) for fact in driver.interpret(terminal_id, entry, self.path)]
        except Exception:
            log.exception("the spool entry %s of %s cannot be read", name, terminal_id)
            return []
        return [msgspec.structs.replace(fact, evidence={**fact.evidence, "spool": name}) for fact in found]


class Pokes:
    """The FIFO that hooks write terminal ids to. Open for writing too, so that it never reads as ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def open(self) -> None:
        with suppress(FileExistsError):
            os.mkfifo(self.path, 0o600)
        if not stat.S_ISFIFO(self.path.stat().st_mode):
            raise OSError(f"{self.path} is in the way of the service's FIFO: remove it")
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def stands(self) -> bool:
        """Whether hooks still find this FIFO: any agent can remove it."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        os.close(self._fd)

    async def run(self, on_poke: Callable[[set[str]], None]) -> None:
        """Calls `on_poke` with the ids that came in, until cancelled."""
        rest = b""
        while True:
            await anyio.wait_readable(self._fd)
            with suppress(BlockingIOError):
                *lines, rest = (rest + os.read(self._fd, 65536)).split(b"\n")
                on_poke({line.decode("ascii", "replace") for line in lines if line})
