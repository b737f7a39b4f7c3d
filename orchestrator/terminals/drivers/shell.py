"""The `shell` driver: an interactive shell as an agent. The task is a script, the answer is what it printed.

A task is not typed: `compose` writes it to a file, and what is typed is one short line that runs that file in
a subshell, so that line breaks, here-documents, quotes left open and `exit` mean what they mean in a script.
The subshell starts in the shell's folder and leaves nothing behind in it but processes it put into the
background; standard input is the terminal. How a turn runs is in `shell_turn.sh` beside this module.

The answer is the exact output, standard output and error together, without its one final newline; bytes that
are not UTF-8 are replaced. A status other than 0 is an answer too: the fact carries it.

The default is bash, without the user's own start-up files. A profile's `command` names another shell (dash
or sh) or other arguments.
"""

import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.domain.agent import AgentFact, FactKind, Source
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import Launch, Look, Readiness, SpoolEntry, TypingRules, View

TASKS = "tasks"
START = "shell_start.sh"

_TURN = Path(__file__).with_name("shell_turn.sh")
_SPOOL = Path(__file__).parent.parent / "hooks" / "spool.sh"
_FUNCTION = "changeover_run"
_PROMPT = "❯"
_MARK = b"\x1b]7770;"
_KNOWN = ("bash", "dash", "sh")


class Shell:
    """See the module's docstring; the port's contract is that of `Driver`."""

    name = "shell"
    program = "bash"
    typing = TypingRules(header=False, sees_paste=False, keeps_trailing_newlines=False)
    readiness = Readiness.HOOK
    env_names = ()

    def check(self, spec_problems: list[str], spec: AgentSpec) -> None:
        if spec.profile.model is not None:
            spec_problems.append("A shell has no model to choose.")
        if spec.profile.allowed_tools is not None:
            spec_problems.append("A shell cannot restrict its tools.")
        shell = Path(_command(spec)[0]).name
        if shell not in _KNOWN:
            spec_problems.append(f"The shell driver knows {', '.join(_KNOWN)}; it cannot start {shell!r}.")

    def prepare(self, spec: AgentSpec, folder: Path) -> Launch:
        (folder / TASKS).mkdir(mode=0o700, exist_ok=True)
        start = folder / START
        start.touch(mode=0o600)
        start.write_text(_start_file(folder), encoding="utf-8")
        program, *arguments = _command(spec)
        if "-i" not in arguments:
            arguments.append("-i")
        if Path(program).name == "bash":
            return Launch(argv=[program, "--noprofile", "--rcfile", str(start), *arguments])
        return Launch(argv=[program, *arguments], env={"ENV": str(start)})

    def compose(self, text: str, header: str | None, folder: Path) -> str:
        """Writes the task's file. The space in front keeps the line out of the shell's history."""
        number = max(_numbers(folder), default=0) + 1
        task = folder / TASKS / f"{number}.task"
        task.touch(mode=0o600, exist_ok=False)
        # A shell takes a CR before the line end as part of its last word.
        task.write_text(text.replace("\r\n", "\n"), encoding="utf-8", newline="")
        return f" {_FUNCTION} {number}"

    def interpret(self, terminal_id: str, entry: SpoolEntry, folder: Path) -> list[AgentFact]:
        fields = _fields(entry, folder)
        if fields is None:
            return []
        return [
            AgentFact(
                terminal_id=terminal_id,
                at=entry.at,
                source=Source.HOOK,
                **fields,
            )
        ]

    def took(self, fact: AgentFact, typed: str) -> bool:
        return typed.split() == [_FUNCTION, fact.turn]

    def look(self, screen: str) -> Look:
        last = screen.rstrip().rpartition("\n")[2]
        if not last.startswith(_PROMPT):
            return Look(view=View.BUSY if _PROMPT in screen else View.OTHER)
        typed = last.removeprefix(_PROMPT)
        if typed.split()[:1] == [_FUNCTION]:
            return Look(view=View.BUSY)
        return Look(view=View.DRAFT if typed.strip() else View.PROMPT)

    def partial(self, folder: Path) -> str | None:
        number = max(_numbers(folder), default=0)
        if (folder / TASKS / f"{number}.status").exists():
            return None
        try:
            output = (folder / TASKS / f"{number}.out").read_bytes()
        except FileNotFoundError:
            return None
        return _answer(output.partition(_MARK)[0])

    def version_argv(self) -> list[str] | None:
        return [self.program, "--version"]


def _command(spec: AgentSpec) -> list[str]:
    return list(spec.profile.command or [Shell.program])


def _start_file(folder: Path) -> str:
    """The shell's start-up file. The mark is new for each shell, so that no output holds it by accident."""
    return (
        f"changeover_folder={shlex.quote(str(folder))}\n"
        f"changeover_spool={shlex.quote(str(_SPOOL))}\n"
        f"changeover_mark=changeover-{secrets.token_hex(8)}\n"
        f". {shlex.quote(str(_TURN))}\n"
    )


def _numbers(folder: Path) -> list[int]:
    return [int(path.stem) for path in (folder / TASKS).glob("*.task")]


def _answer(output: bytes) -> str:
    return output.decode("utf-8", "replace").removesuffix("\n")


def _fields(entry: SpoolEntry, folder: Path) -> dict[str, Any] | None:
    """What the event says, as fields of a fact; None if it says nothing."""
    if entry.event == "ready":
        return {"kind": FactKind.READY}
    turn = entry.payload.get("turn")
    if not isinstance(turn, str) or not turn.isdecimal():
        return None
    task = folder / TASKS / turn
    if entry.event == "submitted":
        return {"kind": FactKind.SUBMITTED, "turn": turn, "text": _text_of(task.with_suffix(".task"))}
    if entry.event == "stopped":
        return {"turn": turn} | _end(entry.payload, task.with_suffix(".out"))
    return None


def _text_of(task: Path) -> str | None:
    try:
        return task.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def _end(payload: Mapping[str, Any], output: Path) -> dict[str, Any]:
    try:
        with output.open("rb") as file:
            answer = _answer(file.read(payload["size"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        return {"kind": FactKind.TURN_FAILED, "error": f"The task's output cannot be read: {error}"}
    return {"kind": FactKind.TURN_ENDED, "answer": answer, "exit_status": payload.get("exit_status")}
