"""The Claude Code driver without Claude Code: what it writes for a start, what hooks and transcripts tell."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.agent import AgentFact, FactKind, Source
from orchestrator.domain.profile import Profile
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import Launch, SpoolEntry
from orchestrator.terminals.drivers.claude_code import ClaudeCode

DRIVER = ClaudeCode()
AT = datetime(2026, 1, 2, tzinfo=UTC)


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec(
        terminal_id="term_1",
        profile=Profile(name="worker", **fields),
        working_directory="/",
        token="secret",
        url="http://127.0.0.1:1",
    )


def flag(launch: Launch, name: str) -> str | None:
    return launch.argv[launch.argv.index(name) + 1] if name in launch.argv else None


def written(launch: Launch, name: str) -> Any:
    path = flag(launch, name)
    assert path is not None
    return json.loads(Path(path).read_text())


def facts(folder: Path, event: str, at: datetime = AT, **payload: Any) -> list[AgentFact]:
    entry = SpoolEntry(id="1-1.x", event=event, at=at, payload=payload)
    return DRIVER.interpret("term_1", entry, folder)


def fact(folder: Path, event: str, **payload: Any) -> AgentFact:
    [only] = facts(folder, event, **payload)
    return only


class Transcript:
    """A transcript as Claude Code writes it, as far as it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text('{"type":"mode","mode":"normal"}\n')

    def add(self, **line: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"isSidechain": False, **line}) + "\n")

    def prompt(self, turn: str, text: str = "do it") -> None:
        self.add(type="user", promptId=turn, message={"role": "user", "content": text})

    def result(self, turn: str) -> None:
        content = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]
        self.add(type="user", promptId=turn, message={"role": "user", "content": content})

    def says(self, text: str, message: str = "msg_1", stop: str = "end_turn", **more: Any) -> None:
        block = {"type": "text", "text": text}
        self.add(type="assistant", message={"id": message, "content": [block], "stop_reason": stop}, **more)

    def calls(self, call: str = "toolu_1", message: str = "msg_1") -> None:
        block = {"type": "tool_use", "id": call, "name": "Bash", "input": {}}
        said = {"id": message, "content": [block], "stop_reason": "tool_use"}
        self.add(type="assistant", message=said)

    def stop(self, turn: str, last: str | None, **payload: Any) -> AgentFact:
        path = str(self.path)
        return fact(
            self.path.parent,
            "Stop",
            prompt_id=turn,
            last_assistant_message=last,
            transcript_path=path,
            **payload,
        )


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "session.jsonl")


# the start


def test_a_plain_profile_gets_our_server_hooks_and_its_prompt_and_all_files_are_private(
    tmp_path: Path,
) -> None:
    launch = DRIVER.prepare(spec(system_prompt="Be brief.", model="opus"), tmp_path)
    assert launch.argv[0] == "claude"
    assert flag(launch, "--model") == "opus"
    prompt = flag(launch, "--append-system-prompt-file")
    assert prompt is not None
    assert Path(prompt).read_text() == "Be brief."
    server = written(launch, "--mcp-config")["mcpServers"]["changeover"]
    assert server["url"] == "http://127.0.0.1:1/mcp"
    assert server["headers"] == {"Authorization": "Bearer secret"}
    assert "--strict-mcp-config" in launch.argv
    assert launch.env["CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"] == "0"
    settings = written(launch, "--settings")
    assert settings["permissions"]["allow"] == ["mcp__changeover"]
    assert set(settings["hooks"]) >= {"SessionStart", "UserPromptSubmit", "PermissionRequest", "Stop"}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert not any("secret" in word for word in launch.argv)


def test_without_our_server_nothing_of_it_is_given(tmp_path: Path) -> None:
    launch = DRIVER.prepare(spec(mcp=False), tmp_path)
    assert flag(launch, "--mcp-config") is None
    assert "--strict-mcp-config" not in launch.argv
    assert "permissions" not in written(launch, "--settings")
    assert not any(name.startswith("CLAUDE_CODE_MCP") for name in launch.env)


def test_allowed_tools_take_the_others_away(tmp_path: Path) -> None:
    launch = DRIVER.prepare(spec(allowed_tools=["Read", "Bash(git log:*)", "Bash(ls)"]), tmp_path)
    assert flag(launch, "--tools") == "Read,Bash"
    assert flag(launch, "--permission-mode") == "dontAsk"
    allowed = written(launch, "--settings")["permissions"]["allow"]
    assert allowed == ["Read", "Bash(git log:*)", "Bash(ls)", "mcp__changeover"]


def test_an_empty_list_allows_no_tool_and_none_leaves_the_default(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "default").mkdir()
    none = DRIVER.prepare(spec(allowed_tools=[], mcp=False), tmp_path / "none")
    assert flag(none, "--tools") == ""
    assert "--strict-mcp-config" in none.argv
    default = DRIVER.prepare(spec(), tmp_path / "default")
    assert flag(default, "--tools") is None
    assert flag(default, "--permission-mode") is None


def test_a_profile_that_names_a_tool_of_another_server_keeps_the_users_servers(tmp_path: Path) -> None:
    launch = DRIVER.prepare(spec(allowed_tools=["mcp__github__search"]), tmp_path)
    assert "--strict-mcp-config" not in launch.argv
    assert flag(launch, "--tools") == ""


def test_a_tool_that_cannot_be_one_is_a_problem() -> None:
    problems: list[str] = []
    DRIVER.check(problems, spec(allowed_tools=["Bash(git log:*)", "Read, Write", ""]))
    assert len(problems) == 2


def test_a_command_replaces_the_program(tmp_path: Path) -> None:
    launch = DRIVER.prepare(spec(command=["/opt/claude", "--verbose"]), tmp_path)
    assert launch.argv[:3] == ["/opt/claude", "--verbose", "--settings"]


# texts


@pytest.mark.parametrize(
    ("text", "header", "typed"),
    [
        ("hello", "[handoff h]", "[handoff h]\nhello"),
        ("/help", "[handoff h]", "[handoff h]\n/help"),
        ("/help", None, " /help"),
        ("!ls", None, " !ls"),
        ("hello", None, "hello"),
        ("ends in a \\", None, "ends in a \\\n"),
    ],
)
def test_no_text_is_a_command_or_swallows_enter(
    text: str, header: str | None, typed: str, tmp_path: Path
) -> None:
    assert DRIVER.compose(text, header, tmp_path) == typed


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("a\n\n", "a"),
        ("  a", "a"),
        ("a\tb", "a    b"),
        ("e\u0301", "é"),
        ("a \u200d b", "a  b"),
        ("[handoff h]\nx\ny", '[handoff h]\n<pasted_content id="1a2b">\nx\ny\n</pasted_content id="1a2b">'),
        ("", ""),
    ],
)
def test_a_text_is_recognised_through_what_the_composer_does_to_it(
    typed: str, told: str, tmp_path: Path
) -> None:
    submitted = fact(tmp_path, "UserPromptSubmit", prompt_id="p", prompt=told)
    assert submitted.kind is FactKind.SUBMITTED
    assert submitted.turn == "p"
    assert DRIVER.took(submitted, typed)


@pytest.mark.parametrize("told", ["other", "a b c", "", "<task-notification>\n</task-notification>"])
def test_another_text_is_not_taken_for_it(told: str, tmp_path: Path) -> None:
    assert not DRIVER.took(fact(tmp_path, "UserPromptSubmit", prompt_id="p", prompt=told), "a b")


# facts


def test_only_a_sessions_first_start_tells_ready(tmp_path: Path) -> None:
    assert fact(tmp_path, "SessionStart", source="startup").kind is FactKind.READY
    assert facts(tmp_path, "SessionStart", source="compact") == []
    assert facts(tmp_path, "SessionStart", source="clear") == []


@pytest.mark.parametrize("payload", [{"raw": "half a li"}, {"prompt_id": 7}, {"background_tasks": "many"}])
def test_a_broken_payload_tells_nothing_wrong(payload: dict[str, Any], tmp_path: Path) -> None:
    assert facts(tmp_path, "SessionStart", **payload) == []
    assert facts(tmp_path, "Nothing", **payload) == []


def test_a_question_names_all_that_is_asked_and_its_id_follows_from_it(tmp_path: Path) -> None:
    asked = {"tool_name": "Bash", "tool_input": {"command": "rm -r x", "timeout": 5}, "prompt_id": "p"}
    first = fact(tmp_path, "PermissionRequest", **asked)
    assert first.kind is FactKind.ASKING
    assert first.question == "Bash\ncommand: rm -r x\ntimeout: 5"
    assert fact(tmp_path, "PermissionRequest", **asked).question_id == first.question_id
    asked["tool_input"] = {"command": "rm -r y", "timeout": 5}
    assert fact(tmp_path, "PermissionRequest", **asked).question_id != first.question_id


def test_the_answer_is_the_transcripts_last_message_with_every_blank(transcript: Transcript) -> None:
    transcript.prompt("p")
    transcript.says("I look first.")
    transcript.calls()
    transcript.result("p")
    transcript.says("  one\n", "msg_2")
    transcript.says("two \n\n", "msg_2")
    ended = transcript.stop("p", "two")
    assert (ended.kind, ended.turn, ended.source) == (FactKind.TURN_ENDED, "p", Source.TRANSCRIPT)
    assert ended.answer == "  one\ntwo \n\n"
    assert ended.background == 0


def test_a_message_cut_by_its_length_and_its_continuation_are_one_answer(transcript: Transcript) -> None:
    transcript.prompt("p")
    transcript.says("half a wo", "msg_1", stop="max_tokens")
    transcript.says("rd.", "msg_2")
    assert transcript.stop("p", "rd.").answer == "half a word."


def test_a_turn_without_text_never_answers_with_the_turn_before(transcript: Transcript) -> None:
    transcript.prompt("p")
    transcript.says("old answer")
    transcript.prompt("q")
    assert transcript.stop("q", "old answer").answer == ""


def test_while_the_transcript_is_behind_the_hook_is_believed(transcript: Transcript) -> None:
    transcript.prompt("p")
    transcript.says("old answer")
    transcript.prompt("q")
    ended = transcript.stop("q", "new answer")
    assert (ended.answer, ended.source) == ("new answer", Source.HOOK)


def test_a_turn_that_has_just_ended_is_waited_for_in_the_transcript(transcript: Transcript) -> None:
    """The file lags behind the hook, whose text has lost its blanks, or may be that of an earlier turn."""
    transcript.prompt("p")
    transcript.says("  again\n", "msg_1")
    transcript.prompt("q")
    late = threading.Timer(0.2, transcript.says, ["  again\n", "msg_2"])
    late.start()
    ended = transcript.stop("q", "again", at=datetime.now(UTC))
    late.join()
    assert (ended.answer, ended.source) == ("  again\n", Source.TRANSCRIPT)


def test_without_a_transcript_the_hook_is_believed(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.jsonl")
    ended = fact(tmp_path, "Stop", prompt_id="p", last_assistant_message="answer", transcript_path=gone)
    assert (ended.answer, ended.turn) == ("answer", "p")


def test_what_sub_agents_say_and_the_clis_own_errors_are_no_answer(transcript: Transcript) -> None:
    transcript.prompt("p")
    transcript.says("sub", "msg_9", isSidechain=True)
    transcript.says("mine", "msg_1")
    transcript.says("API Error", "msg_8", isApiErrorMessage=True)
    assert transcript.stop("p", "mine").answer == "mine"


def test_a_half_written_line_and_a_long_session_do_not_matter(transcript: Transcript) -> None:
    transcript.prompt("o")
    for number in range(400):
        transcript.says("x" * 5000, f"msg_{number}")
    transcript.prompt("p", "y" * 3_000_000)
    transcript.says("end", "msg_z")
    with transcript.path.open("a") as file:
        file.write('{"type":"assistant","mess')
    assert transcript.stop("p", "end").answer == "end"
    assert transcript.stop("o", "x" * 5000).answer == "x" * 5000


def test_a_turn_that_a_background_task_began_belongs_to_the_turn_that_started_it(
    transcript: Transcript,
) -> None:
    transcript.prompt("p")
    transcript.calls("toolu_7")
    transcript.result("p")
    transcript.says("It runs.", "msg_2")
    tasks = [{"id": "t", "type": "shell", "status": "running"}]
    first = transcript.stop("p", "It runs.", background_tasks=tasks)
    assert (first.turn, first.background) == ("p", 1)
    transcript.prompt("q", "<task-notification>\n<tool-use-id>toolu_7</tool-use-id>\n</task-notification>")
    transcript.calls("toolu_8", "msg_3")
    transcript.result("q")
    transcript.says("Done.", "msg_4")
    second = transcript.stop("q", "Done.")
    assert (second.turn, second.answer, second.background) == ("p", "Done.", 0)
    transcript.prompt("r", "<task-notification><tool-use-id>toolu_8</tool-use-id></task-notification>")
    transcript.says("All done.", "msg_5")
    assert transcript.stop("r", "All done.").turn == "p"


def test_a_failed_turn_tells_the_error_and_what_it_had_said(transcript: Transcript) -> None:
    transcript.prompt("p")
    transcript.says("So far.")
    failed = fact(
        transcript.path.parent,
        "StopFailure",
        prompt_id="p",
        error="server_error",
        last_assistant_message="API Error: 529",
        transcript_path=str(transcript.path),
    )
    assert (failed.kind, failed.turn) == (FactKind.TURN_FAILED, "p")
    assert failed.error == "server_error: API Error: 529"
    assert failed.answer == "So far."


def test_a_sub_agents_end_or_failure_ends_no_turn(tmp_path: Path) -> None:
    assert facts(tmp_path, "StopFailure", prompt_id="p", agent_id="a", error="unknown") == []
    assert facts(tmp_path, "Stop", prompt_id="p", agent_id="a", last_assistant_message="x") == []


def test_the_partial_answer_is_what_the_newest_turn_has_said(transcript: Transcript) -> None:
    folder = transcript.path.parent
    assert DRIVER.partial(folder) is None
    spool = folder / "spool"
    spool.mkdir()
    submitted = {"prompt_id": "p", "prompt": "x", "transcript_path": str(transcript.path)}
    (spool / "1000-1.UserPromptSubmit").write_text(json.dumps(submitted))
    transcript.prompt("o")
    transcript.says("old")
    transcript.prompt("p")
    assert DRIVER.partial(folder) == ""
    transcript.says("first")
    transcript.calls()
    transcript.result("p")
    transcript.says("second", "msg_2")
    assert DRIVER.partial(folder) == "first\n\nsecond"
