"""A real service for tests: `changeover serve` as a process of its own, with real tmux, in a private home.

Everything a test starts through this lives in its own folder and on its own tmux socket, and ends with it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

import anyio

from orchestrator.client import Client
from orchestrator.wire import DeliveryView, HandoffRequest, HandoffResult, StartAgentRequest, TerminalView

T = TypeVar("T")

START_SECONDS = 30.0


def eventually(look: Callable[[], T | None], what: str, seconds: float = 20.0) -> T:
    """The first true value of `look`, or a failure that says what did not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"within {seconds:g} s: {what}")


class LiveService:
    """`home` may be used again after `stop` or `kill`; `work` is where agents work; `log` what it logged."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.profiles = folder / "profiles"
        self.log = folder / "service.log"
        self.work.mkdir(parents=True, exist_ok=True)
        self.profiles.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        self.env = {
            **kept,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "CHANGEOVER_HOME": str(self.home),
            "CHANGEOVER_PORT": "0",
            "CHANGEOVER_ROOTS": str(folder),
            **(env or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.tmux("kill-server")

    def start(self, *flags: str) -> Self:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.cli", "serve", "--profiles", str(self.profiles), *flags],
                env=self.env,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        pid = self.process.pid

        def announced() -> str | None:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the service ended at once:\n{self.log.read_text()}")
            with suppress(FileNotFoundError):
                said = json.loads((self.home / "service.json").read_text())
                return said["url"] if said["pid"] == pid else None
            return None

        self.url = eventually(announced, "the service announces itself", START_SECONDS)
        return self

    def kill(self) -> None:
        """`kill -9`: agents and tmux stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, sent: signal.Signals = signal.SIGTERM, seconds: float = 15.0) -> int:
        """Asks it to end and returns its exit status."""
        assert self.process is not None
        self.process.send_signal(sent)
        return self.process.wait(seconds)

    def token(self, scope: str = "person") -> str:
        return (self.home / f"{scope}.token").read_text().strip()

    def client(self, scope: str = "person", session: str | None = None) -> Client:
        return Client(self.url, self.token(scope), session=session)

    def request(self, profile: str, message: str, **fields: object) -> HandoffRequest:
        return HandoffRequest(
            agent_profile=profile,
            message=message,
            caller_directory=str(self.work),
            **fields,  # type: ignore[arg-type]
        )

    def profile(self, name: str, front: str = "driver: scripted", body: str = "") -> str:
        """Writes a profile; `front` is its front matter without the name."""
        (self.profiles / f"{name}.md").write_text(f"---\nname: {name}\n{front}\n---\n{body}\n")
        return name

    def tmux(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The service's own tmux server, looked at from outside."""
        socket = self.home / "run" / "tmux.sock"
        return subprocess.run(
            ["tmux", "-u", "-S", str(socket), *arguments], capture_output=True, text=True, check=False
        )

    def agent_windows(self) -> list[str]:
        """The terminals that have a window, by id."""
        listed = self.tmux("list-windows", "-a", "-F", "#{window_name}").stdout.split()
        return [name for name in listed if name.startswith("term_")]

    def turns(self, terminal_id: str) -> list[dict[str, str]]:
        """The turns the scripted agent of this terminal has logged."""
        log = self.home / "terminals" / terminal_id / "turns.jsonl"
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in log.read_text().splitlines()]
        return []


async def reached(look: Callable[[], Awaitable[T | None]], what: str, seconds: float = 20.0) -> T:
    """As `eventually`, for what the service has to be asked for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = await look()
        if found:
            return found
        await anyio.sleep(0.02)
    raise AssertionError(f"within {seconds:g} s: {what}")


async def in_phase(client: Client, handoff_id: str, phase: str) -> HandoffResult:
    """The handoff once its latest fact is this one."""

    async def look() -> HandoffResult | None:
        found = await client.handoff(handoff_id)
        return found if found.phase == phase else None

    return await reached(look, f"{handoff_id} is {phase}")


async def delivered(client: Client, delivery: DeliveryView, state: str = "delivered") -> DeliveryView:
    """The delivery once it is settled, which must be in this state."""

    async def look() -> DeliveryView | None:
        items = (await client.deliveries(delivery.terminal_id)).items
        [found] = [each for each in items if each.delivery_id == delivery.delivery_id]
        return None if found.state in ("queued", "typing") else found

    found = await reached(look, f"{delivery.delivery_id} is settled", 40.0)
    assert found.state == state, found
    return found


async def hand_off(
    service: LiveService, profile: str, message: str, *, seconds: float = 60.0, **fields: object
) -> HandoffResult:
    """One blocking handoff by the person, to its end."""
    async with service.client() as client:
        started = await client.start_handoff(service.request(profile, message, **fields))
        waited = await client.wait_until([started.handoff_id], "all", seconds)
        return waited.handoffs[0]


async def start_agent(service: LiveService, client: Client, profile: str, name: str) -> TerminalView:
    """A long-lived agent at its prompt."""
    started = await client.start_agent(
        StartAgentRequest(agent_profile=profile, name=name, caller_directory=str(service.work))
    )
    with anyio.fail_after(START_SECONDS):
        while True:
            view = await client.terminal(started.terminal_id)
            if view.activity != "starting":
                return view
            await anyio.sleep(0.02)
