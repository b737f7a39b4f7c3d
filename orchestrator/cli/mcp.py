"""`changeover mcp`: the tools over stdio, and what to paste to connect an agent CLI."""

import os
import shutil
import sys

import click

from orchestrator.cli.call import Call, remote

CLIS = ("claude", "codex", "gemini")


@click.command()
@click.option("--print-config", "cli", type=click.Choice(CLIS), help="Print what connects that agent CLI.")
@click.option("--verbose", is_flag=True, help="Log more, to standard error.")
@remote
def mcp(call: Call, cli: str | None, verbose: bool) -> None:
    """Serve the tools over stdio, to the agent CLI that starts this as its child.

    It finds the service of the home at every call, so either may be started first.
    """
    if cli is not None:
        _print_config(call, cli)
        return
    from importlib.metadata import version

    from mcp_tools import stdio
    from orchestrator.cli import connection

    settings = call.settings
    stdio.run(
        lambda: connection.where(settings, settings.agent_token_file),
        working_directory_enabled=settings.enable_working_directory,
        version=version("changeover"),
        log_level="DEBUG" if verbose else "WARNING",
    )


def _print_config(call: Call, cli: str) -> None:
    from mcp_tools.print_config import print_config
    from orchestrator.cli import connection

    settings = call.settings
    known = connection.service_file(settings)
    moved = settings.sources["home"] != "default"
    text = print_config(
        cli,
        url=settings.url or (known.url if known else f"http://{settings.host}:{settings.port}"),
        token_file=str(settings.agent_token_file),
        command=[*_program(), "mcp"],
        home=str(settings.home) if moved else None,
    )
    if call.json:
        call.show({"cli": cli, "config": text})
    else:
        click.echo(text, nl=False)


def _program() -> list[str]:
    """How another program starts this command line, from whatever folder."""
    found = shutil.which("changeover") or shutil.which(sys.argv[0])
    return [os.path.abspath(found)] if found else [sys.executable, "-m", "orchestrator.cli"]
