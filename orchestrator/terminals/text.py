"""What programs write, made into text that can be kept: U+0000 and halves of surrogate pairs become U+FFFD.

Agents print what they like (a file's bytes, half an emoji cut off by a limit). No store takes such text, and
it must cost a character, never the answer.
"""

import json
import re
from typing import Any

import msgspec

from orchestrator.domain.agent import AgentFact

_HALVES = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def sound(text: str) -> str:
    text = text.replace("\0", _REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub(_REPLACEMENT, text)
    return text


def sound_fact(fact: AgentFact) -> AgentFact:
    """The fact with sound texts."""
    fields = ((name, getattr(fact, name)) for name in fact.__struct_fields__)
    texts = ((name, value, sound(value)) for name, value in fields if isinstance(value, str))
    changed = {name: good for name, value, good in texts if good is not value and good != value}
    return msgspec.structs.replace(fact, **changed) if changed else fact


def json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that a program wrote, U+FFFD for halves of pairs. Raises `ValueError` for all else."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except ValueError:
        found = json.loads(raw.decode("utf-8", "replace"))  # a half of a pair passes here, and not there
    whole = _HALVES.sub(_REPLACEMENT, json.dumps(found, ensure_ascii=False))
    return msgspec.json.decode(whole, type=dict[str, Any])
