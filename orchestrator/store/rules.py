"""What every store refuses, in the same words; knows no database."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec

from orchestrator.domain.errors import InvalidParams, Refused, StateChanged
from orchestrator.domain.event import Event, NewEvent

S = TypeVar("S", bound=msgspec.Struct)

MAX_RUNS = 10
"""How often a work is run on fresh rows before its caller is told that it lost."""


class Stale(Exception):
    """A `replace_*` met another version than it expected; the store runs the work again."""


class ReadOnly(RuntimeError):
    """A work given to `read` tried to write: a mistake in the program."""


def lost(what: str) -> StateChanged:
    return StateChanged(f"{what} was changed by others each of the {MAX_RUNS} times it was tried")


def taken(kind: str, key: str) -> Refused:
    return Refused(f"the {kind} {key} exists already", kind=kind, key=key)


def require_successor(old: Any, new: Any) -> None:
    """A compare-and-swap protects nothing unless each write changes what is compared."""
    if new.id != old.id or new.version <= old.version:
        raise ValueError(
            f"{new.id} at version {new.version} cannot replace {old.id} at version {old.version}"
        )


def require_storable(record: msgspec.Struct) -> None:
    """Refuses what not every database can hold.

    Raises `InvalidParams` for text with a lone surrogate or U+0000, with the path of the field, and
    `ValueError` for a time without offset, which is a mistake of the program.
    """
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"the time {name} = {value.isoformat()} has no offset")
    require_text(record)


def require_text(record: object) -> None:
    """The part of `require_storable` about text, for any value; what is looked up by it obeys it too."""
    try:
        encoded = msgspec.json.encode(record)
        if b"\\u0000" not in encoded:
            return
    except UnicodeEncodeError:
        pass
    for path, text in _texts(msgspec.to_builtins(record, builtin_types=(datetime, bytes)), "$"):
        if "\0" in text:
            raise InvalidParams(f"{path} contains the character U+0000", path=path)
        if not _encodable(text):
            raise InvalidParams(f"{path} contains half of a surrogate pair", path=path)


def normal(record: S) -> S:
    """`record` as a database would give it back: values in dicts as JSON has them, and no list shared."""
    return msgspec.json.decode(msgspec.json.encode(record), type=type(record))


def plain(data: dict[str, Any] | None) -> Any:
    """`data` as it is read back: JSON's values, and nothing shared with the caller's."""
    return msgspec.to_builtins(data, str_keys=True)


def numbered(event: NewEvent, id_: int) -> Event:
    fields = {name: getattr(event, name) for name in NewEvent.__struct_fields__}
    return Event(id=id_, **fields | {"data": plain(event.data)})


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[object, object]", value).items():
            # The key's own text may be what is wrong, so the path shows it escaped.
            yield f"{path}.{str(key).encode('ascii', 'backslashreplace').decode()}", str(key)
            yield from _texts(each, f"{path}.{str(key).encode('ascii', 'backslashreplace').decode()}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(cast("list[object]", value)):
            yield from _texts(each, f"{path}[{index}]")
