"""What the command line says when no service runs, and when it is used wrongly."""

import json
import tomllib
from pathlib import Path

import pytest

from orchestrator.cli import COMMANDS, changeover
from tests.cli.conftest import Run

NEEDS_A_SERVICE = [
    ("handoff", "scripted", "x"),
    ("assign", "scripted", "x"),
    ("wait", "ho_x"),
    ("stop", "ho_x"),
    ("show", "ho_x"),
    ("output", "ho_x"),
    ("ps",),
    ("start", "scripted"),
    ("logs", "term_x"),
    ("close", "term_x"),
    ("profiles",),
]


@pytest.mark.parametrize("arguments", NEEDS_A_SERVICE, ids=lambda arguments: arguments[0])
def test_without_a_service_a_command_says_so_and_how_to_start_one(
    alone: Run, arguments: tuple[str, ...]
) -> None:
    said = alone(*arguments)
    assert (said.status, said.out) == (1, "")
    assert "No service runs" in said.err
    assert "changeover serve" in said.err

    said = alone(*arguments, "--json")
    assert (said.status, said.out) == (1, "")
    assert said.error["code"] == "unavailable"
    assert set(said.error) == {"code", "detail", "facts"}


def test_a_service_that_is_gone_is_told_with_its_address(alone: Run, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "service.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": 1}))
    said = alone("ps")
    assert said.status == 1
    assert "http://127.0.0.1:9" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Usage:"),
        (("hand-off",), "No such command 'hand-off'"),
        (("handoff", "developer"), "Missing argument 'MESSAGE'"),
        (("handoff", "developer", "x", "--timeout", "3601"), "1<=x<=3600"),
        (("handoff", "developer", "x", "--timeout", "0"), "1<=x<=3600"),
        (("handoff", "developer", "x", "--timeuot", "3"), "Did you mean"),
        (("wait", "--timeout", "-1"), "x>=0"),
        (("mcp", "--print-config", "emacs"), "'claude', 'codex', 'gemini'"),
        (("attach", "lead"), "Attaching needs a terminal"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(alone: Run, arguments: tuple[str, ...], words: str) -> None:
    said = alone(*arguments)
    assert (said.status, said.out) == (2, "")
    assert words in said.err
    if arguments:
        said = alone(*arguments, "--json")
        if arguments != ("attach", "lead"):
            assert said.status == 2
            assert said.error["code"] == "usage"


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help_and_json_and_keeps_the_line_of_the_table(command: str) -> None:
    found = changeover.get_command(changeover.make_context("changeover", ["ps"]), command)
    assert found is not None
    assert found.help
    assert "--json" in {option for parameter in found.params for option in parameter.opts}


def test_help_loads_nothing_heavy(alone: Run) -> None:
    for arguments in (["--help"], ["handoff", "--help"]):
        said = alone(*arguments, env={"PYTHONPROFILEIMPORTTIME": "1"})
        assert said.status == 0
        for heavy in ("httpx2", "rich", "litestar", "sqlalchemy", "asyncio", "mcp"):
            assert f"| {heavy}\n" not in said.err.replace("|  ", "| ")


def test_the_version_is_said(alone: Run) -> None:
    assert alone("--version").out.startswith("changeover 0.")


def test_a_wrong_setting_is_told_with_its_source(alone: Run) -> None:
    said = alone("ps", "--json", env={"CHANGEOVER_PORT": "many"})
    assert said.status == 1
    assert said.error["code"] == "invalid_params"
    assert "environment CHANGEOVER_PORT" in said.error["detail"]


def test_a_message_that_is_not_utf8_is_refused(alone: Run) -> None:
    said = alone("handoff", "scripted", "-", "--json", stdin=b"caf\xe9")
    assert said.status == 1
    assert said.error["code"] == "invalid_params"
    assert said.error["facts"] == {"path": "message"}


def test_a_token_of_the_home_is_not_sent_to_another_address(alone: Run, tmp_path: Path) -> None:
    from orchestrator.cli.connection import where
    from orchestrator.settings import load

    home = tmp_path / "home"
    home.mkdir()
    (home / "person.token").write_text("person\n")
    (home / "service.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    own = load({"home": home}, {})
    assert where(own, own.person_token_file) == ("http://127.0.0.1:1", "person")
    other = load({"home": home, "url": "http://example.org"}, {})
    assert where(other, other.person_token_file) == ("http://example.org", None)


def test_a_profiles_problems_are_told_with_file_and_line(alone: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_text("---\nname: mine\nmodle: x\n---\nHello\n")
    said = alone("profiles", "check", str(path))
    assert said.status == 1
    assert f"{path}:3: Unknown key 'modle'. Did you mean 'model'?" in said.out

    path.write_text("---\nname: mine\n---\nHello\n")
    said = alone("profiles", "check", str(path), "--json")
    assert said.status == 0
    assert said.json == {"path": str(path), "problems": [], "driver_checked": False}


def test_the_doctor_tells_what_is_missing_and_what_to_do(alone: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    (home / "changeover.db").write_text("no database")
    said = alone("doctor", "--json", env={"PATH": "/nowhere"})
    assert said.status == 1
    findings = {finding["name"]: finding for finding in said.json["findings"]}
    assert all(set(finding) == {"name", "ok", "detail", "advice"} for finding in findings.values())
    assert findings["tmux"]["ok"] is False
    assert "apt-get install tmux" in findings["tmux"]["advice"]
    assert findings["home"]["ok"] is False
    assert findings["home"]["advice"] == f"chmod 700 {home}"
    assert findings["record"]["ok"] is False
    assert findings["service"]["ok"] is None
    assert "changeover serve" in findings["service"]["advice"]

    said = alone("doctor", env={"PATH": "/nowhere"})
    assert said.status == 1
    assert f"-> chmod 700 {home}" in said.out


def test_the_doctor_finds_no_fault_where_there_is_none(alone: Run) -> None:
    said = alone("doctor")
    assert said.status == 0
    assert "FAULT" not in said.out


def test_the_doctor_sees_a_port_that_is_taken(alone: Run) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = alone("doctor", "--json", env={"CHANGEOVER_PORT": str(taken.getsockname()[1])})
    port = next(finding for finding in said.json["findings"] if finding["name"] == "port")
    assert port["ok"] is False
    assert "taken" in port["detail"]


@pytest.mark.parametrize("cli", ["claude", "codex", "gemini"])
def test_what_to_paste_names_the_command_the_home_and_no_token(alone: Run, tmp_path: Path, cli: str) -> None:
    said = alone("mcp", "--print-config", cli)
    assert said.status == 0
    assert str(tmp_path / "home") in said.out
    assert "mcp" in said.out
    if cli == "codex":
        stdio = said.out.partition("\n\n")[0]
        assert tomllib.loads(stdio)["mcp_servers"]["changeover"]["args"][-1] == "mcp"
