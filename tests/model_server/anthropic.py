"""The Anthropic Messages protocol: `POST /v1/messages` (plain and streamed) and `count_tokens`.

Source: the public API reference (messages, streaming, errors). Only what agent CLIs read is spoken.
"""

import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio

from tests.model_server.script import Call, Say, Step

JSON = dict[str, Any]
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
CHUNK = 512


def text_of(content: Any) -> str:
    """The text of a content field: a string, or its text blocks joined."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or [] if block.get("type") == "text")


def spoken(content: Any) -> str:
    """A user message without what Claude Code puts into it itself: what a person or we typed."""
    blocks = [content] if isinstance(content, str) else [b.get("text", "") for b in content or []]
    kept = [re.sub(r"<system-reminder>.*?</system-reminder>", "", block, flags=re.DOTALL) for block in blocks]
    kept = [block for block in kept if block.strip() and not block.startswith("[Request interrupted by user")]
    if not kept:
        return ""
    # Texts that were not answered stand in one message: the last block is the newest text.
    # It may wrap a pasted text, from four lines or some 800 characters on, in tags with a random id.
    text = re.sub(r'<pasted_content id="\w+">\n', "", kept[-1])
    return re.sub(r'\n?</pasted_content id="\w+">\n?', "", text).strip()


class Asked:
    """A request, read: the user's newest text, how many replies since, and the tool results among them."""

    def __init__(self, body: JSON) -> None:
        self.body = body
        self.user = ""
        self.replies = 0
        self.tool_results: list[JSON] = []
        for message in reversed(body.get("messages", [])):
            if message["role"] == "assistant":
                self.replies += 1
                continue
            if message["role"] != "user":
                continue
            content = message["content"]
            if text := spoken(content):
                # Results beside a text belong to the turn before: it was interrupted.
                self.user = text
                break
            results = (
                [] if isinstance(content, str) else [b for b in content if b.get("type") == "tool_result"]
            )
            self.tool_results[:0] = results

    def record(self) -> JSON:
        """What a test wants to read of this request."""
        body = self.body
        return {
            "protocol": "anthropic",
            "model": body.get("model"),
            "stream": bool(body.get("stream")),
            "system": text_of(body.get("system")),
            "tools": [tool.get("name") for tool in body.get("tools", [])],
            "tool_definitions": body.get("tools", []),
            "messages": body.get("messages", []),
            "user": self.user,
            "replies": self.replies,
            "tool_results": self.tool_results,
            "other": {k: v for k, v in body.items() if k not in {"messages", "system", "tools"}},
        }

    @property
    def aside(self) -> bool:
        """Whether this is one of the CLI's own small questions (a session's title), not the conversation."""
        return bool(self.body.get("output_config", {}).get("format")) and not self.body.get("tools")


def error_body(code: int) -> JSON:
    kind = ERROR_TYPES.get(code, "api_error")
    return {"type": "error", "error": {"type": kind, "message": f"scripted error {code}"}}


def count(body: JSON) -> JSON:
    return {"input_tokens": len(json.dumps(body)) // 4}


def _block(block: Say | Call) -> JSON:
    if isinstance(block, Say):
        return {"type": "text", "text": block.text}
    return {
        "type": "tool_use",
        "id": f"toolu_{uuid.uuid4().hex[:24]}",
        "name": block.name,
        "input": block.input,
    }


def message_of(step: Step, body: JSON) -> JSON:
    """The whole reply as one message."""
    called = any(isinstance(block, Call) for block in step.blocks)
    written = sum(len(block.text) for block in step.blocks if isinstance(block, Say)) // 4 + 1
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [_block(block) for block in step.blocks],
        "stop_reason": step.stop_reason or ("tool_use" if called else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": 100,
            "output_tokens": written,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _event(name: str, **fields: Any) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n"


def _deltas(block: JSON) -> Iterator[JSON]:
    if block["type"] == "text":
        for start in range(0, len(block["text"]), CHUNK):
            yield {"type": "text_delta", "text": block["text"][start : start + CHUNK]}
    else:
        yield {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}


async def stream(message: JSON, step: Step) -> AsyncIterator[str]:
    """The reply as server-sent events; `wait` is bridged with pings, `drip` spread over the text."""
    usage = {**message["usage"], "output_tokens": 1}
    yield _event("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
    waited = 0.0
    while waited < step.wait:
        yield _event("ping")
        pause = min(0.5, step.wait - waited)
        await anyio.sleep(pause)
        waited += pause
    parts = sum(1 for block in message["content"] for _ in _deltas(block)) or 1
    for index, block in enumerate(message["content"]):
        empty = {"type": "text", "text": ""} if block["type"] == "text" else {**block, "input": {}}
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in _deltas(block):
            yield _event("content_block_delta", index=index, delta=delta)
            if step.drip:
                await anyio.sleep(step.drip / parts)
        yield _event("content_block_stop", index=index)
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": message["usage"]["output_tokens"]})
    yield _event("message_stop")
