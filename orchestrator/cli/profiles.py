"""`changeover profiles`: which agents there are, and what is wrong with a profile's file."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator import wire
from orchestrator.cli.call import Call, local, remote
from orchestrator.cli.printing import note, table
from orchestrator.domain.errors import ChangeoverError
from orchestrator.profiles import check as problems_of

if TYPE_CHECKING:
    from orchestrator.client import Client

BROKEN = 1


@click.group(invoke_without_command=True)
@remote
def profiles(call: Call) -> None:
    """List the agent profiles of the service, with where each came from."""
    if click.get_current_context().invoked_subcommand is not None:
        return

    async def act(client: "Client") -> wire.ProfileList:
        return await client.profiles()

    found = call.ask(act)
    if call.json:
        call.show(found)
        return
    headings = ("NAME", "FROM", "DRIVER", "MODEL", "DESCRIPTION")
    table(headings, [_row(profile) for profile in found.items])
    for profile in found.items:
        for problem in profile.problems:
            note(f"{profile.path}: {problem}")


def _row(profile: wire.ProfileView) -> tuple[str, ...]:
    text = "broken, see below" if profile.problems else profile.description
    return (profile.name, profile.source, profile.driver or "", profile.model or "", text)


@profiles.command()
@click.argument("file", type=click.Path(path_type=Path))
@local
def check(call: Call, file: Path) -> int:
    """Say what is wrong with a profile's FILE, with the line. Exit status 1 if anything is.

    Whether its driver exists can only be said while a service runs.
    """
    drivers = _drivers(call)
    problems = problems_of(file, drivers=drivers)
    if call.json:
        items = [{"line": problem.line, "message": problem.message} for problem in problems]
        call.show({"path": str(file), "problems": items, "driver_checked": drivers is not None})
    else:
        for problem in problems:
            click.echo(f"{file}:{problem.line}: {problem.message}")
        if not problems:
            click.echo(f"{file} is a good profile")
        if drivers is None:
            note("No service runs, so its driver was not checked.")
    return BROKEN if problems else 0


def _drivers(call: Call) -> list[str] | None:
    async def act(client: "Client") -> list[wire.DriverView]:
        return await client.drivers()

    try:
        return [driver.name for driver in call.ask(act)]
    except ChangeoverError:
        return None
