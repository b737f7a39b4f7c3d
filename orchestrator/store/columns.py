"""Column types on which the databases differ, so that the records that come back are those that went in."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import DateTime, Dialect
from sqlalchemy.types import JSON, TypeDecorator


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time. SQLite keeps no offset and gives naive values back: UTC goes in and is put on again."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value.isoformat()} has no offset")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class JsonValue(TypeDecorator[object]):
    """An object or a list as JSON; None is SQL's NULL, not JSON's."""

    impl = JSON(none_as_null=True)
    cache_ok = True


def encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def decode_json(text: str) -> Any:
    return msgspec.json.decode(text)
