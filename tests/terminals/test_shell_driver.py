"""The shell driver with real shells on a real pseudo-terminal: a task is a script, the answer its output."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from orchestrator.domain.agent import AgentFact, FactKind
from orchestrator.domain.profile import Profile
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import View
from orchestrator.terminals.drivers.shell import Shell
from tests.terminals.pty_program import PtyProgram, prepared

DRIVER = Shell()


class RunningShell:
    """A shell and the facts it tells."""

    def __init__(self, program: PtyProgram) -> None:
        self.program = program
        self.folder = program.folder
        self.turns = 0

    def begin(self, task: str) -> None:
        self.turns += 1
        self.program.type(DRIVER.compose(task, None, self.folder).encode() + b"\r")

    def fact(self, event: str) -> AgentFact:
        entry = self.program.event(event, self.turns)
        (fact,) = DRIVER.interpret("term_1", entry, self.folder)
        return fact

    def run(self, task: str) -> tuple[int | None, str | None]:
        """The status and the answer of a task."""
        self.begin(task)
        fact = self.fact("stopped")
        assert fact.kind is FactKind.TURN_ENDED
        return fact.exit_status, fact.answer


@pytest.fixture(
    params=[None, ["dash"], ["dash", "-i"], ["sh"]], ids=lambda command: " ".join(command or ["bash"])
)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningShell]:
    launch = prepared(DRIVER, tmp_path, request.param)
    with PtyProgram(launch.argv, tmp_path, env=launch.env) as program:
        program.event("ready")
        yield RunningShell(program)


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[RunningShell]:
    launch = prepared(DRIVER, tmp_path)
    with PtyProgram(launch.argv, tmp_path, env=launch.env) as program:
        program.event("ready")
        yield RunningShell(program)


@pytest.mark.parametrize(
    ("task", "status", "answer"),
    [
        ("echo hello; echo world", 0, "hello\nworld"),
        ("true", 0, ""),
        ("false", 1, ""),
        ("exit 3", 3, ""),
        ("echo before\nexit 4\necho never", 4, "before"),
        ("printf 'no newline'", 0, "no newline"),
        ("printf 'a\\n\\n\\n'", 0, "a\n\n"),
        ("echo out; echo error >&2; echo device >/dev/stderr; echo last", 0, "out\nerror\ndevice\nlast"),
        ("cat <<END\nhere $((1 + 1))\n  'and' \"there\"\nEND\n", 0, "here 2\n  'and' \"there\""),
        ("printf 'wörld 漢 😀\\r\\n\\t\\033[1mx\\n'", 0, "wörld 漢 😀\r\n\t\x1b[1mx"),
        ("printf '\\377\\000x'", 0, "\ufffd\x00x"),
        ("printf '%s' '!! $HOME ` \\ ; &&'", 0, "!! $HOME ` \\ ; &&"),
        ('test -t 0 && ! test -t 1 && echo "$#"', 0, "0"),
        ("set -e\nfalse\necho never", 1, ""),
        ("kill -TERM $(sh -c 'echo $PPID')", 143, ""),
    ],
    ids=repr,
)
def test_the_answer_is_the_exact_output_and_the_status_is_told(
    shell: RunningShell, task: str, status: int, answer: str
) -> None:
    assert shell.run(task) == (status, answer)


def test_a_syntax_error_is_an_answer_with_its_status(shell: RunningShell) -> None:
    status, answer = shell.run("echo 'unbalanced")
    assert status == 2 or status == 1
    assert answer is not None
    assert "ntermin" in answer or "EOF" in answer
    assert shell.run("echo still here") == (0, "still here")


def test_a_task_leaves_no_trace_in_the_shell(shell: RunningShell) -> None:
    shell.run("cd /; x=1; alias echo=false; trap 'exit 9' EXIT; exec 8>&1; set -f")
    status, answer = shell.run('echo "$x" "$(pwd)" *.task')
    assert (status, answer) == (0, f" {shell.folder} *.task")


def test_a_process_left_in_the_background_does_not_hold_the_turn(shell: RunningShell) -> None:
    begun = time.monotonic()
    task = (
        "(until test -e go; do sleep 0.02; done; echo late; echo later >/dev/stderr; touch gone) &\necho now"
    )
    assert shell.run(task) == (0, "now")
    assert time.monotonic() - begun < 10
    assert shell.run("touch go; echo next") == (0, "next")
    shell.program.until((shell.folder / "gone").exists)
    shell.program.shown("later")
    (fact,) = DRIVER.interpret("term_1", shell.program.event("stopped", 1), shell.folder)
    assert fact.answer == "now"


def test_an_output_of_megabytes_is_whole(shell: RunningShell) -> None:
    status, answer = shell.run("seq 300000; head -c 1000000 /dev/zero | tr '\\0' x")
    assert status == 0
    assert answer == "".join(f"{number}\n" for number in range(1, 300_001)) + "x" * 1_000_000


def test_an_interrupt_key_ends_the_task_and_its_turn_is_told(shell: RunningShell) -> None:
    # Said by the command itself: a key that comes before a shell's child is that command is lost in bash.
    shell.begin("sh -c 'echo begun; exec sleep 30'; echo never")
    shell.program.shown("begun")
    shell.program.type(b"\x03")
    fact = shell.fact("stopped")
    assert fact.exit_status in (130, 128 + signal.SIGINT)
    assert fact.answer is not None
    assert fact.answer.startswith("begun")
    assert shell.run("echo next") == (0, "next")


def test_a_task_that_kills_its_own_turn_is_still_told_to_be_over(shell: RunningShell) -> None:
    status, _ = shell.run("kill -9 0")
    assert status == 137
    assert shell.run("echo next") == (0, "next")


def test_standard_input_is_the_terminal(shell: RunningShell) -> None:
    shell.begin("printf 'name? '; read -r name; echo \"hello $name\"")
    shell.program.shown("name? ")
    shell.program.type("Jürgen\r".encode())
    assert shell.fact("stopped").answer == "name? hello Jürgen"


def test_a_submit_tells_the_task_s_text_and_is_recognised_by_what_was_typed(bash: RunningShell) -> None:
    task = "echo 'a\nb'\n\n"
    typed = DRIVER.compose(task, "[handoff h_1]", bash.folder)
    bash.turns += 1
    bash.program.type(typed.encode() + b"\r")
    fact = bash.fact("submitted")
    assert (fact.kind, fact.turn, fact.text) == (FactKind.SUBMITTED, "1", task)
    assert DRIVER.took(fact, typed)
    assert not DRIVER.took(fact, DRIVER.compose(task, None, bash.folder))


def test_a_task_typed_again_is_not_run_again(bash: RunningShell) -> None:
    assert bash.run("echo x >>ran") == (0, "")
    bash.program.type(b" changeover_run 1\r changeover_run 99\r")
    bash.program.shown("Task 99 does not exist")
    assert bash.run("cat ran") == (0, "x")
    assert [entry.event for entry in bash.program.events()] == ["ready", *["submitted", "stopped"] * 2]


def test_the_partial_answer_grows_and_is_gone_after_the_turn(bash: RunningShell) -> None:
    assert DRIVER.partial(bash.folder) is None
    bash.begin("echo one; read -r x; echo two; read -r x")
    bash.program.until(lambda: DRIVER.partial(bash.folder) == "one")
    bash.program.type(b"\r")
    bash.program.until(lambda: DRIVER.partial(bash.folder) == "one\ntwo")
    bash.program.type(b"\r")
    assert bash.fact("stopped").answer == "one\ntwo"
    assert DRIVER.partial(bash.folder) is None


def test_what_a_dying_shell_had_printed_is_its_partial_answer(bash: RunningShell) -> None:
    bash.begin("echo half; sync tasks/1.out; sleep 0.2; kill -9 $$")
    assert bash.program.ended() == -9
    assert DRIVER.partial(bash.folder) == "half"
    assert not [entry for entry in bash.program.events() if entry.event == "stopped"]


def test_a_turn_whose_output_is_gone_has_failed(bash: RunningShell) -> None:
    bash.run("true")
    (bash.folder / "tasks" / "1.out").unlink()
    fact = bash.fact("stopped")
    assert fact.kind is FactKind.TURN_FAILED
    assert fact.error is not None


def test_files_of_a_turn_are_private_and_no_pipe_is_left(bash: RunningShell) -> None:
    bash.run("true")
    assert sorted(path.name for path in (bash.folder / "tasks").iterdir()) == ["1.out", "1.status", "1.task"]
    assert (bash.folder / "tasks" / "1.status").read_text() == "0\n"
    assert (bash.folder / "tasks").stat().st_mode & 0o777 == 0o700


def test_screens_of_a_shell_tell_whether_it_waits(bash: RunningShell) -> None:
    assert DRIVER.look("❯").view is View.PROMPT
    assert DRIVER.look("❯ make\nok\n\n❯").view is View.PROMPT
    assert DRIVER.look("❯ make").view is View.DRAFT
    assert DRIVER.look("❯  changeover_run 3").view is View.BUSY
    assert DRIVER.look("❯  changeover_run 3\ncompiling").view is View.BUSY
    assert DRIVER.look("").view is View.OTHER


def test_what_the_profile_asks_for_in_vain_is_said() -> None:
    def problems(profile: Profile) -> list[str]:
        said: list[str] = []
        spec = AgentSpec(terminal_id="t", profile=profile, working_directory="/", token="", url="")
        DRIVER.check(said, spec)
        return said

    assert problems(Profile(name="x", driver="shell", command=["/bin/dash", "-i"])) == []
    assert (
        len(problems(Profile(name="x", driver="shell", model="m", allowed_tools=[], command=["fish"]))) == 3
    )


def test_a_turn_takes_some_dozen_milliseconds(bash: RunningShell) -> None:
    """A generous limit: alone on the machine it is about 15 ms."""
    took = list[int]()
    for _ in range(10):
        pressed = time.time_ns()
        bash.run("true")
        took.append(int(bash.program.events()[-1].id.split("-")[0]) - pressed)
    assert median(took) < 250_000_000
