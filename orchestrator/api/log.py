"""The service's log: one JSON object a line, on the stream it is given. Never a token, never a body.

Modules log by the standard library, to a logger below `changeover`, with their fields as
`extra={"fields": {...}}`.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

ROOT = "changeover"


class JsonLines(logging.Formatter):
    """time, level, logger, event, then the record's own fields, then the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _text(line)


@contextmanager
def log_to(stream: TextIO, level: int = logging.INFO) -> Generator[None]:
    """Inside it, what is logged below `changeover` goes to `stream`, and nowhere else."""
    root, handler = logging.getLogger(ROOT), logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    before = root.level, root.propagate
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.level, root.propagate = before


def _text(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except UnicodeEncodeError:
        return ascii(line)
