"""The switches of the scripted agent: each makes one fault of the real agent CLIs, and only that."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.terminals.drivers.scripted import LOG, Scripted
from tests.terminals.pty_program import PtyProgram, prepared

Start = Callable[..., PtyProgram]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as running:

        def run(*switches: str) -> PtyProgram:
            launch = prepared(Scripted(), tmp_path, list(switches))
            return running.enter_context(PtyProgram(launch.argv, tmp_path))

        yield run


def turns(program: PtyProgram) -> list[str]:
    log = program.folder / LOG
    return [json.loads(line)["text"] for line in log.read_text().splitlines()] if log.exists() else []


def test_an_enter_too_soon_after_a_paste_is_swallowed_and_the_draft_stays(start: Start) -> None:
    program = start("--ignore-enter-ms", "400")
    program.event("ready")
    text = "\n".join(f"line {number}" for number in range(40))
    program.paste(text)
    program.type(b"\r")
    program.shown("[Pasted text #1 +39 lines]")
    pasted = time.monotonic()
    program.until(lambda: time.monotonic() > pasted + 0.5)
    assert turns(program) == []
    program.type(b"\r")
    assert program.event("submitted").payload["text"] == text
    assert turns(program) == [text]


def test_a_late_reaction_shows_nothing_at_first_and_then_takes_all_in_order(start: Start) -> None:
    program = start("--react-late-ms", "500")
    program.event("ready")
    begun, shown = time.monotonic(), len(program.output)
    program.paste("late")
    program.type(b"\r")
    program.until(lambda: len(program.output) > shown)
    assert time.monotonic() - begun > 0.45
    program.event("stopped")
    assert turns(program) == ["late"]


def test_a_banner_swallows_what_is_typed_and_ends_with_time(start: Start) -> None:
    program = start("--banner", "Update available, press Enter", "--banner-s", "0.5")
    program.shown("Update available, press Enter")
    program.type(b"the task")
    assert program.events() == []
    program.event("ready")
    program.submit("the second task")
    program.event("stopped")
    assert turns(program) == ["the second task"]


def test_a_banner_ends_with_enter(start: Start) -> None:
    program = start("--banner", "Update available, press Enter")
    program.shown("Update available, press Enter")
    program.type(b"the task\r")
    program.event("ready")
    program.shown("❯ ")
    assert turns(program) == []


@pytest.mark.parametrize(("key", "goes_on"), [(b"1", True), (b"\x1b", False)])
def test_a_dialog_at_the_start_comes_before_ready_and_a_no_ends_it(
    start: Start, key: bytes, goes_on: bool
) -> None:
    program = start("--start-dialog", "Trust this folder?")
    asking = program.event("asking").payload
    assert (asking["turn"], asking["question"]) == (None, "Trust this folder?")
    assert [entry.event for entry in program.events()] == ["asking"]
    program.type(key)
    if goes_on:
        program.event("ready")
    else:
        assert program.ended() == 1


def test_it_ends_at_the_start_with_its_message(start: Start) -> None:
    program = start("--banner", "bad key", "--exit-at-start", "2")
    assert program.ended() == 2
    program.pump()
    assert "bad key" in program.plain()
    assert program.events() == []


def test_it_never_gets_ready_and_takes_nothing(start: Start) -> None:
    program = start("--never-ready")
    program.shown("Starting…")
    program.paste("the task")
    program.type(b"\r")
    begun = time.monotonic()
    program.until(lambda: time.monotonic() > begun + 0.5)
    assert program.events() == []
    assert turns(program) == []
    assert "❯" not in program.plain()


def test_it_dies_at_the_first_byte_typed(start: Start) -> None:
    program = start("--die-on-input", "3")
    program.event("ready")
    program.type(b"x")
    assert program.ended() == 3


def test_without_bracketed_paste_each_line_end_submits(start: Start) -> None:
    program = start("--no-bracketed-paste")
    program.event("ready")
    assert b"2004h" not in program.output
    program.type(b"one\rtwo\r")
    program.event("stopped", 2)
    assert turns(program) == ["one", "two"]


def test_without_hooks_it_works_and_reports_nothing(start: Start) -> None:
    program = start("--no-hooks")
    program.shown("❯ ")
    program.submit("hello")
    program.shown("⏺ hello")
    assert program.events() == []


def test_scripted_answers_come_in_turn_and_the_last_one_stays(start: Start) -> None:
    program = start("--answer", "first", "--answer", "second")
    program.event("ready")
    for number in range(3):
        program.submit("the same prompt")
        program.event("stopped", number + 1)
    answers = [entry.payload["answer"] for entry in program.events() if entry.event == "stopped"]
    assert answers == ["first", "second", "second"]


def test_history_stands_above_the_first_prompt(start: Start) -> None:
    program = start("--history", "welcome")
    program.event("ready")
    program.until(lambda: program.plain().rstrip().endswith("❯"))
    assert "⏺ welcome\r\n" in program.plain()


def test_a_terminal_that_answers_no_query_delays_ready_and_no_more(tmp_path: Path) -> None:
    with PtyProgram(prepared(Scripted(), tmp_path).argv, tmp_path, answers=False) as program:
        program.event("ready")
        program.submit("hello")
        assert program.event("stopped").payload["answer"] == "hello"


def test_an_unknown_switch_is_refused_with_the_list_of_known_ones(start: Start) -> None:
    program = start("--no-such-switch")
    assert program.ended() == 2
    program.pump()
    assert "--ignore-enter-ms" in program.plain()
