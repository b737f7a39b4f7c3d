"""What goes to standard output and what to standard error, exactly or made harmless to a terminal."""

import sys
from collections.abc import Sequence

import click


def printable(text: str) -> str:
    """The text without what would steer a person's terminal; lines and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def note(text: str) -> None:
    """A line for the person, on standard error, so that standard output holds results only."""
    click.echo(printable(text), err=True)


def write(text: str) -> None:
    """Text to standard output exactly as it is, whatever the locale; half a surrogate pair becomes `?`."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def end_line(last: str) -> None:
    """On a terminal the next prompt begins on a line of its own; elsewhere not a byte is added."""
    if last and not last.endswith("\n") and sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table; columns that are empty in every row are left out, and nothing is cut off in a pipe.

    Empty headings are not shown.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    used = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    shown = Table(*[headings[i] for i in used], box=None, pad_edge=False, show_header=any(headings))
    for row in rows:
        shown.add_row(*[Text(printable(row[i]).replace("\n", " ")) for i in used])
    sys.stdout.flush()
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False).print(shown)
