"""The program of the `scripted` driver: an agent CLI that does what its task says, without model or account.

It behaves as real full-screen agent CLIs do (raw terminal, composer, bracketed paste, spinner, permission
dialogs, hooks), so that everything built for them can be tried against it, their faults included. It runs
as `python -I -S scripted_agent.py [switches]`, imports nothing of the project and, before its prompt stands,
only what costs no time: `json`, `re`, `http` and `threading` are imported where a task first needs them.

**Tasks.** A first line that begins with `[handoff ` is a header and is dropped. Of the rest, these lines are
directives; if there are any, all other lines are prose, and the answer is the outputs of @say, @lines, @file
and @call, joined by newlines, byte for byte (the empty string if there are none). Without a directive the
answer is the task itself.

    @say TEXT           adds TEXT                      @think TEXT      shows TEXT on the screen only
    @lines N            adds `line 1` to `line N`      @wait SECONDS    works that long
    @file PATH          adds the file's content        @quiet SECONDS   works without touching the screen
    @ask QUESTION       asks permission: Enter or 1 is yes, 2 or Esc is no; then goes on
    @call TOOL JSON     calls the service's MCP tool and adds its text, or its error's text
    @fail TEXT          ends the turn as failed        @exit CODE       ends the program
    @kill SIGNAL        sends itself SIGNAL (KILL, STOP, TERM or a number)

In the arguments after an @call, `$1` is the first call's text, `$1.name` a field of its structured content.
In every argument `$HANDOFF` is the id in the latest header, once there was one.

**Events**, written to `$CHANGEOVER_SPOOL` as the hook program writes them, the terminal's id then going to
the FIFO `$CHANGEOVER_POKE`: `ready {}`, `submitted {turn, text}`, `asking {turn, question, question_id}`,
`answered {turn, question_id, answer}` (yes or no), `stopped {turn, answer}`, `failed {turn, error, answer}`.
What is submitted while it works waits and becomes a turn of its own afterwards, each with its own events.

**Switches** make it as awkward as the real ones; `SWITCHES` and `OPTIONS` below list them.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
import termios
import time

TYPE_CHECKING = False  # `typing` itself would cost a third of the start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

PROMPT = "❯ "
ANSWER = "⏺ "
SPINNER = "✻ Orbiting…"
CHOICES = "Allow? 1) Yes 2) No"

SHOWN_LINES = 400  # of one answer; the whole answer goes through the spool
SHOWN_LINE = 2000
SHOWN_DRAFT = 4000
LITERAL_PASTE = 800  # a longer paste, or one of more than three lines, shows as a marker
ESCAPE_WAIT = 0.03  # an Esc key is an ESC byte that nothing follows for this long
REPORT_WAIT = 0.3  # for a terminal that does not answer where its cursor is

SWITCHES = {
    "--never-ready": "starts, and never gets to its prompt",
    "--stand-still": "reads nothing from its prompt on, until it gets SIGUSR1",
    "--no-bracketed-paste": "does not announce bracketed paste",
    "--no-hooks": "writes no events",
    "--version": "prints its version and ends",
}
OPTIONS = {
    "--log": "FILE: appends each submitted turn as a JSON line; an empty submit is a line with no turn",
    "--partial": "FILE: holds what the running turn has answered so far, while it waits",
    "--answer": "TEXT: the answer in place of the echo; given again, the answers of the following turns",
    "--ignore-enter-ms": "N: swallows an Enter that comes within N ms of the end of a paste",
    "--react-late-ms": "N: does anything about its input only N ms after it came",
    "--banner": "TEXT: shown before the prompt; swallows what is typed, ends with Enter",
    "--banner-s": "S: ends the banner after S seconds as well",
    "--start-dialog": "TEXT: asks this before the prompt; a no ends the program with status 1",
    "--history": "TEXT: shows TEXT behind an answer marker at the start",
    "--exit-at-start": "CODE: prints the banner's text and ends at once",
    "--die-on-input": "CODE: ends at the first byte typed",
    "--spinner-every": "S: seconds between two repaints of the spinner",
}


class Options:
    """The command line. Unknown switches end the program with status 2."""

    def __init__(self, arguments: list[str]) -> None:
        self.given: dict[str, list[str]] = {}
        words = iter(arguments)
        for word in words:
            name, equals, value = word.partition("=")
            if name in SWITCHES and not equals:
                self.given[name] = [""]
            elif name in OPTIONS and (equals or (value := next(words, None)) is not None):
                self.given.setdefault(name, []).append(value)
            else:
                sys.stderr.write(f"scripted agent: cannot use {word!r}; there are:\n")
                for known, meaning in (SWITCHES | OPTIONS).items():
                    sys.stderr.write(f"  {known}  {meaning}\n")
                raise SystemExit(2)

    def has(self, name: str) -> bool:
        return name in self.given

    def text(self, name: str) -> str | None:
        return self.given[name][-1] if name in self.given else None

    def number(self, name: str, default: float = 0.0) -> float:
        try:
            return float(self.text(name) or default)
        except ValueError:
            raise SystemExit(f"scripted agent: {name} needs a number") from None


# What it leaves for others: events, the log, the partial answer


def quoted(text: str | None) -> str:
    """JSON of a string or of null. Every character that must be escaped is replaced by a search in C."""
    if text is None:
        return "null"
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    for code in range(32):
        text = text.replace(chr(code), f"\\u{code:04x}")
    return f'"{text}"'


def json_object(**fields: str | None) -> str:
    return "{" + ", ".join(f'"{name}": {quoted(text)}' for name, text in fields.items()) + "}"


class Journal:
    """Events in the spool, turns in the log, the running turn's answer so far. Failures here end nothing."""

    def __init__(self, options: Options) -> None:
        self.spool = "" if options.has("--no-hooks") else os.environ.get("CHANGEOVER_SPOOL", "")
        self.poke = os.environ.get("CHANGEOVER_POKE", "")
        self.terminal = os.environ.get("CHANGEOVER_TERMINAL", "")
        self.log = options.text("--log")
        self.partial_file = options.text("--partial")
        self.partial = ""
        self.stamp = 0

    def event(self, event: str, **fields: str | None) -> None:
        """Renames the event into the spool, so that nobody sees half of it, then pokes whoever reads."""
        if not self.spool:
            return
        self.stamp = max(time.time_ns(), self.stamp + 1)
        part = f"{self.spool}/.{os.getpid()}.part"
        try:
            write_file(part, json_object(**fields), os.O_TRUNC)
            os.rename(part, f"{self.spool}/{self.stamp}-{os.getpid()}.{event}")
        except OSError:
            return
        self.wake()

    def wake(self) -> None:
        """Opens the FIFO for both directions: without a reader nothing blocks, and nothing is kept."""
        try:
            fifo = os.open(self.poke, os.O_RDWR | os.O_NONBLOCK)
        except OSError:
            return
        try:
            if os.fstat(fifo).st_mode & 0o170000 == 0o010000:
                os.write(fifo, f"{self.terminal}\n".encode())
        except OSError:
            pass  # it is full: whoever reads it is awake already
        finally:
            os.close(fifo)

    def turn(self, turn: str | None, text: str) -> None:
        if self.log:
            write_file(self.log, json_object(turn=turn, text=text) + "\n", os.O_APPEND)

    def so_far(self, answer: str) -> None:
        if self.partial_file and answer != self.partial:
            write_file(self.partial_file, answer, os.O_TRUNC)
            self.partial = answer

    def forget_partial(self) -> None:
        if self.partial_file and self.partial:
            os.unlink(self.partial_file)
        self.partial = ""


def write_file(path: str, text: str, how: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
    try:
        write_all(descriptor, text)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, text: str) -> None:
    rest = memoryview(text.encode("utf-8", "surrogateescape"))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


# The screen


def printable(text: str) -> str:
    """Control characters as a dot: what is shown never steers the terminal."""
    text = text.replace("\t", "    ")
    if text.isprintable():
        return text
    return "".join("·" if c < " " or "\x7f" <= c < "\xa0" else c for c in text)


def wrapped(line: str, width: int) -> list[str]:
    """Cuts a line into rows. What is not ASCII counts as two cells: too early a cut does no harm, too late
    a one would make the terminal wrap and the rows be miscounted."""
    if line.isascii():
        return [line[start : start + width] for start in range(0, len(line), width)] or [""]
    rows, row, cells = list[str](), "", 0
    for character in line:
        cells += 1 if character < "\x80" else 2
        if cells > width:
            rows.append(row)
            row, cells = "", 1 if character < "\x80" else 2
        row += character
    return [*rows, row]


def cells(text: str) -> int:
    """How many cells a terminal gives to a text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


class Screen:
    """Finished text above, and below it a live region that is painted over in place."""

    def __init__(self) -> None:
        self.live: list[str] = []
        self.wraps = False

    def size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(0)
        except OSError:
            columns, rows = 80, 24
        return max(columns, 20), max(rows, 6)

    def erasure(self) -> str:
        """What takes the live region away and leaves the cursor where it began."""
        width = self.size()[0]
        height = sum(max(1, -(-cells(row) // width)) if self.wraps else 1 for row in self.live)
        return (f"\x1b[{height - 1}A" if height > 1 else "") + "\r\x1b[J"

    def paint(self, rows: list[str], *, wraps: bool = False) -> None:
        if rows != self.live:
            self.draw("", rows, wraps)

    def draw(self, above: str, rows: list[str], wraps: bool) -> None:
        """Autowrap is off for rows that must stay one row each, however wide the terminal thinks they are."""
        below = "\r\n".join(rows)
        write_all(1, self.erasure() + above + (below if wraps else f"\x1b[?7l{below}\x1b[?7h"))
        self.live, self.wraps = rows, wraps

    def add(self, marker: str, text: str) -> None:
        """Puts text above the live region: its first line behind the marker, the others indented."""
        lines = text.split("\n", SHOWN_LINES)
        if len(lines) > SHOWN_LINES:
            lines[-1] = f"… +{lines[-1].count(chr(10)) + 1} lines"
        shown = [printable(line[:SHOWN_LINE]) for line in lines]
        self.draw(marker + "\r\n  ".join(shown) + "\r\n", self.live, self.wraps)


# The keyboard

PASTE_START = b"\x1b[200~"
PASTE_END = b"\x1b[201~"
CONTROLS = bytes(0 if code < 32 or code == 127 else 1 for code in range(256))
KEYS = {0x0D: "enter", 0x0A: "newline", 0x7F: "backspace", 0x08: "backspace", 0x03: "clear", 0x15: "clear"}


class Keyboard:
    """Bytes to keys. Yields `("text", typed)`, `("paste", pasted)` and `("key", name)`.

    A paste is whole or not there; in it CRLF and CR are LF, because terminals send CR for a line end.
    """

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.pasting = False
        self.scanned = 0
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, data: bytes) -> Generator[tuple[str, str], None, None]:
        self.bytes += data
        while self.bytes:
            if self.pasting:
                end = self.bytes.find(PASTE_END, self.scanned)
                if end < 0:
                    self.scanned = max(0, len(self.bytes) - len(PASTE_END) + 1)
                    return
                pasted = self.take(end, len(PASTE_END)).decode("utf-8", "replace")
                self.pasting = False
                yield "paste", pasted.replace("\r\n", "\n").replace("\r", "\n")
            else:
                yield from self.typed()
                if not self.pasting:
                    return

    def typed(self) -> Generator[tuple[str, str], None, None]:
        """Reads up to the start of a paste, or to an escape sequence that is not whole yet."""
        controls = self.bytes.translate(CONTROLS)
        at = 0
        while at < len(self.bytes):
            control = controls.find(0, at)
            end = len(self.bytes) if control < 0 else control
            if text := self.decode(bytes(self.bytes[at:end])):
                yield "text", text
            at = end
            if control >= 0 and self.bytes[at] == 0x1B:
                length = self.escape_length(at)
                if not length:
                    break
                name = self.escape_name(at, length)
                at += length
                if name == "paste":
                    self.take(0, at)
                    self.pasting, self.scanned = True, 0
                    return
                if name:
                    yield "key", name
            elif control >= 0:
                name = KEYS.get(self.bytes[at], "\t" if self.bytes[at] == 9 else "")
                at += 1
                if name:
                    yield ("text", name) if name == "\t" else ("key", name)
        self.take(0, at)

    def escape_length(self, at: int) -> int:
        """The length of the escape sequence at `at`; 0 if more bytes must tell."""
        following = bytes(self.bytes[at + 1 : at + 2])
        if following not in (b"[", b"O"):
            return 1 if following else 0
        for end in range(at + 2, len(self.bytes)):
            if following == b"O" or 0x40 <= self.bytes[end] <= 0x7E:
                return end + 1 - at
        return 0

    def escape_name(self, at: int, length: int) -> str:
        sequence = bytes(self.bytes[at : at + length])
        if sequence == PASTE_START:
            return "paste"
        if length == 1:
            return "escape"
        return "report" if sequence.endswith(b"R") else ""

    def take(self, length: int, extra: int = 0) -> bytes:
        taken = bytes(self.bytes[:length])
        del self.bytes[: length + extra]
        return taken

    def unsure(self) -> bool:
        """Whether an ESC byte waits for what may follow."""
        return not self.pasting and self.bytes.startswith(b"\x1b")

    def settle(self) -> tuple[str, str]:
        """Nothing followed: it was the Esc key."""
        self.bytes.clear()
        return "key", "escape"


class Composer:
    """The draft: typed text and pastes, each with how it is shown."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, str]] = []
        self.pastes = 0

    def type(self, text: str) -> None:
        self.pieces.append((text, text))

    def paste(self, text: str) -> None:
        lines = text.count("\n")
        if len(text) <= LITERAL_PASTE and lines <= 2:
            self.pieces.append((text, text))
            return
        self.pastes += 1
        self.pieces.append((text, f"[Pasted text #{self.pastes} +{lines} lines]"))

    def backspace(self) -> None:
        """Takes the last character; of a paste that shows as a marker, all of it."""
        if self.pieces:
            text, shown = self.pieces.pop()
            if text == shown and len(text) > 1:
                self.pieces.append((text[:-1], text[:-1]))

    def take(self) -> str:
        text = "".join(text for text, _ in self.pieces)
        self.pieces.clear()
        return text

    def rows(self, width: int, height: int) -> list[str]:
        """The last rows of the draft, as many as fit, the first one behind the prompt."""
        shown = "".join(shown for _, shown in self.pieces)[-SHOWN_DRAFT:]
        rows = [row for line in shown.split("\n") for row in wrapped(printable(line), width - 3)]
        return [PROMPT + rows[-height:][0], *("  " + row for row in rows[-height:][1:])]


# Tasks


class Wait:
    """A step that takes time. `seconds` None is for ever; `quiet` leaves the screen alone meanwhile;
    `until` names the key that ends it too."""

    def __init__(self, seconds: float | None, *, quiet: bool = False, until: str = "") -> None:
        self.end = None if seconds is None else time.monotonic() + seconds
        self.quiet = quiet
        self.until = until


class Ask:
    """A step that needs a person: its reply is `yes` or `no`. The question is told as it is shown."""

    def __init__(self, question: str) -> None:
        self.question = printable(question).strip()


class Call:
    """A step done by the service: its reply is a `Reply`."""

    def __init__(self, tool: str, arguments: str) -> None:
        self.tool = tool
        self.arguments = arguments


class Reply:
    """What a tool said: its text, and its structured content."""

    def __init__(self, text: str, content: Any = None) -> None:
        self.text = text
        self.content = content

    def field(self, path: str) -> str:
        """The text, or for `.a.b` a field of the structured content; '' where there is none."""
        value = self.content
        for name in path.split(".")[1:]:
            value = as_object(value).get(name)
        if not path:
            return self.text
        if value is None or isinstance(value, str):
            return value or ""
        import json

        return json.dumps(value, ensure_ascii=False)


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


class Failed(Exception):
    """The turn ends as failed."""


class Script:
    """One task, carried out step by step. `show` puts text on the screen; `parts` make up the answer."""

    def __init__(
        self, task: str, scripted_answer: str | None, show: Callable[[str, str], None], handoff: str
    ) -> None:
        self.task = task
        self.handoff = handoff
        self.scripted_answer = scripted_answer
        self.show = show
        self.parts: list[str] = []
        self.replies: list[Reply] = []

    def answer(self) -> str:
        return "\n".join(self.parts)

    def run(self) -> Generator[Wait | Ask | Call, Any, None]:
        directives = self.directives()
        if not directives:
            self.put(self.task if self.scripted_answer is None else self.scripted_answer)
        for name, argument in directives:
            steps = DIRECTIVES[name](self, self.resolved(name, argument))
            if steps is not None:
                yield from steps

    def directives(self) -> list[tuple[str, str]]:
        if "@" not in self.task:
            return []
        lines = (line[1:].partition(" ") for line in self.task.split("\n") if line.startswith("@"))
        return [(name, argument) for name, _, argument in lines if name in DIRECTIVES]

    def resolved(self, name: str, argument: str) -> str:
        """Fills in `$HANDOFF`, `$1` and `$1.field`; in the JSON of @call as the inside of a JSON string."""
        if self.handoff:
            argument = argument.replace("$HANDOFF", self.handoff)
        if not self.replies or "$" not in argument:
            return argument
        import re

        def fill(match: re.Match[str]) -> str:
            number = int(match[1])
            if not 1 <= number <= len(self.replies):
                return match[0]
            text = self.replies[number - 1].field(match[2])
            return quoted(text)[1:-1] if name == "call" else text

        return re.sub(r"\$(\d+)((?:\.\w+)*)", fill, argument)

    def put(self, text: str) -> None:
        self.parts.append(text)
        self.show(ANSWER, text)

    def say(self, argument: str) -> None:
        self.put(argument)

    def lines(self, argument: str) -> None:
        self.put("\n".join(f"line {number}" for number in range(1, int(argument) + 1)))

    def file(self, argument: str) -> None:
        with open(argument, "rb") as source:
            self.put(source.read().decode("utf-8", "replace"))

    def think(self, argument: str) -> None:
        self.show("∴ ", argument)

    def wait(self, argument: str) -> Generator[Wait, None, None]:
        yield Wait(float(argument))

    def quiet(self, argument: str) -> Generator[Wait, None, None]:
        yield Wait(float(argument), quiet=True)

    def ask(self, argument: str) -> Generator[Ask, str, None]:
        self.show("  ⎿ ", "allowed" if (yield Ask(argument)) == "yes" else "denied")

    def call(self, argument: str) -> Generator[Call, Reply, None]:
        tool, _, arguments = argument.partition(" ")
        reply = yield Call(tool, arguments or "{}")
        self.replies.append(reply)
        self.put(reply.text)

    def fail(self, argument: str) -> None:
        raise Failed(argument)

    def exit(self, argument: str) -> Generator[Wait, None, None]:
        yield Wait(0)  # what was answered so far is kept before the end
        leave(int(argument or 0))

    def kill(self, argument: str) -> Generator[Wait, None, None]:
        yield Wait(0)
        import signal

        name = argument.strip().upper().removeprefix("SIG")
        os.kill(os.getpid(), int(name) if name.isdigit() else signal.Signals[f"SIG{name}"])


DIRECTIVES: dict[str, Callable[[Script, str], Generator[Any, Any, None] | None]] = {
    "say": Script.say,
    "lines": Script.lines,
    "file": Script.file,
    "think": Script.think,
    "wait": Script.wait,
    "quiet": Script.quiet,
    "ask": Script.ask,
    "call": Script.call,
    "fail": Script.fail,
    "exit": Script.exit,
    "kill": Script.kill,
}


# The service's tools: MCP over HTTP, without a library

STATELESS = "2026-07-28"
HANDSHAKE = "2025-06-18"
INVALID_PARAMS = -32602


class Refused(Exception):
    """The server answered with an HTTP error: `status`, and the JSON-RPC error if the body holds one."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(error.get("message") or f"HTTP status {status}")
        self.status = status
        self.code = error.get("code")


class Tools:
    """Calls tools at `$CHANGEOVER_URL/mcp`: one stateless request, or the older handshake where that is
    refused. Blocks as long as the call lasts."""

    def __init__(self) -> None:
        self.base = os.environ.get("CHANGEOVER_URL", "")
        self.token = os.environ.get("CHANGEOVER_TOKEN", "")
        self.session: dict[str, str] | None = None
        self.number = 0

    def call(self, tool: str, arguments: str) -> Reply:
        """Never raises: whatever goes wrong is the reply's text."""
        import json

        try:
            parameters: dict[str, Any] = {"name": tool, "arguments": json.loads(arguments)}
            result = self.stateless(parameters) if self.session is None else None
            return reply_of(self.in_session(parameters) if result is None else result)
        except Exception as error:
            return Reply(f"{type(error).__name__}: {error}")

    def stateless(self, parameters: dict[str, Any]) -> dict[str, Any] | None:
        """None if the server does not speak it."""
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": {"name": "scripted", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {
            "MCP-Protocol-Version": STATELESS,
            "Mcp-Method": "tools/call",
            "Mcp-Name": parameters["name"],
        }
        try:
            return self.request("tools/call", parameters | {"_meta": meta}, headers)[0]
        except Refused as refusal:
            if refusal.status in (400, 404, 405, 406) and refusal.code != INVALID_PARAMS:
                return None
            raise

    def in_session(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if self.session is None:
            hello: dict[str, Any] = {
                "protocolVersion": HANDSHAKE,
                "capabilities": {},
                "clientInfo": {"name": "scripted", "version": "1"},
            }
            result, headers = self.request("initialize", hello, {})
            self.session = {"MCP-Protocol-Version": result.get("protocolVersion", HANDSHAKE)}
            if "mcp-session-id" in headers:
                self.session["Mcp-Session-Id"] = headers["mcp-session-id"]
            self.request("notifications/initialized", None, self.session)
        return self.request("tools/call", parameters, self.session)[0]

    def request(
        self, method: str, parameters: dict[str, Any] | None, headers: dict[str, str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """One POST. A notification is one without parameters, and its result is empty."""
        import http.client
        import json
        from urllib.parse import urlsplit

        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if parameters is not None:
            self.number += 1
            body |= {"id": self.number, "params": parameters}
        address = urlsplit(self.base)
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        connection = kind(address.hostname or "", address.port)
        try:
            connection.request(
                "POST",
                f"{address.path.rstrip('/')}/mcp",
                json.dumps(body).encode(),
                headers
                | {
                    "Authorization": f"Bearer {self.token}",
                    "Content-Type": "application/json",
                    "Accept": "application/json, text/event-stream",
                },
            )
            response = connection.getresponse()
            answered = {name.lower(): value for name, value in response.getheaders()}
            return read_reply(response, body.get("id")), answered
        finally:
            connection.close()


def read_reply(response: Any, number: int | None) -> dict[str, Any]:
    """The result in a JSON body or an event stream. Raises `Refused`, and `Failed` for a JSON-RPC error."""
    import json

    if response.headers.get_content_type() == "text/event-stream":
        message = read_stream(response, number)
    else:
        body = response.read()
        try:
            message = as_object(json.loads(body)) if body.strip() else {}
        except ValueError:
            message = as_object(None)
    if response.status >= 400:
        raise Refused(response.status, as_object(message.get("error")))
    if error := as_object(message.get("error")):
        raise Failed(error.get("message", "the call failed"))
    return as_object(message.get("result"))


def read_stream(response: Any, number: int | None) -> dict[str, Any]:
    """Reads events up to the response to our request; progress and other notices go by."""
    import json

    data: list[str] = []
    for raw in response:
        line: str = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            message = as_object(json.loads("\n".join(data)))
            data.clear()
            if message.get("id") == number and ("result" in message or "error" in message):
                return message
    raise Failed("the stream ended without a reply")


def reply_of(result: dict[str, Any]) -> Reply:
    items: list[dict[str, Any]] = result.get("content") or []
    texts: list[str] = [item["text"] for item in items if item.get("type") == "text"]
    return Reply("\n".join(texts), result.get("structuredContent"))


# The agent


class Agent:
    """Ties terminal, keyboard, composer and script together in one loop that never blocks on any of them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.poller = select.poll()
        self.journal = Journal(options)
        self.screen = Screen()
        self.keyboard = Keyboard()
        self.composer = Composer()
        self.tools = Tools()
        self.spinner_every = options.number("--spinner-every", 0.25)
        self.ignore_enter = options.number("--ignore-enter-ms") / 1000
        self.react_late = options.number("--react-late-ms") / 1000
        self.composing = False
        self.arrived: list[tuple[float, bytes]] = []  # input, and when to react to it
        self.unsure_since = 0.0
        self.paste_ended = float("-inf")
        self.queue: list[str] = []
        self.turns = 0
        self.turn: str | None = None
        self.handoff = ""
        self.questions = 0
        self.script: Script | None = None
        self.steps: Generator[Wait | Ask | Call, Any, None] | None = None
        self.step: Wait | Ask | Call | None = None
        self.question_id = ""
        self.started = 0.0
        self.repaint_at = 0.0
        self.replies: list[Reply] = []
        self.wake_read, self.wake_write = -1, -1

    # the loop

    def run(self) -> None:
        self.poller.register(0, select.POLLIN)
        self.steps = self.startup()
        self.advance(None)
        while True:
            for descriptor, _ in self.poller.poll(self.timeout()):
                if descriptor == 0:
                    self.arrive()
                else:
                    os.read(descriptor, 1)
                    self.advance(self.replies.pop())
            self.react()
            self.pass_time()

    def timeout(self) -> float | None:
        """Milliseconds to the next thing to do without input."""
        ends = [self.arrived[0][0]] if self.arrived else []
        if self.keyboard.unsure():
            ends.append(self.unsure_since + ESCAPE_WAIT)
        if isinstance(self.step, Wait) and self.step.end is not None:
            ends.append(self.step.end)
        if self.spinning():
            ends.append(self.repaint_at)
        return min(max(0.0, (min(ends) - time.monotonic()) * 1000), 60_000) if ends else None

    def arrive(self) -> None:
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if not data:
            leave(0)
        if self.options.has("--die-on-input") and self.steps is None:
            leave(int(self.options.number("--die-on-input")))
        self.arrived.append((time.monotonic() + self.react_late, data))

    def react(self) -> None:
        now, painted = time.monotonic(), False
        while self.arrived and self.arrived[0][0] <= now:
            for kind, value in self.keyboard.feed(self.arrived.pop(0)[1]):
                self.take(kind, value)
            self.unsure_since, painted = now, True
        if self.keyboard.unsure() and now >= self.unsure_since + ESCAPE_WAIT:
            self.take(*self.keyboard.settle())
            painted = True
        if painted:
            self.paint()

    def pass_time(self) -> None:
        now = time.monotonic()
        if isinstance(self.step, Wait) and self.step.end is not None and now >= self.step.end:
            self.advance(None)
        if self.spinning() and now >= self.repaint_at:
            self.paint()

    # keys

    def take(self, kind: str, value: str) -> None:
        if kind == "key" and isinstance(self.step, Wait) and self.step.until == value:
            self.advance(None)
        elif isinstance(self.step, Ask):
            self.answer(kind, value)
        elif self.composing:
            self.compose(kind, value)

    def answer(self, kind: str, value: str) -> None:
        """A dialog knows its keys only; a paste answers nothing."""
        choice = {("key", "enter"): "yes", ("key", "escape"): "no"}.get((kind, value))
        if kind == "text":
            choice = {"1": "yes", "2": "no"}.get(value)
        if choice:
            self.journal.event("answered", turn=self.turn, question_id=self.question_id, answer=choice)
            self.advance(choice)

    def compose(self, kind: str, value: str) -> None:
        if kind == "text":
            self.composer.type(value)
        elif kind == "paste":
            self.composer.paste(value)
            self.paste_ended = time.monotonic()
        elif value == "newline":
            self.composer.type("\n")
        elif value == "backspace":
            self.composer.backspace()
        elif value == "clear":
            self.composer.take()
        elif value == "enter" and time.monotonic() >= self.paste_ended + self.ignore_enter:
            self.submit(self.composer.take())

    def submit(self, text: str) -> None:
        if not text:
            self.journal.turn(None, "")
            return
        self.queue.append(text)
        if self.script is None and self.steps is None:
            self.begin(self.queue.pop(0))
            self.advance(None)

    # steps

    def startup(self) -> Generator[Wait | Ask, Any, None]:
        banner = self.options.text("--banner")
        if banner:
            self.screen.add("", banner)
        if self.options.has("--exit-at-start"):
            leave(int(self.options.number("--exit-at-start")))
        if banner:
            yield Wait(self.options.number("--banner-s") or None, until="enter")
        question = self.options.text("--start-dialog")
        if question and (yield Ask(question)) == "no":
            leave(1)
        if self.options.has("--never-ready"):
            self.screen.add("", "Starting…")
            yield Wait(None)
        for text in self.options.given.get("--history", []):
            self.screen.add(ANSWER, text)
        if not self.options.has("--no-bracketed-paste"):
            write_all(1, "\x1b[?2004h")
        self.composing = True
        self.paint()
        # The terminal tells where its cursor is once it has handled all that was written before: a paste
        # that comes after `ready` is a bracketed one, and finds the prompt on the screen.
        write_all(1, "\x1b[6n")
        yield Wait(REPORT_WAIT, until="report")
        if not self.options.has("--stand-still"):
            self.journal.event("ready")
            return
        import signal  # not SIGSTOP: tmux wakes a pane's process that stops

        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        self.journal.event("ready")
        signal.sigwait({signal.SIGUSR1})

    def begin(self, text: str) -> None:
        self.turns += 1
        self.turn = f"t{self.turns}-{os.getpid()}"
        self.journal.turn(self.turn, text)
        self.journal.event("submitted", turn=self.turn, text=text)
        head, _, rest = text.partition("\n")
        if head.startswith("[handoff "):
            self.handoff = head[len("[handoff ") :].rstrip("]")
        answers = self.options.given.get("--answer", [])
        self.script = Script(
            rest if head.startswith("[handoff ") else text,
            answers[min(self.turns, len(answers)) - 1] if answers else None,
            self.show,
            self.handoff,
        )
        self.show("> ", text if text.count("\n") < 10 else "\n".join([*text.split("\n", 10)[:10], "…"]))
        self.started = time.monotonic()
        self.steps = self.script.run()

    def show(self, marker: str, text: str) -> None:
        self.screen.add(marker, text)

    def advance(self, value: Any) -> None:
        """Carries the script on to its next step that takes time, then through the turns that waited.

        Whatever goes wrong in a task fails its turn and not the program.
        """
        self.step = None
        while self.steps is not None and self.step is None:
            try:
                step = self.steps.send(value)
            except StopIteration:
                self.end("")
            except Exception as error:
                self.end(str(error) or type(error).__name__)
            else:
                self.start(step)
            value = None
        self.paint()

    def start(self, step: Wait | Ask | Call) -> None:
        self.step = step
        if self.script is not None:
            self.journal.so_far(self.script.answer())
        if isinstance(step, Ask):
            self.questions += 1
            self.question_id = f"q{self.questions}-{os.getpid()}"
            self.journal.event("asking", turn=self.turn, question=step.question, question_id=self.question_id)
        elif isinstance(step, Call):
            self.call(step)
        else:
            self.repaint_at = 0.0
            self.paint(even_if_quiet=True)

    def call(self, call: Call) -> None:
        """On a thread: a call may last as long as another agent works."""
        import threading

        if self.wake_read < 0:
            self.wake_read, self.wake_write = os.pipe()
            self.poller.register(self.wake_read, select.POLLIN)

        def work() -> None:
            self.replies.append(self.tools.call(call.tool, call.arguments))
            os.write(self.wake_write, b"!")

        threading.Thread(target=work, daemon=True).start()

    def end(self, error: str) -> None:
        """Ends the startup, or a turn; then begins with what was submitted meanwhile."""
        script, self.script, self.steps = self.script, None, None
        self.paint()
        if script is not None:
            self.journal.forget_partial()
            if error:
                self.journal.event("failed", turn=self.turn, error=error, answer=script.answer())
            else:
                self.journal.event("stopped", turn=self.turn, answer=script.answer())
        self.turn = None
        if self.queue:
            self.begin(self.queue.pop(0))

    # painting

    def spinning(self) -> bool:
        if self.script is None or isinstance(self.step, Ask):
            return False
        return not (isinstance(self.step, Wait) and self.step.quiet)

    def paint(self, *, even_if_quiet: bool = False) -> None:
        if isinstance(self.step, Wait) and self.step.quiet and not even_if_quiet:
            return
        if isinstance(self.step, Ask):
            # Left to the terminal to wrap: whoever joins wrapped lines reads the question exactly.
            self.screen.paint([f"? {self.step.question}", CHOICES], wraps=True)
        elif self.composing:
            width, height = self.screen.size()
            rows = self.composer.rows(width, height - 3)
            if self.script is not None:
                now = time.monotonic()
                self.repaint_at = now + self.spinner_every
                rows.insert(0, f"{SPINNER} ({now - self.started:.0f}s)")
            self.screen.paint(rows)
        else:
            self.screen.paint([])


ORIGINAL: list[Any] = []


def raw_mode() -> None:
    """No echo, no line editing, no signals from keys; output as it is. Nothing typed early is thrown away."""
    ORIGINAL[:] = termios.tcgetattr(0)
    mode = termios.tcgetattr(0)
    mode[0] &= ~(termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    termios.tcsetattr(0, termios.TCSANOW, mode)


def leave(code: int) -> None:
    """Ends the program at once, threads and all, and leaves the terminal as it was found."""
    try:
        write_all(1, "\x1b[?2004l\r\n")
        if ORIGINAL:
            termios.tcsetattr(0, termios.TCSADRAIN, ORIGINAL)
    except (OSError, termios.error):
        pass  # the terminal is gone already
    os._exit(code)


def main() -> None:
    options = Options(sys.argv[1:])
    if options.has("--version"):
        print("scripted 1")
        return
    raw_mode()
    Agent(options).run()


if __name__ == "__main__":
    main()
