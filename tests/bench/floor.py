"""The floor: the same scripted program driven by a bare control-mode script, with nothing around it.

It makes the pane, waits for the prompt, pastes, sees the paste arrive, submits, reads the answer off the
screen and closes. No store, no service, no hooks, no checks; the tmux server is set up as the service's own.
"""

import asyncio
import py_compile
import re
import subprocess
import sys
import time
from collections import defaultdict, deque
from itertools import count
from pathlib import Path

import anyio

from orchestrator.terminals.drivers.scripted import PROGRAM
from orchestrator.terminals.tmux import COLUMNS, CONFIGURATION, ROWS

_OCTAL = re.compile(rb"\\([0-7]{3})")


class Bare:
    """One control-mode connection to a tmux server of its own."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "floor.sock"
        self._folder = folder
        self._program = folder / "scripted_agent.pyc"
        py_compile.compile(str(PROGRAM), str(self._program), doraise=True)
        self._replies: deque[asyncio.Future[list[bytes]]] = deque()
        self._output: defaultdict[bytes, bytearray] = defaultdict(bytearray)
        self._printed = asyncio.Event()
        self._names = count()

    async def __aenter__(self) -> "Bare":
        configuration = self._folder / "floor.conf"
        configuration.write_text(CONFIGURATION)
        base = ["tmux", "-u", "-S", str(self._socket), "-f", str(configuration)]
        size = [f"-x{COLUMNS}", f"-y{ROWS}"]
        await anyio.run_process([*base, "new-session", "-d", "-s", "f", *size, "exec cat"])
        self._process = await asyncio.create_subprocess_exec(
            *base, "-C", "attach", "-t", "f", stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 26
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await anyio.run_process(["tmux", "-S", str(self._socket), "kill-server"])
        await self._process.wait()
        await self._reader

    async def handoff(self, message: str) -> float:
        """Seconds from the first command to the closed window."""
        began = time.perf_counter()
        name = f"paste{next(self._names)}"
        argv = " ".join(f'"{word}"' for word in (sys.executable, "-I", "-S", str(self._program)))
        [pane] = await self._command(f'new-window -d -P -F "#{{pane_id}}" {argv} "--no-hooks"')
        await self._until(pane, "❯".encode())
        seen = len(self._output[pane])
        paste = self._folder / name
        paste.write_text(message)
        await self._command(f"load-buffer -b {name} {paste}")
        await self._command(f"paste-buffer -p -r -d -b {name} -t {pane.decode()}")
        await self._until(pane, message.encode(), seen)
        await self._command(f"send-keys -t {pane.decode()} Enter")
        await self._until(pane, f"⏺ {message}".encode(), seen)
        screen = await self._command(f"capture-pane -p -J -S -200 -t {pane.decode()}")
        assert any(f"⏺ {message}".encode() in line for line in screen)
        await self._command(f"kill-pane -t {pane.decode()}")
        return time.perf_counter() - began

    async def _command(self, line: str) -> list[bytes]:
        assert self._process.stdin is not None
        reply: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self._replies.append(reply)
        self._process.stdin.write(line.encode() + b"\n")
        return await reply

    async def _until(self, pane: bytes, wanted: bytes, start: int = 0) -> None:
        while wanted not in self._output[pane][start:]:
            self._printed = self._printed if not self._printed.is_set() else asyncio.Event()
            await self._printed.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        block: list[bytes] | None = None
        answers = False
        async for raw in self._process.stdout:
            line = raw.rstrip(b"\r\n")
            if block is not None and line.startswith((b"%end ", b"%error ")):
                if answers:
                    assert line.startswith(b"%end "), block
                    self._replies.popleft().set_result(block)
                block = None
            elif block is not None:
                block.append(line)
            elif line.startswith(b"%begin "):
                block, answers = [], line.endswith(b" 1")
            elif line.startswith(b"%output "):
                _, pane, data = line.split(b" ", 2)
                self._output[pane] += _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), data)
                self._printed.set()
