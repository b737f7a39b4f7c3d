"""The command line. This module is only the table of commands and the door out: no import here is heavy, and
a command's module is loaded when that command is used.

Exit status: 0 done, 1 refused or failed with an error, 2 wrong usage; for what became of a handoff see
`orchestrator.cli.results`; 130 after Ctrl-C. An error is a line or two on standard error, and with `--json`
one JSON object there: `{"error": {"code", "detail", "facts"}}`.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

COMMANDS = {
    "serve": ("serve", "Run the service, in the foreground."),
    "handoff": ("handoff", "Hand work to an agent and print its answer."),
    "assign": ("handoff", "Hand work to an agent and print the id, without waiting."),
    "wait": ("handoffs", "Wait for handoffs and print what became of them."),
    "stop": ("handoffs", "Stop a handoff."),
    "show": ("handoffs", "Show all there is on record about a handoff."),
    "output": ("handoffs", "Print the whole answer of a handoff."),
    "ps": ("terminals", "List agents in terminals and open handoffs."),
    "start": ("terminals", "Start a long-lived agent."),
    "attach": ("terminals", "Look at an agent's terminal, and type into it."),
    "logs": ("terminals", "Print an agent's screen with its history."),
    "close": ("terminals", "End an agent and close its terminal."),
    "profiles": ("profiles", "List agent profiles, or check one."),
    "mcp": ("mcp", "Serve the tools to an agent CLI over stdio."),
    "doctor": ("doctor", "Find out what is missing, and what to do about it."),
}
"""Command → its module in this package, and what it does in a line."""


class Commands(click.Group):
    """A group that knows its commands from the table and loads only the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"{__name__}.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"changeover {version('changeover')}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="The version."
)
def changeover() -> None:
    """Coding agents hand work to one another, each in a real terminal.

    `changeover serve` starts the service; `changeover handoff developer "…"` gives it work.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command line and ends the process."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(argv))


def run(argv: list[str]) -> int:
    """Runs one command line and returns its exit status; nothing but a bug under `-X dev` is raised."""
    try:
        status = changeover.main(argv, prog_name="changeover", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:
        # Whoever read us has gone; without this the interpreter complains at its own end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, click.Abort):
        return 130
    except Exception as error:
        from orchestrator.cli import errors

        return errors.report(error, as_json="--json" in argv[: argv.index("--") if "--" in argv else None])
