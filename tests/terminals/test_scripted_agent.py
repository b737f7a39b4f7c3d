"""The scripted agent's program on a real pseudo-terminal: what it takes, answers, shows and reports."""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

import pytest

from orchestrator.terminals.drivers.scripted import LOG, PARTIAL, Scripted
from tests.terminals.pty_program import PtyProgram, prepared

Start = Callable[..., PtyProgram]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the program with these switches and waits for its `ready`."""
    with ExitStack() as running:

        def run(*switches: str, ready: bool = True, env: dict[str, str] | None = None) -> PtyProgram:
            launch = prepared(Scripted(), tmp_path, list(switches))
            program = running.enter_context(PtyProgram(launch.argv, tmp_path, env=env))
            if ready:
                program.event("ready")
            return program

        yield run


def turns(program: PtyProgram) -> list[str]:
    """The texts of the log, in order."""
    log = program.folder / LOG
    return [json.loads(line)["text"] for line in log.read_text().splitlines()] if log.exists() else []


def answer(program: PtyProgram, task: str) -> str:
    """Submits a task and returns its answer."""
    done = sum(entry.event == "stopped" for entry in program.events())
    program.submit(task)
    return program.event("stopped", done + 1).payload["answer"]


ODD_TEXTS = [
    "plain",
    "two\nlines\n",
    "\n\n  spaces and empty lines  \n\n\n",
    "trailing newlines\n\n\n",
    "wörld 漢字 😀 👩‍👩‍👧 e\u0301 \u200b\ufeff",
    "quotes \" ' ` \\ \\n $HOME $(id) %s ; && #",
    "tab\there",
    "⏺ x\n❯ y\n✻ Orbiting… z\nAllow? 1) Yes 2) No",
    "[Pasted text #1 +3 lines]",
    "mail@example.org\n @say not at the start of a line",
    "@unknown words",
]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_a_task_without_a_directive_is_answered_by_itself_byte_for_byte(start: Start, text: str) -> None:
    program = start()
    assert answer(program, text) == text
    assert program.event("submitted").payload["text"] == text
    assert turns(program) == [text]


def test_the_header_line_is_submitted_and_is_no_part_of_the_task(start: Start) -> None:
    program = start()
    text = "[handoff h_1 from someone]\nthe task\nof two lines"
    assert answer(program, text) == "the task\nof two lines"
    assert program.event("submitted").payload["text"] == text


def test_a_task_of_a_megabyte_is_taken_and_answered_whole(start: Start) -> None:
    program = start()
    dice = random.Random(1)
    text = "".join(f"{number} {dice.getrandbits(256):x} 漢\n" for number in range(14_000))
    begun = time.monotonic()
    assert answer(program, text) == text
    assert len(text.encode()) > 1_000_000
    assert time.monotonic() - begun < 10


def test_a_line_of_100_000_characters_is_taken_whole(start: Start) -> None:
    program = start()
    text = "x" * 99_999 + "y"
    assert answer(program, text) == text


def test_what_is_typed_without_a_paste_is_a_draft_until_enter(start: Start) -> None:
    program = start()
    program.type("tÿped 漢".encode())
    program.shown("❯ tÿped 漢")
    assert turns(program) == []
    program.type(b"\r")
    assert program.event("stopped").payload["answer"] == "tÿped 漢"


def test_a_long_paste_shows_as_a_marker_and_a_short_one_as_itself(start: Start) -> None:
    program = start()
    program.paste("one\ntwo")
    program.shown("❯ one\r\n  two")
    program.paste("\n".join("abcdef"))
    program.shown("[Pasted text #1 +5 lines]")
    program.type(b"\r")
    assert program.event("stopped").payload["answer"] == "one\ntwo" + "\n".join("abcdef")


@pytest.mark.parametrize("key", [b"\x03", b"\x15"])
def test_ctrl_c_and_ctrl_u_clear_the_draft_and_end_nothing(start: Start, key: bytes) -> None:
    program = start()
    program.paste("never mind")
    program.type(key)
    assert answer(program, "this one") == "this one"
    assert turns(program) == ["this one"]


def test_backspace_takes_a_character_and_cursor_keys_do_nothing(start: Start) -> None:
    program = start()
    program.type("ab漢\x7fc\x1b[A\x1bOB\x1b[1;5Cd\r".encode())
    assert program.event("stopped").payload["answer"] == "abcd"


def test_an_empty_enter_is_in_the_log_and_is_no_turn(start: Start) -> None:
    program = start()
    program.type(b"\r")
    program.until(lambda: turns(program))
    assert answer(program, "a turn") == "a turn"
    assert turns(program) == ["", "a turn"]
    assert [entry.event for entry in program.events()] == ["ready", "submitted", "stopped"]


def test_directives_make_up_the_answer_in_order_and_prose_is_left_out(start: Start, tmp_path: Path) -> None:
    program = start()
    (tmp_path / "file.txt").write_bytes("exact \t content漢\r\n\n".encode())
    task = f"""Please do this:
@say first
@think hidden
@lines 3
@file {tmp_path / "file.txt"}
@say
and no more
@say last"""
    expected = "first\nline 1\nline 2\nline 3\nexact \t content漢\r\n\n\n\nlast"
    assert answer(program, task) == expected
    program.shown("∴ hidden")


def test_directives_that_give_nothing_answer_the_empty_string(start: Start) -> None:
    assert answer(start(), "@think so\n@wait 0.01") == ""


def test_an_answer_of_12_000_lines_is_whole_in_the_event_and_short_on_the_screen(start: Start) -> None:
    program = start()
    begun = time.monotonic()
    text = answer(program, "@lines 12000")
    assert text.split("\n") == [f"line {number}" for number in range(1, 12_001)]
    assert time.monotonic() - begun < 10
    program.shown("… +11600 lines")


def test_while_it_works_a_spinner_turns_above_the_prompt(start: Start) -> None:
    program = start("--spinner-every", "0.02")
    program.submit("@wait 1.2\n@say done")
    program.shown("✻ Orbiting… (0s)\r\n❯ ")
    program.shown("✻ Orbiting… (1s)\r\n❯ ")
    assert program.event("stopped").payload["answer"] == "done"
    program.shown("⏺ done")


def test_while_it_is_quiet_not_a_byte_reaches_the_screen(start: Start) -> None:
    program = start("--spinner-every", "0.01")
    program.submit("@say before\n@quiet 0.4\n@say after")
    program.shown("✻ Orbiting… (0s)\r\n❯ ")
    shown, begun = len(program.output), time.monotonic()
    program.type(b"x")
    program.until(lambda: len(program.output) > shown)
    assert time.monotonic() - begun > 0.3
    assert program.event("stopped").payload["answer"] == "before\nafter"


def test_text_submitted_while_it_works_becomes_turns_of_their_own_in_order(start: Start) -> None:
    program = start()
    program.submit("@wait 0.3\n@say one")
    program.event("submitted")
    program.submit("two")
    program.submit("three")
    program.event("stopped", 3)
    told = [(entry.event, entry.payload.get("answer")) for entry in program.events()[1:]]
    assert told == [
        ("submitted", None),
        ("stopped", "one"),
        ("submitted", None),
        ("stopped", "two"),
        ("submitted", None),
        ("stopped", "three"),
    ]
    assert len({entry.payload["turn"] for entry in program.events()[1:]}) == 3


@pytest.mark.parametrize(
    ("key", "choice"), [(b"\r", "yes"), (b"1", "yes"), (b"2", "no"), (b"\x1b", "no")], ids=repr
)
def test_a_dialog_waits_for_its_answer_and_the_turn_goes_on(start: Start, key: bytes, choice: str) -> None:
    program = start()
    program.submit("@say before\n@ask May I touch file.txt?\n@say after")
    asking = program.event("asking").payload
    assert asking["question"] == "May I touch file.txt?"
    program.shown("? May I touch file.txt?\r\nAllow? 1) Yes 2) No")
    program.type(key)
    answered = program.event("answered").payload
    assert answered == {"turn": asking["turn"], "question_id": asking["question_id"], "answer": choice}
    assert program.event("stopped").payload["answer"] == "before\nafter"


def test_text_pasted_or_typed_at_a_dialog_does_not_answer_it(start: Start) -> None:
    program = start()
    program.submit("@ask Sure?")
    program.event("asking")
    program.paste("1")
    program.paste("2\n1\n")
    program.type(b"1 thing first")
    program.type(b"\x1b")
    assert program.event("answered").payload["answer"] == "no"
    assert turns(program) == ["@ask Sure?"]


def test_two_equal_questions_have_different_ids(start: Start) -> None:
    program = start()
    program.submit("@ask Sure?\n@ask Sure?")
    program.event("asking")
    program.type(b"1")
    program.event("asking", 2)
    ids = {entry.payload["question_id"] for entry in program.events() if entry.event == "asking"}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("@fail the model is gone", "the model is gone"),
        ("@file /no/such/file", "No such file or directory"),
        ("@lines many", "invalid literal"),
        ("@kill NOTHING", "SIGNOTHING"),
    ],
)
def test_a_turn_that_fails_tells_its_error_and_what_it_had(start: Start, line: str, error: str) -> None:
    program = start()
    program.submit(f"@say half\n{line}\n@say never")
    failed = program.event("failed").payload
    assert error in failed["error"]
    assert failed["answer"] == "half"
    assert answer(program, "still here") == "still here"


@pytest.mark.parametrize(
    ("line", "status"), [("@exit 3", 3), ("@exit", 0), ("@kill KILL", -9), ("@kill 15", -15)]
)
def test_it_dies_in_the_middle_of_a_turn_and_leaves_what_it_had(
    start: Start, tmp_path: Path, line: str, status: int
) -> None:
    program = start()
    program.submit(f"@say half 漢\n{line}")
    assert program.ended() == status
    assert [entry.event for entry in program.events()] == ["ready", "submitted"]
    assert (tmp_path / PARTIAL).read_text() == "half 漢"


def test_a_stopped_program_goes_on_when_it_is_continued(start: Start) -> None:
    program = start()
    program.submit("@kill STOP\n@say woken")
    program.event("submitted")
    program.until(lambda: Path(f"/proc/{program.pid}/stat").read_text().split(") ")[1][0] == "T")
    os.kill(program.pid, signal.SIGCONT)
    assert program.event("stopped").payload["answer"] == "woken"


def test_the_partial_answer_is_there_while_a_turn_waits_and_gone_afterwards(
    start: Start, tmp_path: Path
) -> None:
    program = start()
    program.submit("@say one\n@ask Go on?\n@say two")
    program.event("asking")
    assert (tmp_path / PARTIAL).read_text() == "one"
    program.type(b"1")
    program.event("stopped")
    assert not (tmp_path / PARTIAL).exists()


def test_control_characters_of_an_answer_do_not_reach_the_screen(start: Start, tmp_path: Path) -> None:
    program = start()
    (tmp_path / "evil").write_bytes(b"a\x1b[31mred\x07\x9b2J")
    assert answer(program, f"@file {tmp_path / 'evil'}").startswith("a\x1b[31mred\x07")
    assert b"\x1b[31m" not in program.output
    assert b"\x07" not in program.output


# hooks


def test_events_are_renamed_into_the_spool_under_growing_stamps(start: Start) -> None:
    program = start()
    for number in range(20):
        program.submit(f"turn {number}")
        program.event("stopped", number + 1)
    names = [entry.id for entry in program.events()]
    stamps = [int(name.split("-")[0]) for name in names]
    assert stamps == sorted(set(stamps))
    assert all(name.split("-")[1].split(".")[0] == str(program.pid) for name in names)
    assert not [path for path in program.spool.iterdir() if path.name.startswith(".")]


def test_a_poke_names_the_terminal_after_the_event_is_there(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "poke")
    reader = os.open(tmp_path / "poke", os.O_RDONLY | os.O_NONBLOCK)
    try:
        start(env={"CHANGEOVER_POKE": str(tmp_path / "poke")})
        assert os.read(reader, 100) == b"term_1\n"
    finally:
        os.close(reader)


@pytest.mark.parametrize("poke", ["nobody reads", "full", "a plain file", "missing"])
def test_a_poke_nobody_takes_blocks_nothing(start: Start, tmp_path: Path, poke: str) -> None:
    path, held = tmp_path / "poke", []
    if poke in ("nobody reads", "full"):
        os.mkfifo(path)
    if poke == "full":
        held.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        with suppress(BlockingIOError):
            while os.write(held[0], b"x" * 4096):
                pass
    if poke == "a plain file":
        path.write_text("mine")
    program = start(env={"CHANGEOVER_POKE": str(path)})
    assert answer(program, "hi") == "hi"
    if poke == "a plain file":
        assert path.read_text() == "mine"
    for descriptor in held:
        os.close(descriptor)


def test_without_a_spool_it_works_and_writes_nothing(start: Start) -> None:
    program = start(ready=False, env={"CHANGEOVER_SPOOL": ""})
    program.shown("❯ ")
    program.submit("hello")
    program.shown("⏺ hello")
    assert program.events() == []


def test_it_is_ready_within_a_second_and_a_turn_takes_milliseconds(start: Start) -> None:
    """Generous limits: alone on the machine it is 15 ms to the prompt and half a millisecond a turn."""
    begun = time.time_ns()
    program = start()
    assert int(program.event("ready").id.split("-")[0]) - begun < 1_000_000_000
    took = list[int]()
    for number in range(20):
        program.paste("hi")
        pressed = time.time_ns()
        program.type(b"\r")
        took.append(int(program.event("stopped", number + 1).id.split("-")[0]) - pressed)
    assert median(took) < 50_000_000
