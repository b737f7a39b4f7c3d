"""What an agent profile says. Reading the file it comes from is the command of `orchestrator.profiles`."""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta


class OnTimeout(StrEnum):
    CONTINUE = "continue"
    STOP = "stop"


class Completion(StrEnum):
    TURN_END = "turn_end"
    REPORT = "report"


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Seconds = Annotated[float, Meta(gt=0)]


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of agent: which CLI, with which system prompt, model and limits.

    `allowed_tools` None leaves the CLI's own default; an empty list allows none. `env` names variables that
    are passed on from the service's own environment. `command` replaces the driver's program (an argument
    vector, never a shell line). Durations are seconds; `max_duration` ends a detached job.
    """

    name: Name
    description: str = ""
    driver: str = "claude_code"
    system_prompt: str = ""
    model: str | None = None
    allowed_tools: list[str] | None = None
    command: Annotated[list[str], Meta(min_length=1)] | None = None
    env: list[str] = []
    working_directory: str | None = None
    completion: Completion = Completion.TURN_END
    on_timeout: OnTimeout = OnTimeout.CONTINUE
    max_duration: Seconds = 24 * 3600.0
    start_timeout: Seconds = 60.0
    mcp: bool = True
    """Whether the agent gets the service's own tools."""


class ProfileSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a profile was found: `project`, `user` or `built-in`, and the file."""

    kind: str
    path: str


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One name of the catalogue. A broken file poisons its name: `profile` is None and `problems` say why."""

    name: str
    source: ProfileSource
    profile: Profile | None = None
    problems: list[str] = []
