"""Drives an MCP server by raw JSON-RPC: may leave out tokens, cancel, drop, delay, and send nonsense.

It keeps every line and every message it got, in order, so that a test can judge the whole conversation.
"""

import json
import math
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

PROGRAM = Path(__file__).with_name("program.py")
MODERN = "2026-07-28"
LEGACY = "2025-06-18"
LONG = 30.0
INFO = {"name": "driver", "version": "1"}

Message = dict[str, Any]


def envelope(era: str, meta: Message | None = None) -> Message:
    """The `_meta` of one request in `era`."""
    if era == LEGACY:
        return dict(meta or {})
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": INFO,
        "io.modelcontextprotocol/clientCapabilities": {},
        **(meta or {}),
    }


def call(tool: str, arguments: Message, era: str = LEGACY, meta: Message | None = None) -> Message:
    """The params of a `tools/call`."""
    params: Message = {"name": tool, "arguments": arguments}
    if full := envelope(era, meta):
        params["_meta"] = full
    return params


HELLO: Message = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}


class Received:
    """What has come from a server; `wait` for more."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._more = anyio.Event()
        self.ended = False

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self._more.set()
        self._more = anyio.Event()

    def end(self) -> None:
        self.ended = True
        self._more.set()

    def responses(self, request_id: Any) -> list[Message]:
        return [m for m in self.messages if "method" not in m and m.get("id") == request_id]

    def progress(self, token: Any) -> list[Message]:
        notes = [m["params"] for m in self.messages if m.get("method") == "notifications/progress"]
        return [params for params in notes if params["progressToken"] == token]

    async def until(self, holds: Any, seconds: float = LONG) -> None:
        with anyio.fail_after(seconds):
            while not holds():
                assert not self.ended, "the server's stream ended"
                await self._more.wait()

    async def response(self, request_id: Any, seconds: float = LONG) -> Message:
        await self.until(lambda: self.responses(request_id), seconds)
        return self.responses(request_id)[0]


class Stdio(Received):
    """A server on stdin and stdout. `lines` are the raw lines of stdout, `log` all of stderr."""

    def __init__(self, process: Any, era: str) -> None:
        super().__init__()
        self.process = process
        self.era = era
        self.lines: list[bytes] = []
        self.log = b""
        self._next = 0

    async def send(self, message: Message | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.process.stdin.send(line + b"\n")

    async def start(self, method: str, params: Message, request_id: Any = None) -> Any:
        """Sends a request and returns its id."""
        self._next += 1
        request_id = self._next if request_id is None else request_id
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id

    async def ask(self, method: str, params: Message | None = None) -> Message:
        params = params or ({"_meta": envelope(self.era)} if self.era == MODERN else {})
        return await self.response(await self.start(method, params))

    async def tool(self, name: str, arguments: Message, meta: Message | None = None) -> Message:
        answer = await self.ask("tools/call", call(name, arguments, self.era, meta))
        assert "result" in answer, answer
        return answer["result"]

    async def cancel(self, request_id: Any) -> None:
        params = {"requestId": request_id, "reason": "the user changed their mind"}
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def read_stdout(self) -> None:
        kept = b""
        async for chunk in self.process.stdout:
            *lines, kept = (kept + chunk).split(b"\n")
            for line in lines:
                self.lines.append(line)
                self.add(json.loads(line))
        if kept:
            self.lines.append(kept)
        self.end()

    async def read_stderr(self) -> None:
        async for chunk in self.process.stderr:
            self.log += chunk


@asynccontextmanager
async def stdio(
    options: Message | None = None,
    *,
    era: str = LEGACY,
    environment: dict[str, str] | None = None,
    command: list[str] | None = None,
    cwd: Path | None = None,
) -> AsyncGenerator[Stdio]:
    """The stdio server as a process of its own, greeted in `era`; closed at the end, and then all is read.

    The test's own program with `options`, unless another `command` is given.
    """
    command = command or [sys.executable, str(PROGRAM), json.dumps(options or {})]
    async with (
        await anyio.open_process(command, env=environment, cwd=cwd) as process,
        anyio.create_task_group() as tasks,
    ):
        driver = Stdio(process, era)
        tasks.start_soon(driver.read_stdout)
        tasks.start_soon(driver.read_stderr)
        if era == LEGACY:
            await driver.ask("initialize", HELLO)
            await driver.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        try:
            yield driver
        finally:
            with anyio.CancelScope(shield=True):
                await process.stdin.aclose()
                with anyio.move_on_after(5):
                    await process.wait()
                if process.returncode is None:
                    process.kill()


class Http:
    """A client of streamable HTTP, request by request. `session` is the MCP session id in the older era."""

    def __init__(self, url: str, era: str, token: str | None = "agent-token") -> None:
        self.url = f"{url}/mcp"
        self.era = era
        self.token = token
        self.session: str | None = None
        self.headers: dict[str, str] = {}
        self._next = 0
        self._http = httpx2.AsyncClient(timeout=LONG, trust_env=False)

    async def __aenter__(self) -> "Http":
        await self._http.__aenter__()
        if self.era == LEGACY:
            await self.greet()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._http.__aexit__(*error)

    async def greet(self) -> Message:
        self.session = None
        answer = await self.ask("initialize", HELLO)
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        if self.session:
            headers["mcp-session-id"] = self.session
        if self.era == MODERN:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            if message["method"] == "tools/call":
                headers["mcp-name"] = message["params"]["name"]
        elif message.get("method") != "initialize":
            headers["mcp-protocol-version"] = LEGACY
        return headers | self.headers

    async def post(self, message: Message) -> httpx2.Response:
        content = json.dumps(message).encode()
        return await self._http.post(self.url, content=content, headers=self._headers(message))

    @asynccontextmanager
    async def stream(self, method: str, params: Message, request_id: Any = None) -> AsyncGenerator["Stream"]:
        """One request and its open response; leaving early drops the connection."""
        self._next += 1
        request_id = self._next if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        async with self._http.stream(
            "POST", self.url, json=message, headers=self._headers(message)
        ) as response:
            self.session = response.headers.get("mcp-session-id", self.session)
            yield Stream(response, request_id)

    async def ask(self, method: str, params: Message | None = None) -> Message:
        params = params or ({"_meta": envelope(self.era)} if self.era == MODERN else {})
        async with self.stream(method, params) as stream:
            await stream.read()
            return await stream.response(stream.request_id)

    async def tool(self, name: str, arguments: Message, meta: Message | None = None) -> Message:
        answer = await self.ask("tools/call", call(name, arguments, self.era, meta))
        assert "result" in answer, answer
        return answer["result"]


class Stream(Received):
    """The response to one POST, as JSON or as events. `silences` are the gaps between chunks, in seconds."""

    def __init__(self, response: httpx2.Response, request_id: Any) -> None:
        super().__init__()
        self.http = response
        self.request_id = request_id
        self.comments = 0
        self.longest_silence = 0.0

    async def read(self) -> None:
        """Reads to the end."""
        kept, last = "", anyio.current_time()
        events = self.http.headers.get("content-type", "").startswith("text/event-stream")
        async for chunk in self.http.aiter_text():
            now = anyio.current_time()
            self.longest_silence, last = max(self.longest_silence, now - last), now
            *lines, kept = (kept + chunk).split("\n")
            for line in lines if events else []:
                self._line(line.rstrip("\r"))
        if not events and kept:
            self.add(json.loads(kept))

    def _line(self, line: str) -> None:
        if line.startswith("data:") and len(line) > len("data: "):
            self.add(json.loads(line.removeprefix("data:")))
        self.comments += line.startswith(":")


def texts(result: Message) -> list[str]:
    assert all(block["type"] == "text" for block in result["content"])
    return [block["text"] for block in result["content"]]


def facts(result: Message) -> Message:
    """The JSON object at the end of every answer."""
    return json.loads(texts(result)[-1])


def long_answer(size: int, line: int) -> str:
    """`size` characters in lines of `line`, no two lines alike at one place."""
    count = -(-size // line)
    return "".join(
        f"{n} ".ljust(min(line, size), "abcdefghij"[n % 10])[: line - 1] + "\n" for n in range(count)
    )[:size]


def strictly_rising(values: list[float]) -> bool:
    return all(a < b for a, b in zip([-math.inf, *values], values, strict=False))
