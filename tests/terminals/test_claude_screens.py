"""What is read from recorded screens of Claude Code 2.1.332: the file's name says what it shows."""

from pathlib import Path

import pytest

from orchestrator.terminals.driver import View
from orchestrator.terminals.drivers.claude_code_screen import look

SCREENS = Path(__file__).parent / "screens" / "claude"
NAMES = sorted(path.stem for path in SCREENS.glob("*.txt"))


def recorded(name: str) -> str:
    return (SCREENS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_screen_is_read_as_what_it_shows(name: str) -> None:
    assert look(recorded(name)).view is View(name.partition("_")[0])


@pytest.mark.parametrize(
    ("name", "begins", "holds"),
    [
        ("dialog_trust", "Accessing workspace:\n", "No, exit\nYes, I trust this folder"),
        ("dialog_api_key", "Detected a custom API key", "Do you want to use this API key?"),
        ("dialog_theme", "Welcome to Claude Code", "Choose the text style"),
        ("dialog_security_notes", "Welcome to Claude Code", "Security notes:"),
        ("dialog_bypass", "WARNING: Claude Code running in Bypass", "No, exit\nYes, I accept"),
        ("dialog_permission_bash", "Bash command\n", "touch /tmp/demo/project/xx && echo done\nDo you want"),
        ("dialog_permission_mcp", "Tool use\n", "n: 3\n"),
        ("dialog_permission_write", "Create file\na.txt\n", "Do you want to create a.txt?\n1. Yes\n"),
        ("dialog_ask_user_question", "☐ Database\nWhich database", "1. SQLite\none file\n2. PostgreSQL"),
        ("dialog_notice", "We're changing auto mode", "To fix it"),
        ("dialog_unable_to_connect", "Unable to connect to Anthropic services", "ENOTFOUND"),
    ],
)
def test_a_dialogs_question_is_its_text_and_its_choices(name: str, begins: str, holds: str) -> None:
    question = look(recorded(name)).question
    assert question is not None
    assert question.startswith(begins)
    assert holds in question
    assert "❯" not in question


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("dialog")])
def test_what_is_no_dialog_asks_nothing(name: str) -> None:
    assert look(recorded(name)).question is None


def test_moving_the_cursor_does_not_change_the_question_but_another_command_does() -> None:
    screen = recorded("dialog_permission_bash")
    moved = screen.replace(" ❯ 1. Yes", "   1. Yes").replace("   4. No", " ❯ 4. No")
    assert look(moved) == look(screen)
    other = screen.replace("touch /tmp/demo/project/xx", "touch /tmp/demo/project/yy")
    assert look(other).question != look(screen).question


@pytest.mark.parametrize(
    ("name", "limited"),
    [
        ("busy_retrying_429", "429 scripted error 429 · retrying in 1s · attempt 3/10"),
        ("busy_retrying_after_30_s", "API error · retrying in 32s · attempt 1/10"),
        ("busy_retrying_529", "API error · retrying in 1s · attempt 2/10"),
        ("busy_retrying_500", None),
        ("busy_retrying_401", None),
        ("busy", None),
        ("prompt_after_overload", None),
    ],
)
def test_only_a_rate_limit_or_an_overload_that_is_waited_for_is_limited(
    name: str, limited: str | None
) -> None:
    assert look(recorded(name)).limited == limited


@pytest.mark.parametrize(
    "said",
    [
        "● Esc to cancel · Enter to confirm",
        " ❯ 1. Yes",
        "● 429 is a rate limit · retrying in 5s is what it means",
        "  ✻ Orbiting…",
        "  esc to interrupt",
        "─" * 60,
        "❯ an earlier task",
    ],
)
def test_an_answer_that_looks_like_something_else_is_still_only_an_answer(said: str) -> None:
    screen = recorded("prompt").replace("/tmp/demo/project\n", f"/tmp/demo/project\n\n{said}\n", 1)
    assert said in screen
    assert look(screen).view is View.PROMPT
    assert look(screen).limited is None


@pytest.mark.parametrize("word", ["Orbiting", "Sautéing", "Reticulating splines", "Любое"])
def test_a_spinner_is_one_whatever_its_words(word: str) -> None:
    screen = recorded("prompt").replace("/tmp/demo/project\n", f"/tmp/demo/project\n\n✻ {word}… (3s)\n", 1)
    assert look(screen).view is View.BUSY


@pytest.mark.parametrize("screen", ["", "\n\n", "bash: claude: command not found", "❯", "─" * 80])
def test_what_is_not_known_is_other(screen: str) -> None:
    assert look(screen).view is View.OTHER
