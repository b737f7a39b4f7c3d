"""The tools as a model reads about them: names, descriptions and hints, and what each runs."""

from typing import Any

import mcp_types as types

from mcp_tools import arguments, delegation
from mcp_tools.arguments import Arguments, schema
from mcp_tools.delegation import Run, Tool

INSTRUCTIONS = """\
Hand work to other coding agents, each in a terminal of its own, and get their answers.
- handoff: one task, and you wait for its answer. list_profiles says to whom.
- assign, then wait_handoff: several tasks at once. assign each (it returns at once with an id), then wait \
for all of them in one call.
- A wait that runs out loses nothing: the agent works on, and wait_handoff with the same id returns its \
answer. Never hand the same task over again because a wait ran out or a call was cut off.
- read_output pages through an answer too long for one result. stop_handoff ends work you no longer need."""

_ANSWERS = (
    "Returns the answer exactly as the agent gave it, in a block of its own, and beside it the facts "
    "(handoff_id, status, outcome, duration_s, ...) as JSON."
)

_WORK = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)
_READ = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_STOP = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
_REPORT = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

# Claude Code: offer the tool at once rather than behind its tool search; and give its model the whole of a
# long result, where it would replace what is over 50,000 characters by a preview (500,000 is its ceiling).
_AT_ONCE: dict[str, Any] = {"anthropic/alwaysLoad": True}
_LONG: dict[str, Any] = {"anthropic/maxResultSizeChars": 500_000}


def tools(*, working_directory: bool) -> dict[str, Tool]:
    """Every tool by its name, in the order they are listed."""
    work = arguments.HandoffInFolder if working_directory else arguments.Handoff
    found = [
        _tool(
            work,
            delegation.handoff,
            _WORK,
            name="handoff",
            title="Hand work to another agent and wait for its answer",
            description="Starts the agent profile in a new terminal, gives it the message as its task, and "
            f"waits until it is done. {_ANSWERS} If the timeout runs out first, the agent works on: call "
            "wait_handoff with the id. A failed agent is an error, with its exit status and last lines.",
            meta=_AT_ONCE | _LONG,
        ),
        _tool(
            work,
            delegation.assign,
            _WORK,
            name="assign",
            title="Hand work to another agent without waiting",
            description="The same as handoff, but returns at once with the handoff_id. Use it to have "
            "several agents work at the same time, then collect their answers with one wait_handoff.",
            meta=_AT_ONCE,
        ),
        _tool(
            arguments.WaitHandoff,
            delegation.wait_handoff,
            _READ,
            name="wait_handoff",
            title="Wait for handoffs and collect their answers",
            description="Waits for handoffs that assign started or whose wait ran out. For one: what handoff "
            "returns. For several: for each a heading, then its answer, and the facts of all as JSON. "
            "Without ids: all of yours that are open or not yet collected, so a lost id is no lost answer.",
            meta=_AT_ONCE | _LONG,
        ),
        _tool(
            arguments.StopHandoff,
            delegation.stop_handoff,
            _STOP,
            name="stop_handoff",
            title="Stop a handoff",
            description="Ends the agent of a handoff you gave; read_output still has its work so far.",
        ),
        _tool(
            arguments.ReadOutput,
            delegation.read_output,
            _READ,
            name="read_output",
            title="Read the whole answer of a handoff",
            description="One page of the answer, from character offset on, exactly; and as JSON where it "
            "stands, with next_offset while there is more. For answers marked truncated, and for what an "
            "agent has answered so far.",
            meta=_LONG,
        ),
        _tool(
            arguments.ListProfiles,
            delegation.list_profiles,
            _READ,
            name="list_profiles",
            title="List the agents that work can be handed to",
            description="The agent profiles by name, with what each is for, its agent CLI and its model. "
            "One with problems cannot be used.",
        ),
        _tool(
            arguments.CompleteHandoff,
            delegation.complete_handoff,
            _REPORT,
            reports=True,
            name="complete_handoff",
            title="Report the result of the handoff you were given",
            description="Ends the handoff you are working on with your result as its answer. Call it once, "
            "when the work is done and only if your task asks for a report.",
            meta=_AT_ONCE,
        ),
    ]
    return {tool.listed.name: tool for tool in found}


def _tool(
    takes: type[Arguments],
    run: Run,
    annotations: types.ToolAnnotations,
    *,
    reports: bool = False,
    **listed: Any,
) -> Tool:
    described = types.Tool(input_schema=schema(takes), annotations=annotations, **listed)
    return Tool(listed=described, arguments=takes, run=run, reports=reports)
