"""The server: routes of the protocols, the queue of scripted turns, and the record of what was asked.

The record is one JSON object a line. `POST /queue` takes a list of `{"when": substring, "steps": [Step]}`:
the first turn whose user text holds the substring takes these steps instead of its own directives.
"""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.model_server import anthropic
from tests.model_server.script import Say, Step, steps_of


class Queued(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One scripted turn for the text that holds `when`. `user` is the text that took it."""

    when: str
    steps: list[Step]
    user: str | None = None


class ModelServer:
    """The state of one server: queue, record, and how often each text was tried."""

    def __init__(self, record: Path | None) -> None:
        self._record = record
        self._queue: list[Queued] = []
        self._tries: Counter[tuple[str, int]] = Counter()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/messages", self.messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self.count_tokens, methods=["POST"]),
                Route("/queue", self.enqueue, methods=["POST"]),
                Route("/{path:path}", self.unknown, methods=["GET", "HEAD", "POST", "PUT", "DELETE"]),
            ]
        )

    def note(self, request: Request, fields: dict[str, Any]) -> None:
        if self._record is None:
            return
        agent = request.headers.get("user-agent")
        line = {"at": time.time(), "path": request.url.path, "agent": agent, **fields}
        with self._record.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    def _step(self, user: str, replies: int) -> Step:
        """The step this request gets; past the end of a script the last one again."""
        for queued in self._queue:
            if queued.user == user or (queued.user is None and queued.when in user):
                queued.user = user
                steps = queued.steps
                break
        else:
            steps = steps_of(user)
        step = steps[min(replies, len(steps) - 1)]
        if step.http is None:
            return step
        self._tries[user, replies] += 1
        spent = step.times and self._tries[user, replies] > step.times
        return msgspec.structs.replace(step, http=None) if spent else step

    async def messages(self, request: Request) -> Response:
        body = await request.json()
        asked = anthropic.Asked(body)
        aside = asked.aside
        step = Step(blocks=[Say('{"title": "Scripted"}')]) if aside else self._step(asked.user, asked.replies)
        self.note(request, {**asked.record(), "aside": aside, "status": step.http or 200})
        if step.http is not None:
            await anyio.sleep(step.wait)
            headers = {} if step.retry_after is None else {"retry-after": f"{step.retry_after:g}"}
            return JSONResponse(anthropic.error_body(step.http), status_code=step.http, headers=headers)
        message = anthropic.message_of(step, body)
        if not body.get("stream"):
            await anyio.sleep(step.wait)
            return JSONResponse(message)
        headers = {"cache-control": "no-cache"}
        return StreamingResponse(
            anthropic.stream(message, step), media_type="text/event-stream", headers=headers
        )

    async def count_tokens(self, request: Request) -> Response:
        body = await request.json()
        self.note(request, {"protocol": "anthropic", "model": body.get("model")})
        return JSONResponse(anthropic.count(body))

    async def enqueue(self, request: Request) -> Response:
        self._queue += msgspec.json.decode(await request.body(), type=list[Queued])
        return JSONResponse({"queued": len(self._queue)})

    async def unknown(self, request: Request) -> Response:
        raw = (await request.body())[:2000].decode("utf-8", "replace")
        self.note(request, {"protocol": None, "method": request.method, "body": raw})
        error = {"type": "not_found_error", "message": "no such route"}
        return JSONResponse({"type": "error", "error": error}, status_code=404)
