"""Claude Code's transcript: one JSON object a line; the exact text of what was said, turn by turn.

Why it is read although the Stop hook carries the last message (measured on 2.1.332): the hook's text has lost
its leading and trailing blanks, holds only the last text block of the message, and is the *previous* turn's
message when this turn ended without any text. The file lags up to 0.12 s behind the hook.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from orchestrator.terminals.text import json_object

NOTIFICATION = "<task-notification>"
TOOL_USE_ID = re.compile(r"<tool-use-id>([^<\s]+)</tool-use-id>")
FIRST_TAIL = 1 << 20


class Block(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    id: str | None = None


class Message(msgspec.Struct, frozen=True):
    content: str | list[Block]
    id: str | None = None
    stop_reason: str | None = None


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a line that are read. `prompt_id` is the turn; the assistant's lines carry none."""

    type: str
    prompt_id: str | None = None
    message: Message | None = None
    is_meta: bool = False
    is_sidechain: bool = False
    is_api_error_message: bool = False

    @property
    def blocks(self) -> list[Block]:
        """What the main agent said here; sub-agents and the CLI's own error notes say nothing."""
        if self.type != "assistant" or self.is_sidechain or self.is_api_error_message:
            return []
        return [] if self.message is None or isinstance(self.message.content, str) else self.message.content

    @property
    def begins(self) -> str | None:
        """The turn that this text began; tool results carry the turn's id too."""
        if self.type != "user" or self.is_meta or self.message is None:
            return None
        content = self.message.content
        typed = isinstance(content, str) or all(block.type != "tool_result" for block in content)
        return self.prompt_id if typed else None


_DECODER = msgspec.json.Decoder(Entry)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn said: `final` is its last message, `parts` all texts, `before` the last one ahead of it."""

    final: str
    parts: list[str]
    before: str | None


def said_in(path: Path, turn: str) -> Said | None:
    """What the turn said so far; None if the transcript does not hold the turn."""
    entries = _since(path, turn)
    begun = [number for number, entry in enumerate(entries) if entry.begins is not None]
    start = next((number for number in begun if entries[number].begins == turn), None)
    if start is None:
        return None
    end = next((number for number in begun if number > start and entries[number].begins != turn), None)
    earlier = _texts(entries[:start])
    return Said(
        final=_final(entries[start:end]),
        parts=_texts(entries[start:end]),
        before=earlier[-1] if earlier else None,
    )


def running(path: Path) -> str | None:
    """What the newest turn has said so far; None without a transcript or a turn."""
    turns = [entry.begins for entry in _entries(_tail(path, None)) if entry.begins is not None]
    said = said_in(path, turns[-1]) if turns else None
    return None if said is None else "\n\n".join(part for part in said.parts if part.strip())


def origin(path: Path, turn: str) -> str:
    """The turn that a text of ours began: Claude Code begins turns itself when a background task has ended.

    Such a turn's prompt is a notification naming the tool call that started the task, and the turn of that
    call is where it belongs, unless it began with a notification too.
    """
    if not _notification(_since(path, turn), turn):
        return turn
    entries = list(_entries(_tail(path, None)))
    seen = {turn}
    while call := TOOL_USE_ID.search(_notification(entries, turn)):
        parent = _turn_of_call(entries, call[1])
        if parent is None or parent in seen:
            break
        seen.add(parent)
        turn = parent
    return turn


def _notification(entries: list[Entry], turn: str) -> str:
    """The notification the turn began with; empty if something else began it."""
    for entry in entries:
        if entry.begins == turn and entry.message is not None:
            content = entry.message.content
            return content if isinstance(content, str) and content.startswith(NOTIFICATION) else ""
    return ""


def _turn_of_call(entries: list[Entry], call: str) -> str | None:
    turn: str | None = None
    for entry in entries:
        turn = entry.prompt_id or turn
        if any(block.type == "tool_use" and block.id == call for block in entry.blocks):
            return turn
    return None


def _tail(path: Path, size: int | None) -> bytes:
    """The file's last `size` bytes, from the start of a line; None is all of it."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            start = 0 if size is None else max(0, end - size)
            file.seek(start)
            raw = file.read()
    except OSError:
        return b""
    return raw if start == 0 else raw[raw.find(b"\n") + 1 :]


def _entries(raw: bytes) -> Iterator[Entry]:
    """The lines that can be read; the last one may still be half written."""
    for line in raw.split(b"\n"):
        try:
            yield _entry(line)
        except ValueError:
            continue


def _entry(line: bytes) -> Entry:
    try:
        return _DECODER.decode(line)
    except ValueError:
        return msgspec.convert(json_object(line), Entry)


def _since(path: Path, turn: str) -> list[Entry]:
    """The entries from some way ahead of the turn's beginning on: of a long session only the end is read."""
    for size in (FIRST_TAIL, FIRST_TAIL * 16, None):
        raw = _tail(path, size)
        if turn.encode() in raw:
            entries = list(_entries(raw))
            if any(entry.begins == turn for entry in entries):
                return entries
    return []


def _texts(entries: list[Entry]) -> list[str]:
    return [block.text for entry in entries for block in entry.blocks if block.type == "text"]


def _final(entries: list[Entry]) -> str:
    """The last message's text: its blocks joined, and what precedes it where it was only cut by its length.

    Each block is a line of its own. Text blocks of one message are one text; a tool call begins a new one.
    """
    text: list[str] = []
    last: str | None = None
    cut = False
    for entry in entries:
        message = entry.message
        if not entry.blocks or message is None:
            continue
        if message.id != last and not cut:
            text = []
        last, cut = message.id, message.stop_reason == "max_tokens"
        for block in entry.blocks:
            if block.type == "tool_use":
                text, cut = [], False
            elif block.type == "text":
                text.append(block.text)
    return "".join(text)
