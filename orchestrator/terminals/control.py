"""One control-mode connection to tmux: commands in, replies and notices out, no process for each.

It knows the protocol and nothing of agents. Measured on tmux 3.3a: a command answers in 0.1 to 0.4 ms, output
is announced within 0.2 ms, and only for panes of the attached session. A line of several commands, and every
command that `if-shell` inserts, gives a reply block of its own, and an error drops the rest of its line:
so each line is followed by a marker line, and what comes before the marker's reply is the line's.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
from anyio.abc import Process

from orchestrator.domain.errors import TerminalFailure, TerminalLost


class TmuxRefused(TerminalFailure):
    """tmux answered a command with an error."""

    code = "tmux_refused"


_SPECIAL = re.compile(r'[\\"$\x00-\x1f\x7f]')


def quote(text: str) -> str:
    """One argument of a control-mode line. Double quotes: a line break inside single quotes hangs tmux."""
    return f'"{_SPECIAL.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in '\\"$':
        return "\\" + character
    return "\\n" if character == "\n" else f"\\{ord(character):03o}"


def escape_format(text: str) -> str:
    """`text` for an argument that tmux expands as a format, where `#(…)` would be run."""
    return text.replace("#", "##")


class _Pending:
    __slots__ = ("done", "error", "lines", "marker")

    def __init__(self, marker: bytes) -> None:
        self.marker = marker
        self.lines: list[str] = []
        self.error: Exception | None = None
        self.done = anyio.Event()


class Control:
    """A client attached to one session. `run` reads until the connection ends; `command` may then be used.

    `on_output` gets the id of a pane that printed something, `on_window_close` is called when any window
    went away. Both run on the event loop and must not wait.
    """

    def __init__(
        self, argv: Sequence[str], on_output: Callable[[str], None], on_window_close: Callable[[], None]
    ) -> None:
        self._argv = argv
        self._on_output = on_output
        self._on_window_close = on_window_close
        self._pending: deque[_Pending] = deque()
        self._process: Process | None = None
        self._sent = 0
        self._send_lock = anyio.Lock()
        self._attached = anyio.Event()
        self.closed = False

    async def open(self, env: dict[str, str]) -> None:
        """Raises `TerminalLost` when there is no server or session to attach to."""
        self._process = await anyio.open_process(self._argv, stderr=None, env=env)

    async def run(self) -> None:
        """Reads until the connection ends; then every waiting and later command raises `TerminalLost`."""
        process = self._opened()
        assert process.stdout is not None
        try:
            buffer = b""
            block: list[bytes] | None = None
            async for chunk in process.stdout:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    block = self._line(line, block)
        finally:
            self._fail_all()
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.aclose()

    async def command(self, *commands: str) -> list[str]:
        """Runs the commands as one line, in order, and returns the lines of all replies.

        Nothing of another caller comes between them. Raises `TmuxRefused` for the first command that tmux
        refuses (the later ones are then not run) and `TerminalLost` when the connection is gone. A caller
        that is cancelled takes nothing back: what was sent is run.
        """
        process = self._opened()
        assert process.stdin is not None
        # A command that comes before tmux has attached us is refused: "no current client".
        await self._attached.wait()
        self._sent += 1
        pending = _Pending(b"changeover-mark-%d" % self._sent)
        line = " ; ".join(commands) + f"\ndisplay-message -p {pending.marker.decode()}\n"
        try:
            async with self._send_lock:
                # What is expected must be sent, whoever gives up: every later reply would wait behind it.
                with anyio.CancelScope(shield=True):
                    self._pending.append(pending)
                    await process.stdin.send(line.encode())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._fail_all()
        await pending.done.wait()
        if pending.error is not None:
            raise pending.error
        return pending.lines

    async def close(self) -> None:
        """Detaches; the server and its windows stay."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._process.stdin.aclose()

    def _opened(self) -> Process:
        if self._process is None or self.closed:
            raise TerminalLost("the connection to tmux is closed")
        return self._process

    def _line(self, line: bytes, block: list[bytes] | None) -> list[bytes] | None:
        if block is not None:
            if line.startswith((b"%end ", b"%error ")) and line.split(b" ")[1:3] == block[0].split(b" ")[1:3]:
                self._block(block, failed=line.startswith(b"%error "))
                return None
            block.append(line)
            return block
        if line.startswith(b"%begin "):
            return [line]
        if line.startswith(b"%output "):
            self._on_output(line[8 : line.index(b" ", 8)].decode())
        elif line.startswith(b"%session-changed "):
            self._attached.set()
        elif line.startswith((b"%window-close ", b"%unlinked-window-close ")):
            self._on_window_close()
        return None

    def _block(self, block: list[bytes], failed: bool) -> None:
        if block[0].rpartition(b" ")[2] == b"0" or not self._pending:
            return  # not a reply to this client: tmux's own attach command
        pending = self._pending[0]
        body = block[1:]
        if body == [pending.marker]:
            self._pending.popleft()
            pending.done.set()
        elif failed and pending.error is None:
            pending.error = TmuxRefused(b"\n".join(body).decode("utf-8", "replace"))
        else:
            pending.lines.extend(line.decode("utf-8", "replace") for line in body)

    def _fail_all(self) -> None:
        self.closed = True
        self._attached.set()
        while self._pending:
            pending = self._pending.popleft()
            pending.error = TerminalLost("the tmux server is gone")
            pending.done.set()
