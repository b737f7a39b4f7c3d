"""The service's log: one JSON object a line, on the stream it is given. Never a token, never a body.

Modules log by the standard library, to a logger below `changeover`, with their fields as
`extra={"fields": {...}}`.
"""

import logging
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


def log_to(stream: TextIO, level: int = logging.INFO) -> logging.Handler:
    """Writes what is logged below `changeover` to `stream`, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger(ROOT)
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False
    return handler


def _text(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except UnicodeEncodeError:
        return ascii(line)
