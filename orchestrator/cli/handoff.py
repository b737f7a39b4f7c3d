"""`changeover handoff` and `changeover assign`: giving work to an agent."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator import wire
from orchestrator.cli import results
from orchestrator.cli.call import Call, Command, remote
from orchestrator.cli.printing import note
from orchestrator.domain.errors import InvalidParams

if TYPE_CHECKING:
    from orchestrator.client import Client


def _work(function: Command) -> Command:
    options = [
        click.argument("agent_profile", metavar="PROFILE"),
        click.argument("message"),
        click.option("--model", help="The model, in place of the profile's."),
        click.option("--directory", metavar="FOLDER", help="Where the agent works. Default: here."),
        click.option("--key", help="Repeating a call with the same key rejoins its handoff."),
        click.option("--start", is_flag=True, help="Start a service in the background if none runs."),
        click.option(
            "--timeout",
            type=click.IntRange(wire.MIN_TIMEOUT, wire.MAX_TIMEOUT),
            default=wire.DEFAULT_TIMEOUT,
            show_default=True,
            help="Seconds to wait.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command(epilog=results.EXIT_HELP)
@_work
@remote
def handoff(
    call: Call,
    agent_profile: str,
    message: str,
    model: str | None,
    directory: str | None,
    key: str | None,
    start: bool,
    timeout: int,
) -> int:
    """Hand MESSAGE to a new agent of PROFILE, wait, and print its whole answer.

    The answer alone goes to standard output. A MESSAGE of - is read from standard input. If the wait runs
    out or is broken off, the agent works on: `changeover wait ID` waits again.
    """
    request = _request(agent_profile, message, model, directory, timeout, waits=True)
    started: list[str] = []

    async def act(client: "Client") -> wire.HandoffResult:
        first = await client.start_handoff(request, key)
        started.append(first.handoff_id)
        note(f"{first.handoff_id}: handed to {agent_profile}")
        answer = await client.wait_until([first.handoff_id], "all", timeout, results.Progress())
        return await results.whole(client, answer.handoffs[0])

    try:
        result = call.ask(act, start=start)
    except KeyboardInterrupt:
        _say_it_goes_on(started)
        raise
    if call.json:
        call.show(result)
    else:
        results.print_result(result)
    return results.exit_status([result])


@click.command()
@_work
@remote
def assign(
    call: Call,
    agent_profile: str,
    message: str,
    model: str | None,
    directory: str | None,
    key: str | None,
    start: bool,
    timeout: int,
) -> None:
    """Hand MESSAGE to a new agent of PROFILE and print the id at once.

    `changeover wait ID` waits for it and prints the answer. A MESSAGE of - is read from standard input.
    """
    request = _request(agent_profile, message, model, directory, timeout, waits=False)

    async def act(client: "Client") -> wire.HandoffResult:
        return await client.start_handoff(request, key)

    result = call.ask(act, start=start)
    if call.json:
        call.show(result)
    else:
        click.echo(result.handoff_id)


def _request(
    agent_profile: str, message: str, model: str | None, directory: str | None, timeout: int, *, waits: bool
) -> wire.HandoffRequest:
    here = Path.cwd()
    return wire.HandoffRequest(
        agent_profile=agent_profile,
        message=_stdin() if message == "-" else message,
        timeout=timeout,
        working_directory=str(here / Path(directory).expanduser()) if directory is not None else None,
        model=model,
        waits=waits,
        caller_directory=str(here),
    )


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidParams(
            f"The message on standard input is not UTF-8 (byte {error.start}).", path="message"
        ) from None


def _say_it_goes_on(started: list[str]) -> None:
    if started:
        name = started[0]
        note(f"\n{name} goes on. `changeover wait {name}` waits again, `changeover stop {name}` ends it.")
    else:
        note("\nIf the handoff was started it goes on; `changeover ps` shows it.")
