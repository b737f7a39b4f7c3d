"""`changeover doctor`: what is there, what is missing, and what to do about each fault.

It looks at this machine, and at the service of the home if one runs. Exit status 1 if anything is at fault.
"""

import errno
import re
import shutil
import socket
import sqlite3
import stat
import subprocess
from typing import TYPE_CHECKING

import click
import msgspec

from orchestrator import wire
from orchestrator.cli.call import Call, remote
from orchestrator.cli.printing import printable
from orchestrator.domain.errors import ChangeoverError, Unavailable

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.settings import Settings

OLDEST_TMUX = (3, 2)


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at. `ok` None: no fault, and not known to be right either."""

    name: str
    ok: bool | None
    detail: str
    advice: str | None = None


@click.command()
@remote
def doctor(call: Call) -> int:
    """Look at tmux, the home, the record, the port, the service and each agent CLI; say what to do."""
    service, drivers, trouble = _ask_service(call)
    findings = [
        tmux(),
        home(call.settings),
        database(call.settings),
        _service(call.settings, service, trouble),
        port(call.settings, service),
        *_agent_clis(drivers),
    ]
    if call.json:
        call.show({"findings": findings})
    else:
        for finding in findings:
            _print(finding)
    return int(any(finding.ok is False for finding in findings))


def _print(finding: Finding) -> None:
    mark = {True: "ok", False: "FAULT", None: "-"}[finding.ok]
    click.echo(f"{mark:<6}{finding.name}: {printable(finding.detail)}")
    if finding.advice:
        click.echo(f"      -> {printable(finding.advice)}")


def _ask_service(
    call: Call,
) -> tuple[wire.ServiceView | None, list[wire.DriverView] | None, ChangeoverError | None]:
    async def act(client: "Client") -> tuple[wire.ServiceView, list[wire.DriverView]]:
        return await client.service(), await client.drivers()

    try:
        return *call.ask(act), None
    except ChangeoverError as error:
        return None, None, error


def tmux() -> Finding:
    """Whether tmux is on PATH and new enough."""
    advice = "Debian: sudo apt-get install tmux. macOS: brew install tmux."
    path = shutil.which("tmux")
    if path is None:
        return Finding("tmux", False, "not found on PATH", advice)
    try:
        shown = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("tmux", False, f"{path} does not run ({error})", advice)
    found = re.search(r"(\d+)\.(\d+)", shown)
    new_enough = found is None or (int(found[1]), int(found[2])) >= OLDEST_TMUX
    oldest = ".".join(map(str, OLDEST_TMUX))
    detail = f"{shown.strip()} at {path}"
    return Finding(
        "tmux", new_enough, detail, None if new_enough else f"{oldest} or newer is needed. {advice}"
    )


def home(settings: "Settings") -> Finding:
    """Whether the home is there, ours, and closed to others."""
    source = settings.sources["home"]
    detail = f"{settings.home} (from {source})"
    try:
        mode = stat.S_IMODE(settings.home.stat().st_mode)
        list(settings.home.iterdir())
    except FileNotFoundError:
        return Finding("home", None, f"{detail} is not there yet; the first start makes it")
    except OSError as error:
        reason = (error.strerror or "").lower()
        return Finding("home", False, f"{detail}: {reason}", "Set CHANGEOVER_HOME to a folder of yours.")
    if mode & 0o077:
        advice = f"chmod 700 {settings.home}"
        return Finding("home", False, f"{detail} is open to other users ({mode:04o})", advice)
    return Finding("home", True, detail)


def database(settings: "Settings") -> Finding:
    """Whether the record can be opened and is whole. Changes nothing."""
    path = settings.database_path
    if not path.exists():
        return Finding("record", None, f"{path} is not there yet; the first start makes it")
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=2) as connection:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        connection.close()
    except sqlite3.Error as error:
        return Finding(
            "record", False, f"{path} does not open: {error}", "Restore it from a copy, or move it away."
        )
    if answer != "ok":
        advice = "Stop the service, and restore the file from a copy."
        return Finding("record", False, f"{path} is damaged: {answer}", advice)
    return Finding("record", True, f"{path} opens")


def _service(
    settings: "Settings", service: wire.ServiceView | None, trouble: ChangeoverError | None
) -> Finding:
    if service is not None:
        running = f"{service.terminals} of {service.max_terminals} agents running"
        return Finding("service", True, f"{service.version} at {service.url}, pid {service.pid}, {running}")
    if isinstance(trouble, Unavailable) and not settings.url:
        return Finding("service", None, "none runs for this home", "Start one: changeover serve")
    return Finding(
        "service", False, trouble.detail if trouble else "no answer", "See CHANGEOVER_URL and _TOKEN."
    )


def port(settings: "Settings", service: wire.ServiceView | None) -> Finding:
    """Whether a service could listen where the settings say, or already does."""
    where = f"{settings.host}:{settings.port}"
    if settings.port == 0:
        return Finding("port", True, "any free one")
    if service is not None and service.url.endswith(f":{settings.port}"):
        return Finding("port", True, f"{where} is the service's")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            detail = (
                f"{where} is taken by another program" if taken else f"{where}: {error.strerror or error}"
            )
            return Finding("port", False, detail, "Set CHANGEOVER_PORT to another one, or to 0 for any.")
    return Finding("port", True, f"{where} is free")


def _agent_clis(drivers: list[wire.DriverView] | None) -> list[Finding]:
    if drivers is None:
        return [Finding("agent CLIs", None, "a running service says which are found", "changeover serve")]
    return [_agent_cli(driver) for driver in drivers]


def _agent_cli(driver: wire.DriverView) -> Finding:
    name = f"agent CLI {driver.name}"
    if driver.found:
        return Finding(name, True, f"{driver.version or 'version unknown'} at {driver.path}", driver.advice)
    advice = driver.advice or f"Install {driver.program}, or take it as not needed."
    return Finding(name, None, f"{driver.program} is not found on the service's PATH", advice)
