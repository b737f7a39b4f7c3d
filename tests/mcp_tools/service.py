"""A small service in memory that speaks the HTTP API, for the tests of the tools.

What an agent does is said by its profile: `echo` answers with its task at once, `hold` works until the test
finishes it, `report` completes by report only, `dies` fails, `slow` answers when its gate is opened. All
else is the real contract: tokens, keys, long polls, caps, pages, problems.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

import anyio
import msgspec
import uvicorn

from orchestrator import wire
from orchestrator.domain import errors

TOKENS = {"agent-token": "agent", "terminal-token": "terminal"}
STATUS = {"unauthenticated": 401, "thread_not_found": 404, "unknown_profile": 404, "invalid_params": 400}


class Job(msgspec.Struct, kw_only=True):
    result: wire.HandoffResult
    request: wire.HandoffRequest
    output: str = ""
    collected: bool = False


class Service:
    """The ASGI app; `jobs`, `starts` and `sessions` are what a test may look at."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.starts: list[tuple[str | None, wire.HandoffRequest]] = []
        self.sessions: list[str | None] = []
        self.reports: list[tuple[str, wire.CompleteRequest]] = []
        self.stopped: list[str] = []
        self.open_requests = 0
        self._keys: dict[str, tuple[str, str]] = {}
        self._changed = anyio.Event()
        self._refusals = 0

    # what a test does to it

    def finish(self, handoff_id: str, output: str = "done", outcome: str = "succeeded", **more: Any) -> None:
        job = self.jobs[handoff_id]
        job.output = output
        job.result = msgspec.structs.replace(
            job.result, status="completed", outcome=outcome, phase=None, **more
        )
        self.change()

    def tell(self, handoff_id: str, **facts: Any) -> None:
        job = self.jobs[handoff_id]
        job.output = facts.pop("output", job.output)
        job.result = msgspec.structs.replace(job.result, **facts)
        self.change()

    def refuse(self, times: int) -> None:
        """The next requests find a service that is just stopping."""
        self._refusals = times

    def change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, holds: Any) -> None:
        """Returns once `holds()` is true; a failure after ten seconds."""
        with anyio.fail_after(10):
            while not holds():
                await self._changed.wait()

    # HTTP

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        self.open_requests += 1
        self.change()
        try:
            status, body = await self._answer(scope, await _body(receive))
        except errors.ChangeoverError as error:
            status, body = STATUS.get(error.code, 409), _problem(error)
        finally:
            self.open_requests -= 1
            self.change()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(body)})

    async def _answer(self, scope: Any, body: bytes) -> tuple[int, Any]:
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        scope_of_token = TOKENS.get(headers.get("authorization", "").removeprefix("Bearer "))
        if scope_of_token is None:
            raise errors.Unauthenticated("this needs a valid token")
        if scope["path"] == "/v1/caller":
            handoff_id = next(iter(self.jobs), None) if scope_of_token == "terminal" else None
            return 200, wire.CallerView(scope=scope_of_token, principal="x:y", handoff_id=handoff_id)
        self.sessions.append(headers.get("changeover-session"))
        if self._refusals:
            self._refusals -= 1
            raise errors.Interrupted("the service is stopping")
        parts = [unquote(part) for part in scope["raw_path"].decode().split("?")[0].strip("/").split("/")]
        match scope["method"], parts:
            case "POST", ["v1", "handoffs"]:
                return 200, self._start(_read(body, wire.HandoffRequest), headers.get("idempotency-key"))
            case "POST", ["v1", "handoffs", "wait"]:
                return 200, await self._wait(_read(body, wire.WaitRequest))
            case "POST", ["v1", "handoffs", handoff_id, "stop"]:
                self.stopped.append(handoff_id)
                self.finish(self._job(handoff_id).result.handoff_id, "", "interrupted")
                return 200, self._shown(handoff_id)
            case "POST", ["v1", "handoffs", handoff_id, "complete"]:
                report = _read(body, wire.CompleteRequest)
                self.reports.append((handoff_id, report))
                self.finish(self._job(handoff_id).result.handoff_id, report.result, report.outcome)
                return 200, self._shown(handoff_id)
            case "GET", ["v1", "handoffs", handoff_id, "output"]:
                offset = int(parse_qs(scope["query_string"].decode())["offset"][0])
                return 200, self._page(handoff_id, offset)
            case "GET", ["v1", "profiles"]:
                items = [
                    wire.ProfileView(name="echo", source="built-in", path="echo.md", description="Repeats")
                ]
                return 200, wire.ProfileList(items=items)
        raise errors.NotFound(f"no such address: {parts}")

    def _start(self, request: wire.HandoffRequest, key: str | None) -> wire.HandoffResult:
        payload = hashlib.sha256(msgspec.json.encode(request)).hexdigest()
        if key in self._keys:
            known, handoff_id = self._keys[key]
            if known != payload:
                raise errors.DuplicateIdempotencyKey("the key was used with another payload")
            return msgspec.structs.replace(self._shown(handoff_id), replayed=True)
        if request.agent_profile not in {"echo", "hold", "report", "dies"}:
            raise errors.UnknownProfile(f"no profile {request.agent_profile!r}; known are echo, hold, dies")
        self.starts.append((key, request))
        handoff_id = f"th_{len(self.jobs) + 1}"
        result = wire.HandoffResult(
            handoff_id=handoff_id,
            status="accepted",
            agent_profile=request.agent_profile,
            duration_s=0.5,
            terminal_id="te_1",
            phase="working",
        )
        self.jobs[handoff_id] = Job(result=result, request=request)
        if key is not None:
            self._keys[key] = payload, handoff_id
        if request.agent_profile == "echo":
            self.finish(handoff_id, request.message)
        if request.agent_profile == "dies":
            death = wire.HandoffError(
                code="terminal_dead", detail="the agent ended", exit_status=3, last_lines="Segmentation fault"
            )
            self.finish(handoff_id, "half an ans", "failed", error=death, partial=True)
        self.change()
        return self._shown(handoff_id)

    async def _wait(self, request: wire.WaitRequest) -> wire.WaitResponse:
        ids = request.handoff_ids or [i for i, job in self.jobs.items() if not job.collected]
        found, enough = [self._job(handoff_id) for handoff_id in ids], all if request.mode == "all" else any

        def done() -> bool:
            return enough(job.result.status == "completed" for job in found) or not found

        with anyio.move_on_after(request.timeout):
            while not done():
                await self._changed.wait()
        ended = done()
        for job in found:
            job.collected = job.collected or job.result.status == "completed"
        return wire.WaitResponse(
            wait=wire.WaitState.DONE if ended else wire.WaitState.TIMED_OUT,
            handoffs=[self._shown(handoff_id) for handoff_id in ids],
        )

    def _job(self, handoff_id: str) -> Job:
        if handoff_id not in self.jobs:
            raise errors.ThreadNotFound(f"no handoff {handoff_id!r}")
        return self.jobs[handoff_id]

    def _shown(self, handoff_id: str) -> wire.HandoffResult:
        job = self._job(handoff_id)
        size, cap = len(job.output.encode()), wire.OUTPUT_CAP_BYTES
        output = (
            job.output if size <= cap else job.output[: cap // 2] + "\n[…]\n" + job.output[-cap // 2 + 64 :]
        )
        return msgspec.structs.replace(
            job.result, output=output, output_chars=len(job.output), truncated=size > cap
        )

    def _page(self, handoff_id: str, offset: int) -> wire.OutputPage:
        job, end = self._job(handoff_id), offset + wire.OUTPUT_PAGE_CHARS
        return wire.OutputPage(
            handoff_id=handoff_id,
            offset=offset,
            output=job.output[offset:end],
            total_chars=len(job.output),
            next_offset=end if end < len(job.output) else None,
            partial=job.result.status != "completed",
        )


async def _body(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def _read(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise errors.InvalidParams(str(error)) from error


def _problem(error: errors.ChangeoverError) -> wire.Problem:
    return wire.Problem(
        type="about:blank",
        title=error.code,
        status=STATUS.get(error.code, 409),
        code=error.code,
        detail=error.detail,
        request_id="r1",
        facts=error.facts,
    )


@asynccontextmanager
async def listening(app: Any, port: int = 0) -> AsyncGenerator[str]:
    """Serves `app` on a free port of this machine and gives its address; ends it at once afterwards."""
    config = uvicorn.Config(
        app, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    server = uvicorn.Server(config)
    with config.bind_socket() as sock:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server._serve, [sock])
            try:
                yield f"http://127.0.0.1:{sock.getsockname()[1]}"
            finally:
                server.should_exit = True
