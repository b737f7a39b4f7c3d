"""Every command against a real service with the scripted agent."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.terminals import outside_tmux
from tests.cli.conftest import COMMAND, Run
from tests.live import LiveService, eventually


def test_handoff_prints_the_answer_alone_and_exactly(cli: Run) -> None:
    said = cli("handoff", "scripted", "Grüße\n  漢字 ;")
    assert (said.status, said.out) == (0, "Grüße\n  漢字 ;")
    assert "succeeded" in said.err
    assert "ho_" in said.err


def test_a_message_may_come_from_standard_input(cli: Run) -> None:
    text = "-x\n" + "line\n" * 3
    assert cli("handoff", "scripted", "-", stdin=text.encode()).out == text


def test_a_long_answer_is_printed_whole(cli: Run) -> None:
    text = "".join(f"{number:06d} ✓\n" for number in range(40_000))
    assert cli("handoff", "scripted", "-", stdin=text.encode()).out == text
    said = cli("handoff", "scripted", "-", "--json", stdin=text.encode())
    assert said.json["output"] == text
    assert "truncated" not in said.json
    assert cli("output", said.json["handoff_id"]).out == text
    page = cli("output", said.json["handoff_id"], "--json").json
    assert (page["output"], page["total_chars"], page["next_offset"]) == (text, len(text), None)


def test_a_failed_handoff_ends_with_3_and_says_why(cli: Run) -> None:
    said = cli("handoff", "shell", "echo partly; exit 7")
    assert (said.status, said.out) == (3, "partly")
    assert "failed" in said.err
    assert "7" in said.err
    said = cli("handoff", "shell", "exit 7", "--json")
    assert said.status == 3
    assert (said.json["outcome"], said.json["exit_status"]) == ("failed", 7)


def test_a_wait_that_runs_out_ends_with_7_and_the_work_goes_on(cli: Run) -> None:
    said = cli("handoff", "scripted", "@wait 3\n@say late", "--timeout", "1")
    assert (said.status, said.out) == (7, "")
    name = next(word for word in said.err.split() if word.startswith("ho_")).rstrip(":")
    assert f"`changeover wait {name}`" in said.err

    waited = cli("wait", name)
    assert (waited.status, waited.out) == (0, "late")


def test_a_timeout_by_policy_ends_with_4(cli: Run, shared: LiveService) -> None:
    shared.profile("strict", "driver: scripted\non_timeout: stop")
    said = cli("handoff", "strict", "@wait 30", "--timeout", "1", "--json")
    assert said.status in {4, 7}
    assert cli("wait", said.json["handoff_id"], "--timeout", "10").status == 4


def test_assign_prints_the_id_and_wait_takes_several(cli: Run) -> None:
    first = cli("assign", "scripted", "@say one").out.strip()
    second = cli("assign", "shell", "exit 2").out.strip()
    assert first.startswith("ho_")

    said = cli("wait", first, second, "--json")
    assert said.status == 3
    assert said.json["wait"] == "done"
    assert [one["handoff_id"] for one in said.json["handoffs"]] == [first, second]

    said = cli("wait", first, second)
    assert said.status == 3
    assert all(name in said.out for name in (first, second, "succeeded", "failed"))


def test_wait_for_any_ends_with_the_first(cli: Run) -> None:
    slow = cli("assign", "scripted", "@wait 60").out.strip()
    quick = cli("assign", "scripted", "@say quick").out.strip()
    said = cli("wait", "--any", slow, quick, "--json")
    assert said.status == 0
    assert [one.get("outcome") for one in said.json["handoffs"]] == [None, "succeeded"]

    stopped = cli("stop", slow, "--json")
    assert stopped.status == 0
    assert stopped.json["outcome"] == "interrupted"
    assert cli("wait", slow).status == 5
    again = cli("stop", slow, "--json")
    assert again.status == 1
    assert again.error["code"] == "thread_terminal"


def test_the_same_key_rejoins_the_same_handoff(cli: Run) -> None:
    first, second = (cli("handoff", "scripted", "@say once", "--key", "k1", "--json").json for _ in range(2))
    assert first["handoff_id"] == second["handoff_id"]
    other = cli("handoff", "scripted", "@say twice", "--key", "k1", "--json")
    assert (other.status, other.error["code"]) == (1, "duplicate_idempotency_key")


@pytest.mark.promise("unknown-profile")
def test_an_unknown_profile_is_told_with_the_known_ones(cli: Run) -> None:
    said = cli("handoff", "scripte", "x", "--json")
    assert said.status == 1
    assert said.error["code"] == "unknown_profile"
    assert "scripted" in said.error["detail"]
    said = cli("handoff", "scripte", "x")
    assert said.out == ""
    assert len(said.err.splitlines()) <= 2


def test_the_agent_works_where_one_stands_or_where_one_says(cli: Run, shared: LiveService) -> None:
    below = shared.work / "below"
    below.mkdir()
    assert cli("handoff", "shell", "pwd").out == str(shared.work)
    assert cli("handoff", "shell", "pwd", "--directory", "below").out == str(below)
    refused = cli("handoff", "shell", "pwd", "--directory", "/", "--json")
    assert (refused.status, refused.error["code"]) == (1, "invalid_params")


def test_show_tells_the_whole_record(cli: Run) -> None:
    name = cli("handoff", "scripted", "the task", "--json").json["handoff_id"]
    record = cli("show", name, "--json").json
    assert (record["thread_id"], record["status"]) == (name, "completed")
    assert record["messages"][0]["text"] == "the task"
    said = cli("show", name).out
    assert all(word in said for word in (name, "the task", "thread.completed"))
    missing = cli("show", "ho_none", "--json")
    assert (missing.status, missing.error["code"]) == (1, "thread_not_found")


def test_an_agent_is_started_listed_looked_at_and_closed_by_name(cli: Run) -> None:
    started = cli("start", "scripted", "--name", "lead", "--json").json
    assert started["name"] == "lead"
    taken = cli("start", "scripted", "--name", "lead", "--json")
    assert (taken.status, taken.error["code"]) == (1, "name_taken")

    eventually(lambda: "❯" in cli("logs", "lead").out, "the prompt is on the screen")
    assert cli("logs", "lead", "--lines", "0", "--json").json["terminal_id"] == started["terminal_id"]
    assert cli("attach", "lead", "--json").json["attach_command"][0].endswith("tmux")
    listed = cli("ps", "--json").json
    assert set(listed) == {"terminals", "handoffs"}
    assert "lead" in [terminal.get("name") for terminal in listed["terminals"]]
    assert "lead" in cli("ps").out

    assert cli("close", "lead").status == 0
    assert "lead" not in cli("ps").out
    assert "lead" in cli("ps", "--all").out


def test_attach_becomes_the_view_of_the_terminal(cli: Run, shared: LiveService) -> None:
    cli("start", "scripted", "--name", "seen")
    mine, theirs = pty.openpty()
    env = {**shared.env, "TMUX": "/tmp/other,1,0", "TERM": "xterm"}
    process = subprocess.Popen(
        [*COMMAND, "attach", "seen"],
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.set_blocking(mine, False)
    screen = bytearray()

    def prompt() -> bool:
        try:
            screen.extend(os.read(mine, 65536))
        except BlockingIOError:
            pass
        except OSError as error:
            raise AssertionError(f"it ended: {screen.decode('utf-8', 'replace')}") from error
        return "❯".encode() in screen

    try:
        eventually(prompt, "the agent's prompt is seen")
    finally:
        process.kill()
        process.wait()
        os.close(mine)


def test_attaching_leaves_another_tmux_out() -> None:
    assert outside_tmux({"TMUX": "x", "TMUX_PANE": "%1", "TERM": "xterm"}) == {"TERM": "xterm"}


def test_profiles_are_listed_with_where_they_came_from(cli: Run, shared: LiveService) -> None:
    shared.profile("mine", "driver: scripted\ndescription: Mine.")
    (shared.profiles / "broken.md").write_text("---\nmodle: x\ndriver: scripted\n---\n")
    items = {item["name"]: item for item in cli("profiles", "--json").json["items"]}
    assert items["scripted"]["source"] == "built-in"
    assert items["mine"]["path"] == str(shared.profiles / "mine.md")
    assert items["broken"]["problems"] == ["line 2: Unknown key 'modle'. Did you mean 'model'?"]
    said = cli("profiles")
    assert "Mine." in said.out
    assert f"{shared.profiles / 'broken.md'}: line 2:" in said.err


def test_profiles_check_knows_the_drivers_of_a_running_service(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    path.write_text("---\ndriver: emacs\n---\n")
    said = cli("profiles", "check", str(path), "--json")
    assert said.status == 1
    assert said.json["driver_checked"] is True
    assert said.json["problems"][0]["line"] == 2
    assert "scripted" in said.json["problems"][0]["message"]


def test_the_doctor_shows_the_service_and_its_agent_clis(cli: Run, shared: LiveService) -> None:
    findings = {finding["name"]: finding for finding in cli("doctor", "--json").json["findings"]}
    assert findings["service"]["ok"] is True
    assert shared.url in findings["service"]["detail"]
    assert findings["agent CLI scripted"]["ok"] is True
    assert findings["record"]["ok"] is True


def test_ctrl_c_says_that_the_handoff_goes_on(cli: Run) -> None:
    process = cli.popen("handoff", "scripted", "@wait 2\n@say after all")
    assert process.stderr is not None
    name = process.stderr.readline().decode().partition(":")[0]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, b"")
    assert f"{name} goes on" in err.decode()
    assert b"Traceback" not in err
    assert cli("wait", name).out == "after all"


def test_a_reader_that_goes_away_is_no_fault_of_ours(cli: Run) -> None:
    name = cli("handoff", "scripted", "-", "--json", stdin=b"x" * 200_000).json["handoff_id"]
    with cli.popen("output", name) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.wait(10)
        assert process.stderr.read() == b""


def test_wrong_token_and_foreign_address_are_told(cli: Run, shared: LiveService) -> None:
    said = cli("ps", "--json", env={"CHANGEOVER_TOKEN": "wrong"})
    assert (said.status, said.error["code"]) == (1, "unauthenticated")
    said = cli("ps", "--json", "--url", shared.url.replace("127.0.0.1", "localhost"))
    assert (said.status, said.error["code"]) == (1, "unauthenticated")
    token = shared.token()
    assert cli("ps", "--url", shared.url, "--home", "/nowhere", env={"CHANGEOVER_TOKEN": token}).status == 0


@pytest.mark.promise("one-service")
def test_the_second_service_on_a_home_names_the_first(cli: Run, shared: LiveService) -> None:
    said = cli("serve")
    assert said.status == 1
    assert shared.url in said.err


def test_handoff_starts_a_service_in_the_background_and_it_stays(tmp_path: Path) -> None:
    with LiveService(tmp_path) as quiet:
        run = Run(quiet.env, quiet.work)
        said = run("handoff", "--start", "scripted", "hello")
        try:
            assert (said.status, said.out) == (0, "hello")
            assert "Started a service" in said.err
            again = run("handoff", "--start", "scripted", "again", "--json")
            assert again.status == 0
            assert "Started" not in again.err
            assert (quiet.home / "service.log").stat().st_mode & 0o077 == 0
        finally:
            pid = json.loads((quiet.home / "service.json").read_text())["pid"]
            os.kill(pid, signal.SIGTERM)
            eventually(lambda: not (quiet.home / "service.json").exists(), "the service ends")


def test_a_service_that_can_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    quiet = LiveService(tmp_path, {"CHANGEOVER_HOST": "192.0.2.1", "CHANGEOVER_PORT": "7"})
    said = Run(quiet.env, quiet.work)("handoff", "--start", "scripted", "x", "--json")
    assert (said.status, said.error["code"]) == (1, "unavailable")
    assert "192.0.2.1" in said.error["detail"]


def test_mcp_serves_the_tools_with_or_without_a_service(cli: Run, alone: Run) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "list_profiles", "arguments": {}},
        },
    ]
    for run, found in ((cli, "scripted"), (alone, "no service runs")):
        process = _mcp(run, requests)
        answers = {answer["id"]: answer["result"] for answer in process}
        assert "handoff" in [tool["name"] for tool in answers[2]["tools"]]
        assert found in json.dumps(answers[3]).lower()


def _mcp(run: Run, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers, with standard input held open until the last one is there."""
    with run.popen("mcp") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for request in requests:
            process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for request in requests if "id" in request]
        process.stdin.close()
        assert process.wait(10) == 0
    return answers


def test_python_itself_is_enough_to_run_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", "--version"], capture_output=True, check=True
    )
    assert done.stdout.startswith(b"changeover")
