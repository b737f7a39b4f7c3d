"""`changeover ps`, `start`, `attach`, `logs` and `close`: agents in their terminals."""

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import anyio
import click

from orchestrator import wire
from orchestrator.cli import results
from orchestrator.cli.call import Call, remote
from orchestrator.cli.printing import note, table, write
from orchestrator.domain.errors import Refused, StartFailed

if TYPE_CHECKING:
    from orchestrator.client import Client

_LOOK_SECONDS = 0.05


@click.command()
@click.option("--all", "also_ended", is_flag=True, help="Ended agents and handoffs too.")
@remote
def ps(call: Call, also_ended: bool) -> None:
    """List the agents in terminals, and the open handoffs."""
    statuses = None if also_ended else ["pending", "accepted"]

    async def act(client: "Client") -> tuple[wire.TerminalList, wire.HandoffList]:
        return await client.terminals(all=also_ended), await client.handoffs(status=statuses)

    terminals, handoffs = call.ask(act)
    if call.json:
        call.show({"terminals": terminals.items, "handoffs": handoffs.items})
        return
    if terminals.items:
        headings = ("TERMINAL", "NAME", "PROFILE", "ACTIVITY", "SINCE", "HANDOFF", "FOLDER", "ASKS")
        table(headings, [_row(terminal) for terminal in terminals.items])
    if handoffs.items:
        write("\n" if terminals.items else "")
        results.print_table(handoffs.items)
    if not terminals.items and not handoffs.items:
        note("No agent runs and no handoff is open.")


def _row(terminal: wire.TerminalView) -> tuple[str, ...]:
    return (
        terminal.terminal_id,
        terminal.name or "",
        terminal.agent_profile,
        terminal.activity,
        _age(terminal.started_at),
        terminal.handoff_id or "",
        terminal.working_directory,
        terminal.question or "",
    )


def _age(since: datetime) -> str:
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


async def _started(client: "Client", terminal: wire.TerminalView) -> wire.TerminalView:
    """The agent once it is at its prompt or asks something. Raises `StartFailed` if it ended instead."""
    while terminal.activity == "starting" and terminal.state != "ended":
        await anyio.sleep(_LOOK_SECONDS)
        terminal = await client.terminal(terminal.terminal_id)
    if terminal.state == "ended" or terminal.activity == "ended":
        ending = terminal.exit or {}
        raise StartFailed(
            f"the agent did not start: {ending.get('reason', 'it ended')}",
            last_lines=ending.get("last_lines"),
        )
    return terminal


@click.command()
@click.argument("agent_profile", metavar="PROFILE")
@click.option("--name", help="A name of its own, by which other commands know it.")
@click.option("--model", help="The model, in place of the profile's.")
@click.option("--directory", metavar="FOLDER", help="Where the agent works. Default: here.")
@click.option("--attach", "then_attach", is_flag=True, help="Go to its terminal at once.")
@remote
def start(
    call: Call,
    agent_profile: str,
    name: str | None,
    model: str | None,
    directory: str | None,
    then_attach: bool,
) -> None:
    """Start a long-lived agent of PROFILE, with the tools to hand work on.

    It lives until it ends by itself or by `changeover close`.
    """
    here = Path.cwd()
    request = wire.StartAgentRequest(
        agent_profile=agent_profile,
        name=name,
        working_directory=str(here / Path(directory).expanduser()) if directory is not None else None,
        caller_directory=str(here),
        model=model,
    )

    async def act(client: "Client") -> wire.TerminalView:
        return await _started(client, await client.start_agent(request))

    if then_attach and not call.json:
        _need_terminal()
    terminal = call.ask(act)
    if call.json:
        call.show(terminal)
    elif then_attach:
        _go(terminal)
    else:
        click.echo(terminal.terminal_id)


@click.command()
@click.argument("terminal")
@remote
def attach(call: Call, terminal: str) -> None:
    """Go to the terminal of an agent, by its id or name. With --json: print the command that does.

    The prefix key and d leave again; the agent stays.
    """

    async def act(client: "Client") -> wire.TerminalView:
        return await client.terminal(terminal)

    if not call.json:
        _need_terminal()
    view = call.ask(act)
    if call.json:
        call.show(view)
    else:
        _go(view)


def _need_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("Attaching needs a terminal; `changeover logs` prints the screen.")


def _go(terminal: wire.TerminalView) -> NoReturn:
    if not terminal.attach_command:
        raise Refused(f"The terminal {terminal.terminal_id} has ended.", terminal_id=terminal.terminal_id)
    sys.stdout.flush()
    argv = terminal.attach_command
    os.execvpe(argv[0], argv, outside_tmux(os.environ))  # noqa: S606


def outside_tmux(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes tmux refuse a client inside another server's pane."""
    return {name: value for name, value in environ.items() if name not in {"TMUX", "TMUX_PANE"}}


@click.command()
@click.argument("terminal")
@click.option(
    "--lines",
    type=click.IntRange(0, wire.MAX_SCREEN_LINES),
    default=wire.MAX_SCREEN_LINES,
    help="How many lines of history, at most. Default: all.",
)
@click.option("--colours", is_flag=True, help="With its colours.")
@remote
def logs(call: Call, terminal: str, lines: int, colours: bool) -> None:
    """Print the screen of an agent with its history, by its id or name."""

    async def act(client: "Client") -> wire.ScreenView:
        return await client.screen(terminal, lines, colours)

    view = call.ask(act)
    if call.json:
        call.show(view)
    else:
        write(view.text if view.text.endswith("\n") else view.text + "\n")


@click.command()
@click.argument("terminal")
@remote
def close(call: Call, terminal: str) -> None:
    """End an agent and close its terminal, by its id or name."""

    async def act(client: "Client") -> wire.TerminalView:
        return await client.close_terminal(terminal)

    view = call.ask(act)
    if call.json:
        call.show(view)
    else:
        click.echo(f"{view.terminal_id} is closed")
