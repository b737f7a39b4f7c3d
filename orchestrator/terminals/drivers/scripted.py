"""The `scripted` driver: an agent that does what its task says, for examples and tests without an account.

The program is `scripted_agent.py` beside this module; its docstring says what tasks, events and switches it
knows. A profile's `command` whose first item begins with `--` adds switches to it; any other `command` is run
in its place as it is, and has to behave like it.

The agent has no model to instruct: a profile's system prompt is a text for people, and is not passed on.
"""

import marshal
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from orchestrator.domain.agent import AgentFact, FactKind, Source
from orchestrator.ports import AgentSpec
from orchestrator.terminals.driver import Launch, Look, Readiness, SpoolEntry, TypingRules, View

PROGRAM = Path(__file__).with_name("scripted_agent.py")
LOG = "turns.jsonl"
"""In the terminal's folder: each submitted turn as one JSON line."""
PARTIAL = "partial.txt"

_PROMPT = "❯"
_SPINNER = "✻ Orbiting…"
_CHOICES = "Allow? 1) Yes 2) No"


class Scripted:
    """See the module's docstring; the port's contract is that of `Driver`."""

    name = "scripted"
    program = sys.executable
    typing = TypingRules()
    readiness = Readiness.HOOK
    env_names = ()

    def check(self, spec_problems: list[str], spec: AgentSpec) -> None:
        if spec.profile.model is not None:
            spec_problems.append("The scripted agent has no model to choose.")
        if spec.profile.allowed_tools is not None:
            spec_problems.append("The scripted agent cannot restrict its tools.")

    def prepare(self, spec: AgentSpec, folder: Path) -> Launch:
        command = spec.profile.command or []
        if command and not command[0].startswith("--"):
            argv = list(command)
        else:
            program = folder / PROGRAM.with_suffix(".pyc").name
            program.touch(mode=0o600)
            program.write_bytes(_bytecode())
            argv = [sys.executable, "-I", "-S", str(program)]
            argv += ["--log", str(folder / LOG), "--partial", str(folder / PARTIAL), *command]
        return Launch(argv=argv)

    def compose(self, text: str, header: str | None, folder: Path) -> str:
        return f"{header}\n{text}" if header else text

    def interpret(self, terminal_id: str, entry: SpoolEntry, folder: Path) -> list[AgentFact]:
        meaning = _MEANINGS.get(entry.event)
        if meaning is None or "raw" in entry.payload:
            return []
        kind, fields = meaning
        return [
            AgentFact(
                terminal_id=terminal_id,
                kind=kind,
                at=entry.at,
                source=Source.HOOK,
                **fields(entry.payload),
            )
        ]

    def took(self, fact: AgentFact, typed: str) -> bool:
        return fact.text == typed

    def look(self, screen: str) -> Look:
        """The composer, or a dialog in its place, is the last thing on the screen; text above is indented
        or behind a marker, so that none of it passes for a prompt."""
        lines = screen.rstrip().split("\n")
        if lines[-1] == _CHOICES:
            return Look(view=View.DIALOG, question=_question(lines[:-1]))
        prompts = [number for number, line in enumerate(lines) if line.startswith(_PROMPT)]
        if not prompts:
            return Look(view=View.OTHER)
        prompt = prompts[-1]
        if prompt and lines[prompt - 1].startswith(_SPINNER):
            return Look(view=View.BUSY)
        draft = lines[prompt][1:].strip() or lines[prompt + 1 :]
        return Look(view=View.DRAFT if draft else View.PROMPT)

    def partial(self, folder: Path) -> str | None:
        try:
            return (folder / PARTIAL).read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def version_argv(self) -> list[str] | None:
        return [sys.executable, "-I", "-S", str(PROGRAM), "--version"]


@cache
def _bytecode() -> bytes:
    """The program compiled: compiling it at each start took 25 of its 40 ms to the prompt.

    Python runs a bytecode file as it is; the twelve bytes that tell its source's age are not looked at.
    """
    code = compile(PROGRAM.read_bytes(), str(PROGRAM), "exec", dont_inherit=True)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def _question(lines: list[str]) -> str:
    """The dialog's text; it is one line, and several rows on a screen that was read row by row."""
    starts = [number for number, line in enumerate(lines) if line.startswith("? ")]
    return "".join(lines[starts[-1] :])[2:] if starts else ""


def _pick(*names: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda payload: {name: payload.get(name) for name in names}


def _answered(payload: Mapping[str, Any]) -> dict[str, Any]:
    return _pick("turn", "question_id")(payload) | {"evidence": {"answer": payload.get("answer")}}


_MEANINGS: dict[str, tuple[FactKind, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "ready": (FactKind.READY, _pick()),
    "submitted": (FactKind.SUBMITTED, _pick("turn", "text")),
    "asking": (FactKind.ASKING, _pick("turn", "question", "question_id")),
    "answered": (FactKind.ANSWERED, _answered),
    "stopped": (FactKind.TURN_ENDED, _pick("turn", "answer")),
    "failed": (FactKind.TURN_FAILED, _pick("turn", "error", "answer")),
}
