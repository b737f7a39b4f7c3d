"""What every command shares: its settings, `--json`, and a way to the service."""

import functools
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from orchestrator.cli.printing import write

if TYPE_CHECKING:
    from orchestrator.client import Client
    from orchestrator.settings import Settings

T = TypeVar("T")
Command = Callable[..., int | None]


class Call(msgspec.Struct, frozen=True):
    """One use of a command."""

    settings: "Settings"
    json: bool

    def ask(self, act: Callable[["Client"], Awaitable[T]], *, start: bool = False) -> T:
        """Runs `act` with a client of the service, which with `start` is started if none runs."""
        from orchestrator.cli import connection

        return connection.ask(self.settings, act, start=start)

    def show(self, value: Any) -> None:
        """Prints the JSON of a struct of `wire`, or of plain data."""
        write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def local(function: Command) -> Command:
    """A command that needs the settings only: adds `--home` and `--json`, hands in the `Call` first."""
    return _options(function, {})


def remote(function: Command) -> Command:
    """A command that speaks to a service: `local`, and `--url`."""
    url = click.option("--url", metavar="URL", help="The service's address. Default: what the home says.")
    return url(_options(function, {"url": "url"}))


def with_settings(**flags: str) -> Callable[[Command], Command]:
    """`local`, with more options that are settings: parameter = setting."""
    return lambda function: _options(function, flags)


def _options(function: Command, flags: dict[str, str]) -> Command:
    @functools.wraps(function)
    def command(home: str | None, as_json: bool, **arguments: Any) -> int | None:
        from orchestrator.settings import load

        given: dict[str, Any] = {"home": home}
        for parameter, setting in flags.items():
            value = arguments.pop(parameter)
            given[setting] = None if value == () else value
        return function(Call(load(given, os.environ), as_json), **arguments)

    home = click.option(
        "--home", metavar="FOLDER", help="The service's data folder. Default: CHANGEOVER_HOME."
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return home(as_json(command))
