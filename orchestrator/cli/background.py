"""Starting a service in the background, as `handoff --start` does."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable

import anyio

from orchestrator.cli.printing import note
from orchestrator.domain.errors import InvalidParams, Unavailable
from orchestrator.settings import Settings

PATIENCE_SECONDS = 20.0
AFTERWARDS_SECONDS = 3.0
"""How long another service may take to answer after ours gave way to it."""
LOOK_SECONDS = 0.05


async def start(settings: Settings, answers: Callable[[], Awaitable[bool]]) -> None:
    """Starts `changeover serve` for this home, detached from us, and returns when it answers.

    It keeps running after us and writes to `service.log` in the home.
    """
    if settings.url:
        raise InvalidParams(f"Nothing answers at {settings.url}, and a service is only started for a home.")
    settings.ensure_home()
    process = _spawn(settings)
    deadline = anyio.current_time() + PATIENCE_SECONDS
    given_way = False
    while anyio.current_time() < deadline:
        if await answers():
            if not given_way:
                log = settings.log_file
                note(f"Started a service for {settings.home} (process {process.pid}, which logs to {log}).")
            return
        if process.poll() is not None and not given_way:
            given_way, deadline = True, anyio.current_time() + AFTERWARDS_SECONDS
        await anyio.sleep(LOOK_SECONDS)
    lines = settings.log_file.read_text("utf-8", "replace").splitlines()[-5:]
    ended = "ended at once" if given_way else f"does not answer after {PATIENCE_SECONDS:g} s"
    raise Unavailable(f"The service {ended}. The end of {settings.log_file}:\n" + "\n".join(lines))


def _spawn(settings: Settings) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "orchestrator.cli", "serve", "--home", str(settings.home)]
    with open(settings.log_file, "ab", opener=_private) as log:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
