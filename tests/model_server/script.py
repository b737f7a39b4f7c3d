"""What a scripted turn does: the steps a model takes, read from the user's text or from a queue.

A step is one reply of the model. The steps of a turn are taken in order: which one is next is the number of
replies that the conversation already holds since the user's text, so the server keeps no state of its own.

Directives, anywhere in the user's text (the last one of a kind wins; `TOOL` may come several times):

    SAY=<rest of the line>     the final answer; without SAY, LINES or CHARS the text is echoed
    LINES=<n>                  the final answer is n numbered lines
    CHARS=<n>                  the final answer is n characters on one line
    WAIT=<seconds>             silence ahead of the first reply
    DRIP=<seconds>             the final answer streams over this time
    TOOL=<name>:<json object>  call a tool; the replies after it are the next TOOL, at last the answer
    HTTP=<code>[x<n>]          fail with this status, only the first n tries if n is given
    RETRY_AFTER=<seconds>      the retry-after header of such a failure
    SCRIPT=<json list>         the steps in full, as `Step` describes them; overrides everything else
"""

import json
import re
from typing import Any

import msgspec


class Say(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A text block."""

    text: str


class Call(msgspec.Struct, frozen=True, tag_field="type", tag="tool"):
    """A tool call block."""

    name: str
    input: dict[str, Any] = {}


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply. `http` fails instead, for the first `times` tries (0: always)."""

    blocks: list[Say | Call] = []
    wait: float = 0.0
    drip: float = 0.0
    http: int | None = None
    times: int = 0
    retry_after: float | None = None
    stop_reason: str | None = None
    """`max_tokens`, `refusal` and so on; None is what follows from the blocks."""


def numbered(lines: int) -> str:
    """The body of `LINES=n`: tests compute the same to compare with."""
    return "\n".join(f"answer line {i}" for i in range(lines))


def characters(count: int) -> str:
    """The body of `CHARS=n`: no two stretches of it are alike, so that a hole is seen."""
    return "".join(f"{i:07d}." for i in range(count // 8 + 1))[:count]


def _last(name: str, text: str, value: str = r"\S+") -> str | None:
    found = re.findall(rf"(?:^|\s){name}=({value})", text, flags=re.MULTILINE)
    return found[-1] if found else None


def _json_after(name: str, text: str) -> list[tuple[str, Any]]:
    """Each `NAME=prefix{json}` or `NAME=prefix[json]`: the prefix and the value that follows it."""
    found: list[tuple[str, Any]] = []
    for match in re.finditer(rf"(?:^|\s){name}=([^\s\[{{]*)(?=[\[{{])", text, flags=re.MULTILINE):
        value, _ = json.JSONDecoder().raw_decode(text, match.end())
        found.append((match.group(1), value))
    return found


def _answer(text: str) -> str:
    if (said := _last("SAY", text, r"[^\n]*")) is not None:
        return said
    if lines := _last("LINES", text, r"\d+"):
        return numbered(int(lines))
    if count := _last("CHARS", text, r"\d+"):
        return characters(int(count))
    return f"ECHO[{text.strip()[:200]}]"


def steps_of(text: str) -> list[Step]:
    """The steps that a user's text asks for; at least one."""
    if scripts := _json_after("SCRIPT", text):
        return msgspec.convert(scripts[-1][1], list[Step])
    wait = float(_last("WAIT", text) or 0)
    if fault := _last("HTTP", text, r"\d+(?:x\d+)?"):
        code, _, times = fault.partition("x")
        retry_after = _last("RETRY_AFTER", text)
        failing = Step(
            http=int(code),
            times=int(times or 0),
            wait=wait,
            retry_after=float(retry_after) if retry_after else None,
            blocks=[Say(_answer(text))],
        )
        return [failing]
    calls = [Call(prefix.rstrip(":"), value) for prefix, value in _json_after("TOOL", text)]
    answer = Step(blocks=[Say(_answer(text))], drip=float(_last("DRIP", text) or 0))
    steps = [*(Step(blocks=[call]) for call in calls), answer]
    return [msgspec.structs.replace(steps[0], wait=wait), *steps[1:]]
