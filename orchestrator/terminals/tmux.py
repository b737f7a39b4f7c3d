"""The private tmux server: its socket, configuration, session and boot id; made, found again and inspected.

By libtmux, in a worker thread, for what is rare. The user's own tmux server and configuration are never
touched: everything goes to a socket of ours. A new server gets a new boot id; a pane counts as ours only by
a tag that holds it, since pane ids start again with every server.
"""

import hashlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import libtmux
import msgspec
from libtmux.exc import LibTmuxException

from orchestrator.domain.errors import TerminalLost

SESSION = "changeover"
TAG = "@changeover_terminal"
BOOT = "@changeover_boot"
COLUMNS, ROWS = 200, 50
_SOCKET_PATH_LIMIT = 100
"""A Unix socket's path may have 107 bytes; tmux adds a suffix while it starts."""
_TRIES, _RETRY_SECONDS = 5, 0.05

# Read when the server starts, and again on a server found on our socket: it may be somebody's empty one.
CONFIGURATION = f"""\
set -s exit-empty off
set -s escape-time 0
set -s set-clipboard off
set -g default-shell /bin/sh
set -g default-command ""
set -g default-terminal "screen-256color"
set -g status off
set -g mouse off
set -g base-index 0
set -g history-limit 50000
set -g default-size {COLUMNS}x{ROWS}
set -g destroy-unattached off
set -g detach-on-destroy on
set -g visual-activity off
set -g bell-action none
set -g update-environment ""
set -wg remain-on-exit on
set -wg remain-on-exit-format ""
set -wg automatic-rename off
set -wg allow-rename off
set -wg monitor-activity off
set -wg pane-base-index 0
"""

T = TypeVar("T")


class FoundPane(msgspec.Struct, frozen=True, kw_only=True):
    terminal_id: str
    boot_id: str
    pane_id: str
    pid: int
    dead: bool


class TmuxServer:
    """The server on our socket. All methods block on tmux in a worker thread, none on the event loop."""

    def __init__(self, run_dir: Path, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._tmux = shutil.which("tmux", path=environ.get("PATH"))
        self._dir = run_dir
        self.socket = _socket_path(run_dir)
        self._conf = run_dir / "tmux.conf"
        self.boot_id = ""

    def control_argv(self) -> list[str]:
        return [*self._argv(), "-C", "attach-session", "-t", f"={SESSION}"]

    def attach_argv(self, window: str) -> list[str]:
        """A view of its own on one window: a session grouped with ours, that ends when it is left."""
        view = f"view-{secrets.token_hex(4)}"
        return [
            *self._argv(),
            *("new-session", "-t", SESSION, "-s", view, ";"),
            *("set-option", "destroy-unattached", "on", ";"),
            *("select-window", "-t", f"={view}:={window}"),
        ]

    def environment(self) -> dict[str, str]:
        """What tmux itself runs with: no outer tmux, and a UTF-8 locale, without which it mangles text."""
        kept = {name: self._environ[name] for name in ("PATH", "HOME", "USER") if name in self._environ}
        return {**kept, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}

    async def ensure(self) -> bool:
        """Makes sure that server and session run. True if the server is a new one, with a new boot id."""
        return await self._blocking(self._ensure)

    async def alive(self) -> bool:
        """Whether the server with our boot id is still there. One that listens and refuses us counts."""
        try:
            return bool(self.boot_id) and await self._blocking(self._read_boot) == self.boot_id
        except TerminalLost:
            return True

    async def panes(self) -> list[FoundPane]:
        """All panes that carry our tag, of whichever boot."""
        return await self._blocking(self._panes)

    def _argv(self) -> list[str]:
        return [self._tmux or "tmux", "-u", "-S", str(self.socket), "-f", str(self._conf)]

    def _server(self) -> libtmux.Server:
        return libtmux.Server(socket_path=str(self.socket), config_file=str(self._conf), tmux_bin=self._tmux)

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=False)

    def _ensure(self) -> bool:
        if self._tmux is None:
            raise TerminalLost("tmux is not found on PATH: install it, on Debian with `apt-get install tmux`")
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._conf.write_text(CONFIGURATION)
        boot = self._read_boot()
        if boot and SESSION in self._ask("list-sessions", "-F", "#{session_name}"):
            new = boot != self.boot_id and self.boot_id != ""
            self.boot_id = boot
            return new
        self._start()
        return True

    def _start(self) -> None:
        """Only where no server answers, or one that is not ours yet: it ends a session of our name."""
        # A new session right after a server's end can fail once: "server exited unexpectedly".
        for attempt in range(_TRIES):
            try:
                self._server().new_session(
                    session_name=SESSION,
                    attach=False,
                    x=COLUMNS,
                    y=ROWS,
                    window_command="exec cat",
                    kill_session=True,
                )
            except LibTmuxException as error:
                if attempt == _TRIES - 1:
                    raise TerminalLost(f"tmux cannot make a session on {self.socket}: {error}") from error
                anyio.from_thread.run(anyio.sleep, _RETRY_SECONDS)
            else:
                break
        self._ask("source-file", str(self._conf))
        # A server that was there before us may hold anything; agents get their whole environment from us.
        for line in self._ask("show-environment", "-g"):
            self._ask("set-environment", "-gu", line.removeprefix("-").partition("=")[0])
        boot = secrets.token_hex(8)
        self._ask("set-option", "-s", BOOT, boot)
        self.boot_id = boot

    def _read_boot(self) -> str:
        return next(iter(self._ask("show-options", "-sqv", BOOT)), "")

    def _ask(self, *command: str) -> list[str]:
        """What the server answers; nothing if no server listens.

        One that listens and does not answer is asked again, and is never taken for none: all its agents
        would be taken for dead. Raises `TerminalLost` if it goes on so.
        """
        said: list[str] = []
        for _ in range(_TRIES):
            if not self._listening():
                return []
            done = self._server().cmd(*command)
            if done.returncode == 0:
                return done.stdout
            said = done.stderr
            anyio.from_thread.run(anyio.sleep, _RETRY_SECONDS)
        raise TerminalLost(
            f"tmux on {self.socket} refuses {command[0]}: {' '.join(said) or 'no reason given'}"
        )

    def _listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as knock:
            try:
                knock.connect(str(self.socket))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            return True

    def _panes(self) -> list[FoundPane]:
        fields = f"#{{{TAG}}}\t#{{pane_id}}\t#{{pane_pid}}\t#{{pane_dead}}"
        panes: list[FoundPane] = []
        for line in self._ask("list-panes", "-a", "-F", fields):
            tag, pane_id, pid, dead = line.split("\t")
            boot, separator, terminal = tag.partition("/")
            if separator:
                panes.append(
                    FoundPane(
                        terminal_id=terminal, boot_id=boot, pane_id=pane_id, pid=int(pid), dead=dead == "1"
                    )
                )
        return panes


def _socket_path(run_dir: Path) -> Path:
    """In the home, or where that path is too long for a socket, in a private folder named after it."""
    path = run_dir / "tmux.sock"
    if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"changeover-{os.getuid()}-{name}" / "tmux.sock"
