"""How a command that failed says so on standard error: in a line or two, or as one JSON object."""

import sys
from typing import Any

import click
import msgspec

from orchestrator.cli.printing import printable
from orchestrator.domain.errors import ChangeoverError

FAILED, WRONG_USAGE = 1, 2


def report(error: Exception, *, as_json: bool) -> int:
    """Prints what went wrong and returns the exit status. A bug is raised again under `python -X dev`."""
    error = _only(error)
    if isinstance(error, click.ClickException):
        if as_json:
            _print_json("usage", error.format_message(), {})
        else:
            error.show(sys.stderr)
        return WRONG_USAGE
    if isinstance(error, ChangeoverError):
        code, detail, facts = error.code, error.detail, error.facts
    elif sys.flags.dev_mode:
        raise error
    else:
        code, detail, facts = (
            "internal",
            f"an error of the program itself ({type(error).__name__}: {error})",
            {},
        )
    if as_json:
        _print_json(code, detail, facts)
    else:
        click.echo(f"changeover: {printable(detail)}", err=True)
    return FAILED


def _only(error: Exception) -> Exception:
    """The one error inside groups of one, as task groups make them."""
    inner: tuple[Exception, ...] = getattr(error, "exceptions", ())
    return _only(inner[0]) if len(inner) == 1 else error


def _print_json(code: str, detail: str, facts: dict[str, Any]) -> None:
    error = {"error": {"code": code, "detail": detail, "facts": facts}}
    click.echo(msgspec.json.encode(error, enc_hook=str).decode(), err=True)
