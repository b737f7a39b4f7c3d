"""The private tmux server: its socket, configuration, session and boot id; made, found again and inspected.

By libtmux, in a worker thread, for what is rare. The user's own tmux server and configuration are never
touched: everything goes to a socket of ours. A new server gets a new boot id; a pane counts as ours only by
a tag that holds it, since pane ids start again with every server.
"""

import hashlib
import os
import secrets
import shutil
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
        self._tmux = shutil.which("tmux", path=environ.get("PATH")) or "tmux"
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
        """Whether the server with our boot id still answers; one failed probe is asked again."""
        for _ in range(3):
            if self.boot_id and await self._blocking(self._read_boot) == self.boot_id:
                return True
            await anyio.sleep(0.05)
        return False

    async def panes(self) -> list[FoundPane]:
        """All panes that carry our tag, of whichever boot."""
        return await self._blocking(self._panes)

    async def kill(self) -> None:
        await self._blocking(lambda: self._server().kill())

    def _argv(self) -> list[str]:
        return [self._tmux, "-u", "-S", str(self.socket), "-f", str(self._conf)]

    def _server(self) -> libtmux.Server:
        return libtmux.Server(socket_path=str(self.socket), config_file=str(self._conf), tmux_bin=self._tmux)

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=False)

    def _ensure(self) -> bool:
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._conf.write_text(CONFIGURATION)
        boot = self._read_boot()
        if boot and self._server().has_session(SESSION):
            new = boot != self.boot_id and self.boot_id != ""
            self.boot_id = boot
            return new
        server = self._start()
        self.boot_id = secrets.token_hex(8)
        server.cmd("set-option", "-s", BOOT, self.boot_id)
        return True

    def _start(self) -> libtmux.Server:
        server = self._server()
        # A new session right after a server's end can fail once: "server exited unexpectedly".
        for attempt in range(5):
            try:
                server.new_session(
                    session_name=SESSION,
                    attach=False,
                    x=COLUMNS,
                    y=ROWS,
                    window_command="exec cat",
                    kill_session=True,
                )
            except LibTmuxException as error:
                if attempt == 4:
                    raise TerminalLost(f"tmux cannot make a session on {self.socket}: {error}") from error
                anyio.from_thread.run(anyio.sleep, 0.05)
            else:
                break
        server.cmd("source-file", str(self._conf))
        self._clear_global_environment(server)
        return server

    def _clear_global_environment(self, server: libtmux.Server) -> None:
        """A server that was there before us may hold anything; agents get their whole environment from us."""
        for line in server.cmd("show-environment", "-g").stdout:
            name = line.removeprefix("-").partition("=")[0]
            server.cmd("set-environment", "-gu", name)

    def _read_boot(self) -> str:
        found = self._server().cmd("show-options", "-sqv", BOOT)
        return found.stdout[0] if found.returncode == 0 and found.stdout else ""

    def _panes(self) -> list[FoundPane]:
        fields = f"#{{{TAG}}}\t#{{pane_id}}\t#{{pane_pid}}\t#{{pane_dead}}"
        found = self._server().cmd("list-panes", "-a", "-F", fields)
        panes: list[FoundPane] = []
        for line in found.stdout:
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
