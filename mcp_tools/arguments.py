"""What each tool takes: one struct a tool, its JSON schema, and the strict reading of a call's arguments.

Nothing is coerced: a text arrives exactly as it was sent, whatever it looks like, and an argument that a
tool does not have is an error, never ignored.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from orchestrator.domain.errors import InvalidParams
from orchestrator.wire import DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT


class Arguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


A = TypeVar("A", bound=Arguments)

Profile = Annotated[str, Meta(description="The agent profile to hand the work to; see list_profiles.")]
Task = Annotated[
    str,
    Meta(
        description="The whole task, word for word as the agent shall get it. It knows nothing of this "
        "conversation: say what to do, where, and what to answer with."
    ),
]
Timeout = Annotated[
    int,
    Meta(
        ge=MIN_TIMEOUT,
        le=MAX_TIMEOUT,
        description=f"Seconds to wait, {MIN_TIMEOUT} to {MAX_TIMEOUT}, from the call's arrival. When they "
        "run out the agent works on, and wait_handoff waits again.",
    ),
]
Model = Annotated[
    str | None, Meta(description="Model for this handoff, instead of the profile's; as its CLI names it.")
]
Folder = Annotated[
    str | None, Meta(description="Folder the agent works in: it must exist, under an allowed root.")
]
Id = Annotated[str, Meta(description="The handoff's id, as handoff or assign returned it.")]
Ids = Annotated[
    list[str], Meta(description="Ids to wait for. Empty: all of yours that are open or not yet collected.")
]


class Handoff(Arguments):
    agent_profile: Profile
    message: Task
    timeout: Timeout = DEFAULT_TIMEOUT
    model: Model = None


class HandoffInFolder(Handoff):
    working_directory: Folder = None


class WaitHandoff(Arguments):
    handoff_ids: Ids = []
    mode: Annotated[
        Literal["all", "any"],
        Meta(description="Wait until all are done, or until any one of them is."),
    ] = "all"
    timeout: Timeout = DEFAULT_TIMEOUT


class StopHandoff(Arguments):
    handoff_id: Id


class ReadOutput(Arguments):
    handoff_id: Id
    offset: Annotated[
        int, Meta(ge=0, description="Character to start at; go on with the next_offset of the page before.")
    ] = 0


class ListProfiles(Arguments):
    pass


class CompleteHandoff(Arguments):
    result: Annotated[str, Meta(description="Your whole answer; the giver gets it word for word.")]
    outcome: Annotated[
        Literal["succeeded", "failed"],
        Meta(description="failed: you could not do the work; say why in the result."),
    ] = "succeeded"
    handoff_id: Annotated[
        str | None, Meta(description="The id in the header line above your task; without it, that very one.")
    ] = None


def schema(arguments: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments: a plain object, closed to unknown names."""
    _, components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    found = dict(components[arguments.__name__])
    return {name: value for name, value in found.items() if name != "title"}


def read(arguments: Mapping[str, Any] | None, kind: type[A]) -> A:
    """The arguments as `kind`. Raises `InvalidParams`, with what was wrong, where, and what is allowed."""
    given = dict(arguments or {})
    try:
        msgspec.json.encode(given)
    except UnicodeEncodeError:
        raise InvalidParams("a text holds half of a surrogate pair, which is no character") from None
    try:
        return msgspec.convert(given, kind, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"{error}{_hint(str(error), kind)}") from None


def _hint(error: str, kind: type[Arguments]) -> str:
    if error.endswith("`$.timeout`"):
        return f": timeout is whole seconds from {MIN_TIMEOUT} to {MAX_TIMEOUT}"
    if "unknown field" in error or "missing required" in error:
        return f": the arguments are {', '.join(kind.__struct_fields__) or 'none'}"
    return ""
