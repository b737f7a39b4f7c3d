"""`changeover wait`, `stop`, `show` and `output`: coming back to handoffs by their ids."""

import sys
from typing import TYPE_CHECKING

import click

from orchestrator import wire
from orchestrator.cli import results
from orchestrator.cli.call import Call, remote
from orchestrator.cli.printing import end_line, note, printable, table, write

if TYPE_CHECKING:
    from orchestrator.client import Client


@click.command(epilog=results.EXIT_HELP)
@click.argument("handoff_ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--all/--any", "wait_for_all", default=True, help="Wait for all of them (the default), or for one."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=float(wire.DEFAULT_TIMEOUT),
    show_default=True,
    help="Seconds to wait.",
)
@remote
def wait(call: Call, handoff_ids: tuple[str, ...], wait_for_all: bool, timeout: float) -> int:
    """Wait for handoffs and print what became of them.

    One ID: its whole answer alone goes to standard output, as with `changeover handoff`. Several: a table;
    without ID of all your handoffs that are open or whose result nobody has fetched.
    """

    async def act(client: "Client") -> wire.WaitResponse:
        mode = "all" if wait_for_all else "any"
        answer = await client.wait_until(handoff_ids, mode, timeout, results.Progress())
        answer.handoffs = [await results.whole(client, result) for result in answer.handoffs]
        return answer

    try:
        answer = call.ask(act)
    except KeyboardInterrupt:
        note("\nThe handoffs go on.")
        raise
    if call.json:
        call.show(answer)
    elif len(handoff_ids) == 1:
        results.print_result(answer.handoffs[0])
    elif answer.handoffs:
        results.print_table(answer.handoffs)
    else:
        note("No handoff is open.")
    counted = answer.handoffs if wait_for_all else [r for r in answer.handoffs if results.is_over(r)]
    return results.exit_status(counted or answer.handoffs)


@click.command()
@click.argument("handoff_id", metavar="ID")
@remote
def stop(call: Call, handoff_id: str) -> None:
    """Stop the handoff ID and end its agent. What it has answered so far is kept."""

    async def act(client: "Client") -> wire.HandoffResult:
        return await client.stop(handoff_id)

    result = call.ask(act)
    if call.json:
        call.show(result)
    else:
        click.echo(results.sentence(result))


@click.command()
@click.argument("handoff_id", metavar="ID")
@remote
def output(call: Call, handoff_id: str) -> None:
    """Print the whole answer of the handoff ID, exactly; of an open one what there is so far."""

    async def act(client: "Client") -> wire.OutputPage:
        return await results.whole_output(client, handoff_id)

    page = call.ask(act)
    if call.json:
        call.show(page)
        return
    write(page.output)
    end_line(page.output)
    sys.stdout.flush()
    if page.partial:
        note("This is not the complete answer.")


@click.command()
@click.argument("handoff_id", metavar="ID")
@remote
def show(call: Call, handoff_id: str) -> None:
    """Show all there is on record about the handoff ID: its messages and every event."""

    async def act(client: "Client") -> wire.ThreadView:
        return await client.thread(handoff_id)

    thread = call.ask(act)
    if call.json:
        call.show(thread)
    else:
        _print_thread(thread)


def _print_thread(thread: wire.ThreadView) -> None:
    facts = {
        "id": thread.thread_id,
        "status": thread.outcome or thread.status,
        "profile": thread.agent_profile,
        "model": thread.model,
        "from": thread.sender,
        "to": thread.recipient,
        "part of": thread.parent_id,
        "folder": thread.working_directory,
        "created": thread.created_at.isoformat(timespec="seconds"),
        "ended": thread.ended_at.isoformat(timespec="seconds") if thread.ended_at else None,
        "cancelled": thread.cancel_reason,
    }
    table(("", ""), [(name, value) for name, value in facts.items() if value])
    for message in thread.messages:
        write(f"\n#{message.sequence_no} {message.author}, {message.created_at:%H:%M:%S}\n")
        write(printable(message.text).rstrip("\n") + "\n")
    write("\n")
    table(
        ("TIME", "EVENT", "BY", "FACTS"),
        [(f"{e.at:%H:%M:%S.%f}"[:-3], e.type, e.by, _facts(e)) for e in thread.events],
    )


def _facts(event: wire.EventView) -> str:
    parts = [f"{name}={value}" for name, value in event.data.items()]
    if event.terminal_id:
        parts.insert(0, event.terminal_id)
    return "  ".join(part if len(part) <= 80 else part[:79] + "…" for part in parts)
