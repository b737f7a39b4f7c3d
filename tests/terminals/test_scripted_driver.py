"""The scripted driver: recorded screens, events into facts, and how the program is started."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.agent import FactKind, Source
from orchestrator.domain.profile import Profile
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import SpoolEntry, View
from orchestrator.terminals.drivers import scripted
from orchestrator.terminals.drivers.scripted import Scripted

DRIVER = Scripted()


def spec(**profile: Any) -> AgentSpec:
    return AgentSpec(
        terminal_id="term_1",
        profile=Profile(name="worker", driver="scripted", **profile),
        working_directory="/",
        token="token",
        url="http://127.0.0.1:1",
    )


def entry(folder: Path, event: str, payload: str) -> SpoolEntry:
    path = folder / f"1700000000000000001-42.{event}"
    path.write_text(payload)
    return SpoolEntry.read(path)


# Screens as `capture-pane -p -J` gave them.

HISTORY = """\
⏺ welcome
> [handoff h_1]
  ⏺ x
  ❯ y
  ✻ Orbiting… z
  Allow? 1) Yes 2) No
⏺ the answer
  ❯ of two lines
"""

SCREENS = {
    "the prompt": (HISTORY + "❯", View.PROMPT),
    "the prompt alone": ("❯", View.PROMPT),
    "a short draft": (HISTORY + "❯ please do", View.DRAFT),
    "a draft of several lines": (HISTORY + "❯ please\n  do", View.DRAFT),
    "a draft that begins with an empty line": (HISTORY + "❯\n\n  do", View.DRAFT),
    "a pasted text": (HISTORY + "❯ [Pasted text #2 +39 lines]", View.DRAFT),
    "a draft that looks like a prompt": (HISTORY + "❯ one\n  ❯\n  ✻ Orbiting…", View.DRAFT),
    "work": (HISTORY + "✻ Orbiting… (3s)\n❯", View.BUSY),
    "work above a draft": (HISTORY + "✻ Orbiting… (61s)\n❯ the next thing", View.BUSY),
    "a dialog": (HISTORY + "? May I?\nAllow? 1) Yes 2) No", View.DIALOG),
    "a banner": ("Update available, press Enter", View.OTHER),
    "nothing": ("", View.OTHER),
}


@pytest.mark.parametrize(("screen", "view"), SCREENS.values(), ids=SCREENS)
def test_it_tells_what_a_screen_shows(screen: str, view: View) -> None:
    assert DRIVER.look(screen).view is view


def test_a_dialog_s_question_is_read_whole_from_its_rows() -> None:
    screen = HISTORY + "? May I write into th\ne file? Yes?  No?\nAllow? 1) Yes 2) No"
    assert DRIVER.look(screen).question == "May I write into the file? Yes?  No?"


@pytest.mark.parametrize(
    ("event", "payload", "kind", "fields"),
    [
        ("ready", "{}", FactKind.READY, {}),
        ("submitted", '{"turn": "t1", "text": "do"}', FactKind.SUBMITTED, {"turn": "t1", "text": "do"}),
        (
            "asking",
            '{"turn": "t1", "question": "May I?", "question_id": "q1"}',
            FactKind.ASKING,
            {"turn": "t1", "question": "May I?", "question_id": "q1"},
        ),
        (
            "answered",
            '{"turn": "t1", "question_id": "q1", "answer": "yes"}',
            FactKind.ANSWERED,
            {"turn": "t1", "question_id": "q1", "answer": None, "evidence": {"answer": "yes"}},
        ),
        ("stopped", '{"turn": "t1", "answer": ""}', FactKind.TURN_ENDED, {"turn": "t1", "answer": ""}),
        (
            "failed",
            '{"turn": "t1", "error": "why", "answer": "half"}',
            FactKind.TURN_FAILED,
            {"turn": "t1", "error": "why", "answer": "half"},
        ),
    ],
)
def test_each_event_is_one_fact(
    tmp_path: Path, event: str, payload: str, kind: FactKind, fields: dict[str, Any]
) -> None:
    spooled = entry(tmp_path, event, payload)
    (fact,) = DRIVER.interpret("term_1", spooled, tmp_path)
    assert (fact.terminal_id, fact.kind, fact.at, fact.source) == ("term_1", kind, spooled.at, Source.HOOK)
    assert {name: getattr(fact, name) for name in fields} == fields


@pytest.mark.parametrize(("event", "payload"), [("stopped", "half a {"), ("unheard_of", "{}")])
def test_a_broken_or_unknown_event_is_no_fact(tmp_path: Path, event: str, payload: str) -> None:
    assert DRIVER.interpret("term_1", entry(tmp_path, event, payload), tmp_path) == []


def test_a_turn_is_ours_when_its_text_is_what_was_typed(tmp_path: Path) -> None:
    typed = DRIVER.compose("the task\n", "[handoff h_1]", tmp_path)
    assert typed == "[handoff h_1]\nthe task\n"
    assert DRIVER.compose("the task\n", None, tmp_path) == "the task\n"
    (fact,) = DRIVER.interpret(
        "term_1", entry(tmp_path, "submitted", json.dumps({"turn": "t1", "text": typed})), tmp_path
    )
    assert DRIVER.took(fact, typed)
    assert not DRIVER.took(fact, typed + "\n")


def test_the_partial_answer_is_what_the_program_keeps(tmp_path: Path) -> None:
    assert DRIVER.partial(tmp_path) is None
    (tmp_path / scripted.PARTIAL).write_bytes("half 漢".encode() + b"\xe6")
    assert DRIVER.partial(tmp_path) == "half 漢\ufffd"


def test_a_command_of_switches_extends_the_program_and_another_replaces_it(tmp_path: Path) -> None:
    plain = DRIVER.prepare(spec(), tmp_path).argv
    assert plain[0] == sys.executable
    assert DRIVER.prepare(spec(command=["--banner", "hello"]), tmp_path).argv == [*plain, "--banner", "hello"]
    assert DRIVER.prepare(spec(command=["other", "--x"]), tmp_path).argv == ["other", "--x"]


def test_the_program_and_its_bytecode_are_one(tmp_path: Path) -> None:
    argv = DRIVER.version_argv()
    assert argv is not None
    compiled = [*DRIVER.prepare(spec(), tmp_path).argv, "--version"]
    for command in (argv, compiled):
        assert subprocess.run(command, capture_output=True, check=True).stdout == b"scripted 1\n"


def test_what_the_profile_asks_for_in_vain_is_said(tmp_path: Path) -> None:
    problems: list[str] = []
    DRIVER.check(problems, spec())
    assert problems == []
    DRIVER.check(problems, spec(model="large", allowed_tools=[]))
    assert len(problems) == 2
