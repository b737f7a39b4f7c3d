"""What programs write that no store takes: it costs a character, never an event or an answer."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.domain.agent import AgentFact, FactKind, Source
from orchestrator.terminals.driver import SpoolEntry
from orchestrator.terminals.drivers.claude_code_transcript import said_in
from orchestrator.terminals.text import json_object, sound, sound_fact


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("", ""),
        ("plain ✓ 😀", "plain ✓ 😀"),
        ("a\0b", "a�b"),
        ("half \ud83d", "half �"),
        ("\udc00\ud800 both", "�� both"),
    ],
)
@pytest.mark.promise("F4")
def test_what_cannot_be_kept_is_replaced_character_by_character(given: str, kept: str) -> None:
    assert sound(given) == kept


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        (rb'{"a": "half \ud83d", "b": [1, "\u0000"]}', {"a": "half �", "b": [1, "\0"]}),
        (rb'{"a": "\ud83d\ude00", "b": {"\udc00": null}}', {"a": "😀", "b": {"�": None}}),
        (b'{"a": "\xed\xa0\x80"}', {"a": "���"}),
    ],
)
@pytest.mark.promise("F4")
def test_json_with_half_a_pair_is_read(raw: bytes, kept: object) -> None:
    assert json_object(raw) == kept


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'"text"', b"null"])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_object(raw)


def test_every_text_of_a_fact_is_made_sound() -> None:
    fact = AgentFact(
        terminal_id="t", kind=FactKind.TURN_ENDED, at=datetime.now(UTC), source=Source.HOOK, answer="a\0"
    )
    assert sound_fact(fact).answer == "a�"


@pytest.mark.promise("spool")
def test_an_event_with_half_an_emoji_is_an_event_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "1700000000000000000-1.stopped"
    path.write_bytes(rb'{"turn": "t1", "answer": "cut off here \ud83d"}')
    assert SpoolEntry.read(path).payload == {"turn": "t1", "answer": "cut off here �"}


def test_a_line_of_a_transcript_with_half_an_emoji_is_read(tmp_path: Path) -> None:
    said = {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "cut \ud83d"}]}}
    asked = {"type": "user", "promptId": "p", "message": {"content": "x"}}
    path = tmp_path / "transcript.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (asked, said)))
    found = said_in(path, "p")
    assert found is not None
    assert found.final == "cut �"
