"""Bodies of requests: JSON decoded strictly, and refused with the path of what is wrong.

The decoder refuses unknown fields, wrong types, malformed JSON and UTF-8, and halves of surrogate pairs;
U+0000, which PostgreSQL cannot store, is refused here.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import msgspec
from litestar.dto import AbstractDTO
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from orchestrator import wire
from orchestrator.domain.errors import InvalidParams

_AT = re.compile(r" - at `\$(.*)`$", re.DOTALL)
_FIELD = re.compile(
    r"^Object (?:contains unknown|missing required) field `(.*?)`(?: - at `\$.*`)?$", re.DOTALL
)


class NoFields(wire.Request):
    """A body that says nothing: `{}`."""


def decoded(kind: type[Any], body: bytes) -> Any:
    """`body` as a `kind`; raises `InvalidParams` with the path of the offending field."""
    try:
        value = _decoder(kind).decode(body)
        if rb"\u0000" in body:
            refuse_nul(value)
    except msgspec.ValidationError as error:
        detail = str(error)
        raise InvalidParams(detail[:300], path=_path(detail)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParams(f"the body is not JSON: {error}"[:300], path="$") from None
    except RecursionError:
        raise InvalidParams("the body is nested too deeply", path="$") from None
    return value


def refuse_nul(value: Any) -> None:
    """Raises `InvalidParams` with the path of the first text that holds U+0000."""
    for path, text in _texts(msgspec.to_builtins(value), ""):
        if "\0" in text:
            raise InvalidParams("text may not hold U+0000", path=path.removeprefix("."))


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield f"{path}.{name}", str(name)  # pyright: ignore[reportUnknownArgumentType]
            yield from _texts(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
            yield from _texts(item, f"{path}[{index}]")


def _path(detail: str) -> str:
    """`timeout`, `handoff_ids[1]`, or `$` for the body itself, from the decoder's own words."""
    at, field = _AT.search(detail), _FIELD.search(detail)
    path = (at[1] if at else "") + (f".{field[1]}" if field else "")
    return path.removeprefix(".")[:100] or "$"


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


class StrictBody(AbstractDTO[Any]):
    """How Litestar gets a handler's `data`: by `decoded`, as the type it is annotated with."""

    @classmethod
    def create_for_field_definition(cls, *args: Any, **kwargs: Any) -> None: ...

    def decode_bytes(self, value: bytes) -> Any:
        connection = cast("Any", self.asgi_connection)  # pyright: ignore[reportUnknownMemberType]
        return decoded(connection.route_handler.parsed_data_field.annotation, value)

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any
    ) -> Reference | Schema:
        return schema_creator.for_field_definition(field_definition)
