"""@call: the scripted agent as a client of the service's tools, against real HTTP servers."""

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.terminals.drivers.scripted import Scripted
from tests.terminals.pty_program import PtyProgram, prepared

Json = dict[str, Any]


class ToolServer(ThreadingHTTPServer):
    """A tiny MCP server. `speaks` is "stateless" or "sessions", `streams` makes it answer by event stream.

    `requests` are the bodies that came, with their headers. The tools: `echo` (its `text`, and its arguments
    as structured content), `slow` (waits for `release`), `broken` (an error result), `unknown` (a JSON-RPC
    error).
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.speaks = "stateless"
        self.streams = False
        self.requests: list[tuple[Json, dict[str, str]]] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: ToolServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((body, headers))
        stateless = "_meta" in body.get("params", {})
        if self.path != "/mcp":
            self.reply(404, {})
        elif headers.get("authorization") != "Bearer secret":
            self.reply(401, {"error": {"code": -32001, "message": "who are you?"}})
        elif "id" not in body:
            self.reply(202, None)
        elif body["method"] == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x"}}
            self.reply(200, {"id": body["id"], "result": result}, {"Mcp-Session-Id": "s1"})
        elif self.server.speaks == "sessions" and (stateless or headers.get("mcp-session-id") != "s1"):
            self.reply(400, {"error": {"code": -32600, "message": "Bad Request: Missing session ID"}})
        else:
            self.reply(200, {"id": body["id"]} | self.outcome(body["params"]))

    def outcome(self, params: Json) -> Json:
        tool, arguments = params["name"], params["arguments"]
        if tool == "unknown":
            return {"error": {"code": -32602, "message": "no such tool"}}
        if tool == "slow":
            self.server.release.wait(20)
        if tool == "broken":
            return {"result": {"content": [{"type": "text", "text": "it broke"}], "isError": True}}
        text = [{"type": "text", "text": arguments.get("text", "")}]
        return {"result": {"content": text, "structuredContent": arguments}}

    def reply(self, status: int, message: Json | None, headers: dict[str, str] | None = None) -> None:
        body = b"" if message is None else json.dumps({"jsonrpc": "2.0"} | message).encode()
        kind = "application/json"
        if self.server.streams and status == 200:
            notice = (
                b'event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
            )
            body = b": ping\r\n\r\n" + notice + b"\r\n\r\nevent: message\r\ndata: " + body + b"\r\n\r\n"
            kind = "text/event-stream"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def tools() -> Iterator[ToolServer]:
    with ToolServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], PtyProgram]]:
    with ExitStack() as running:

        def run(url: str) -> PtyProgram:
            argv = prepared(Scripted(), tmp_path).argv
            env = {"CHANGEOVER_URL": url, "CHANGEOVER_TOKEN": "secret"}
            program = running.enter_context(PtyProgram(argv, tmp_path, env=env))
            program.event("ready")
            return program

        yield run


Start = Callable[[str], PtyProgram]


def answer(program: PtyProgram, task: str) -> str:
    program.submit(task)
    return program.event("stopped").payload["answer"]


@pytest.mark.parametrize("streams", [False, True], ids=["json", "event stream"])
@pytest.mark.parametrize("speaks", ["stateless", "sessions"])
def test_a_call_gives_its_text_whatever_the_server_speaks(
    start: Start, tools: ToolServer, speaks: str, streams: bool
) -> None:
    tools.speaks, tools.streams = speaks, streams
    task = '@call echo {"text": "one\\ntwo 漢"}\n@call echo {"text": "three"}'
    assert answer(start(tools.url), task) == "one\ntwo 漢\nthree"
    methods = [body["method"] for body, _ in tools.requests]
    if speaks == "stateless":
        assert methods == ["tools/call"] * 2
    else:
        handshake = ["initialize", "notifications/initialized"]
        assert methods == ["tools/call", *handshake, "tools/call", "tools/call"]
        assert tools.requests[-1][1]["mcp-protocol-version"] == "2025-06-18"


def test_a_stateless_call_carries_its_envelope_in_body_and_headers(start: Start, tools: ToolServer) -> None:
    answer(start(tools.url), '@call echo {"text": "x"}')
    body, headers = tools.requests[0]
    assert body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "echo")


def test_later_lines_use_what_earlier_calls_gave(start: Start, tools: ToolServer) -> None:
    task = r"""@call echo {"text": "say \"hi\"\n", "handoff_id": "h_7", "more": {"n": [1, 2]}}
@say id $1.handoff_id, n $1.more.n, none [$1.nothing], other $2 $x
@call echo {"text": "$1 of $1.handoff_id."}
@say $2"""
    expected = 'say "hi"\n\nid h_7, n [1, 2], none [], other $2 $x\nsay "hi"\n of h_7.\nsay "hi"\n of h_7.'
    assert answer(start(tools.url), task) == expected


@pytest.mark.parametrize(
    ("line", "error"),
    [("@call broken {}", "it broke"), ("@call unknown", "no such tool"), ("@call echo {", "JSONDecodeError")],
)
def test_the_error_of_a_failed_call_becomes_part_of_the_answer(
    start: Start, tools: ToolServer, line: str, error: str
) -> None:
    text = answer(start(tools.url), f"@say before\n{line}\n@say after")
    assert text.startswith("before\n")
    assert error in text
    assert text.endswith("\nafter")


def test_a_service_that_is_gone_is_an_answer_too(start: Start) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert "refused" in answer(start(url), "@call echo")


def test_while_a_call_lasts_the_program_goes_on_taking_text(start: Start, tools: ToolServer) -> None:
    program = start(tools.url)
    program.submit('@call slow {"text": "at last"}')
    program.until(lambda: tools.requests)
    program.submit("the next turn")
    program.shown("✻ Orbiting… (1s)")
    tools.release.set()
    program.event("stopped", 2)
    answers = [entry.payload["answer"] for entry in program.events() if entry.event == "stopped"]
    assert answers == ["at last", "the next turn"]


SDK_SERVER = """
import socket, sys
from mcp.server import MCPServer
server = MCPServer("x")

@server.tool()
async def shout(text: str) -> dict[str, str]:
    return {"loud": text.upper()}

server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""


def test_the_sdk_s_own_server_takes_the_stateless_call(start: Start, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with PtyProgram([sys.executable, "-c", SDK_SERVER, str(port)], tmp_path / "server") as server:
        server.shown("Uvicorn running")
        task = '@call shout {"text": "hello"}\n@say $1.loud'
        assert answer(start(f"http://127.0.0.1:{port}"), task).endswith("\nHELLO")
        server.until(lambda: b"POST /mcp" in server.output)
        assert server.output.count(b"POST /mcp") == 1
