"""The drivers read real screens: their programs in a real tmux on a private socket."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.terminals.driver import Driver, SpoolEntry, View
from orchestrator.terminals.drivers.scripted import LOG, Scripted
from orchestrator.terminals.drivers.shell import Shell
from tests.terminals import recorder
from tests.terminals.pty_program import DEADLINE, prepared


class Pane:
    """A tmux server of its own with one pane."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.spool.mkdir()

    def tmux(self, *arguments: str, text: str | None = None) -> str:
        command = ["tmux", "-u", "-S", str(self.folder / "socket"), "-f", "/dev/null", *arguments]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, timeout=DEADLINE
        )
        return done.stdout

    def start(self, argv: list[str], env: dict[str, str] | None = None, size: str = "100x30") -> None:
        columns, rows = size.split("x")
        variables = {"CHANGEOVER_SPOOL": str(self.spool), "CHANGEOVER_TERMINAL": "term_1"} | (env or {})
        options = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        self.tmux("new-session", "-d", "-x", columns, "-y", rows, "-c", str(self.folder), *options, *argv)

    def screen(self) -> str:
        """As the service captures it."""
        lines = self.tmux("capture-pane", "-p", "-J").split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip("\n")

    def paste(self, text: str) -> None:
        self.tmux("load-buffer", "-b", "x", "-", text=text)
        self.tmux("paste-buffer", "-p", "-r", "-d", "-b", "x")

    def key(self, key: str) -> None:
        self.tmux("send-keys", key)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing came of it; the screen:\n{self.screen()}")
            os.sched_yield()

    def shows(self, driver: Driver, view: View) -> None:
        self.until(lambda: driver.look(self.screen()).view is view)

    def event(self, event: str, number: int = 1) -> SpoolEntry:
        def found() -> list[Path]:
            return sorted(path for path in self.spool.iterdir() if path.name.endswith(f".{event}"))

        self.until(lambda: len(found()) >= number)
        return SpoolEntry.read(found()[number - 1])


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    pane = Pane(tmp_path)
    yield pane
    pane.tmux("kill-server")


@pytest.fixture(params=["100x30", "81x24"])
def scripted(pane: Pane, request: pytest.FixtureRequest) -> Pane:
    pane.start(prepared(Scripted(), pane.folder).argv, size=request.param)
    pane.event("ready")
    return pane


AGENT = Scripted()


def test_when_ready_is_told_the_prompt_stands_and_a_paste_is_bracketed(scripted: Pane) -> None:
    assert AGENT.look(scripted.screen()).view is View.PROMPT
    scripted.paste("one\ntwo\nthree\n")
    scripted.shows(AGENT, View.DRAFT)
    scripted.key("Enter")
    assert scripted.event("stopped").payload["answer"] == "one\ntwo\nthree\n"
    scripted.shows(AGENT, View.PROMPT)


@pytest.mark.parametrize(
    "draft",
    [
        "short",
        "x" * 500,
        "漢" * 300,
        "👩‍👩‍👧 " * 60,
        "\n\ntwo empty lines first",
        "a\n❯\n✻ Orbiting…",
        "❯ ",
        "word " * 10_000,
        "\n".join("many lines"),
        "tab\there",
    ],
    ids=lambda draft: repr(draft[:20]),
)
def test_a_draft_is_seen_whatever_it_holds_and_the_prompt_comes_back(scripted: Pane, draft: str) -> None:
    scripted.paste(draft)
    scripted.shows(AGENT, View.DRAFT)
    scripted.key("C-u")
    scripted.shows(AGENT, View.PROMPT)
    scripted.paste(draft)
    scripted.shows(AGENT, View.DRAFT)
    scripted.key("Enter")
    assert scripted.event("stopped").payload["answer"] == draft
    scripted.shows(AGENT, View.PROMPT)


def test_work_a_dialog_and_the_prompt_are_told_apart_on_a_full_screen(scripted: Pane) -> None:
    asked = "Do you  really want " + "/a/long/path" * 20 + " and 漢字 é e\u0301 " * 9 + "?"
    scripted.paste(f"@lines 300\n@say above\n@ask {asked}\n@wait 30")
    scripted.shows(AGENT, View.DRAFT)
    scripted.key("Enter")
    assert scripted.event("asking").payload["question"] == asked
    scripted.shows(AGENT, View.DIALOG)
    assert AGENT.look(scripted.screen()).question == asked
    scripted.key("1")
    scripted.shows(AGENT, View.BUSY)
    assert "⏺ above\n  ⎿ allowed\n✻ Orbiting…" in scripted.screen()
    scripted.paste("later")
    scripted.until(lambda: "❯ later" in scripted.screen())
    assert AGENT.look(scripted.screen()).view is View.BUSY


def test_the_live_lines_leave_nothing_behind_in_the_text_above(scripted: Pane) -> None:
    scripted.paste("@say one\n@wait 0.6\n@think 漢字\n@wait 0.3\n@say two")
    scripted.shows(AGENT, View.DRAFT)
    scripted.key("Enter")
    scripted.event("stopped")
    scripted.shows(AGENT, View.PROMPT)
    lines = scripted.screen().split("\n")
    assert lines[-4:] == ["⏺ one", "∴ 漢字", "⏺ two", "❯"]
    assert "Orbiting" not in scripted.screen()


def test_an_agent_that_shows_a_banner_or_asks_before_its_prompt_is_not_at_its_prompt(pane: Pane) -> None:
    command = ["--banner", "Update available, press Enter", "--start-dialog", "Trust this folder?"]
    pane.start(prepared(AGENT, pane.folder, command).argv)
    pane.until(lambda: "Update available" in pane.screen())
    assert AGENT.look(pane.screen()).view is View.OTHER
    pane.key("Enter")
    pane.shows(AGENT, View.DIALOG)
    assert AGENT.look(pane.screen()).question == "Trust this folder?"
    pane.key("1")
    pane.event("ready")
    pane.shows(AGENT, View.PROMPT)
    assert not (pane.folder / LOG).exists()


@pytest.mark.parametrize("command", [None, ["dash"]], ids=["bash", "dash"])
def test_a_shell_s_screen_tells_prompt_work_and_draft(pane: Pane, command: list[str] | None) -> None:
    shell = Shell()
    launch = prepared(shell, pane.folder, command)
    pane.start(launch.argv, launch.env)
    pane.event("ready")
    pane.shows(shell, View.PROMPT)
    pane.paste(shell.compose("read -r line; printf %s $line", None, pane.folder))
    pane.key("Enter")
    pane.event("submitted")
    pane.shows(shell, View.BUSY)
    pane.paste("typed")
    pane.key("Enter")
    (fact,) = shell.interpret("term_1", pane.event("stopped"), pane.folder)
    assert fact.answer == "typed"
    pane.shows(shell, View.PROMPT)
    pane.paste("half")
    pane.shows(shell, View.DRAFT)


@pytest.mark.parametrize(
    ("switches", "frame"), [([], (b"", b"")), (["--bracketed"], (b"\x1b[200~", b"\x1b[201~"))]
)
def test_the_recorder_holds_every_byte_it_was_sent(
    pane: Pane, switches: list[str], frame: tuple[bytes, bytes]
) -> None:
    record = pane.folder / "record"
    pane.start([sys.executable, "-I", "-S", recorder.__file__, str(record), *switches])
    pane.until(lambda: "recording" in pane.screen())
    pane.paste("a;\n漢 -t %1")
    pane.key("Enter")
    pane.key("C-c")
    expected = frame[0] + "a;\n漢 -t %1".encode() + frame[1] + b"\r\x03"
    pane.until(lambda: len(record.read_bytes()) >= len(expected))
    assert record.read_bytes() == expected


def test_a_turn_in_the_log_is_one_json_line(scripted: Pane) -> None:
    scripted.paste("a\nb")
    scripted.shows(AGENT, View.DRAFT)
    scripted.key("Enter")
    turn = scripted.event("stopped").payload["turn"]
    (line,) = (scripted.folder / LOG).read_text().splitlines()
    assert json.loads(line) == {"turn": turn, "text": "a\nb"}
