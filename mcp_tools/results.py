"""How an answer looks to the model that called a tool: what it asked for, exactly and alone, then the facts.

An answer that is an error says everything in its first block, because clients may show only that one.
"""

from collections.abc import Sequence
from typing import Any

import mcp_types as types
import msgspec

from orchestrator.domain.errors import ChangeoverError
from orchestrator.wire import HandoffResult, OutputPage, ProfileList, WaitResponse, WaitState

DONE = frozenset({"completed", "cancelled"})

PROGRAMS = frozenset({"mcp", "inspector-client", "scripted"})
"""The names of the SDK's own client, the MCP Inspector and our scripted agent, unless told otherwise."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool has to say: text blocks, and the facts about them as a JSON object, if there are any."""

    blocks: list[str]
    facts: dict[str, Any] | None = None
    is_error: bool = False


def shows_text_beside_structure(client_name: str | None) -> bool:
    """Whether a client that gets `structuredContent` still shows its user or model the text of a result.

    Agent CLIs do not: Claude Code 2.1.332 (measured), Codex, opencode and Copilot CLI give their model the
    JSON in place of the text, and the answer would be lost. With the answer in both, a large one would be
    sent twice. So only clients known to be programs get it, and everyone else the facts as a last block.
    """
    return client_name is not None and (client_name in PROGRAMS or client_name.startswith("changeover"))


def shown(answer: Answer, client_name: str | None) -> types.CallToolResult:
    """The answer in the form that this client can make use of."""
    structured = answer.facts if shows_text_beside_structure(client_name) else None
    blocks = list(answer.blocks)
    if answer.facts is not None and structured is None:
        blocks.append(_json(answer.facts))
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=block) for block in blocks]
    return types.CallToolResult(content=content, structured_content=structured, is_error=answer.is_error)


def failure(error: ChangeoverError, ids: Sequence[str] = (), advice: str = "") -> Answer:
    """An expected failure: `code: detail`, the ids it is about, and what to do."""
    text = f"{error.code}: {error.detail}"
    if ids:
        text += f"\nhandoff_id: {', '.join(ids)}"
    if advice:
        text += f"\n{advice}"
    facts: dict[str, Any] = {"code": error.code, "detail": error.detail}
    facts |= {"facts": error.facts} if error.facts else {}
    facts |= {"handoff_ids": list(ids)} if ids else {}
    return Answer(blocks=[text], facts=facts, is_error=True)


def waited(response: WaitResponse) -> Answer:
    """One handoff: its answer. Several, in the order asked for: a heading for each, then its answer."""
    handoffs = [_with_wait(each, response) for each in response.handoffs]
    if len(handoffs) == 1:
        [result] = handoffs
        return Answer(blocks=_body(result), facts=_facts(result), is_error=_failed(result))
    blocks = [block for each in handoffs for block in (_heading(each), *_body(each))]
    facts = {"wait": response.wait, "handoffs": [_facts(each) for each in handoffs]}
    return Answer(blocks=blocks or ["No handoff of yours is open or uncollected."], facts=facts)


def assigned(result: HandoffResult) -> Answer:
    text = (
        f"Handed to {result.agent_profile} as {result.handoff_id}. It works on its own; collect the answer "
        "with wait_handoff."
    )
    return Answer(blocks=[text], facts=_facts(result))


def settled(result: HandoffResult, what: str) -> Answer:
    return Answer(blocks=[f"Handoff {result.handoff_id} {what}."], facts=_facts(result))


def page(found: OutputPage) -> Answer:
    """The page's text alone; the facts say where it stands in the whole."""
    return Answer(blocks=[found.output], facts=_builtins(found, "output"))


def profiles(found: ProfileList) -> Answer:
    return Answer(blocks=[_json(found.items)])


def wait_advice(ids: Sequence[str]) -> str:
    return f"The work goes on. Ask again with wait_handoff(handoff_ids={_json(list(ids))})."


def _facts(result: HandoffResult) -> dict[str, Any]:
    """All of a result but its output; what is not set is left out."""
    return _builtins(result, "output")


def _builtins(record: msgspec.Struct, but: str) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(record).items() if name != but}


def _heading(result: HandoffResult) -> str:
    state = result.outcome or result.status
    return f"Handoff {result.handoff_id} to {result.agent_profile}: {state}"


def _with_wait(result: HandoffResult, response: WaitResponse) -> HandoffResult:
    if result.status in DONE:
        return result
    return msgspec.structs.replace(result, wait=response.wait)


def _body(result: HandoffResult) -> list[str]:
    if result.status not in DONE:
        return [_unfinished(result), *_partial(result)]
    if _failed(result):
        return ["\n\n".join([_failure_text(result), *_partial(result)])]
    return [result.output or "", *_truncation(result)]


def _failed(result: HandoffResult) -> bool:
    return result.status in DONE and result.outcome != "succeeded"


def _unfinished(result: HandoffResult) -> str:
    phase = f" ({result.phase})" if result.phase else ""
    head = "The wait ran out" if result.wait == WaitState.TIMED_OUT else "Still at work"
    lines = [
        f"{head}: handoff {result.handoff_id} to {result.agent_profile} is {result.status}{phase}, "
        "and there is no answer yet."
    ]
    if result.queue_place:
        lines.append(f"It waits for a free terminal at place {result.queue_place}.")
    if result.question:
        lines.append(f"The agent asks, and a person has to answer: {result.question}")
    return "\n".join([*lines, wait_advice([result.handoff_id])])


def _partial(result: HandoffResult) -> list[str]:
    if not result.output:
        return []
    return [f"Partial output so far, not the answer:\n{result.output}", *_truncation(result)]


def _truncation(result: HandoffResult) -> list[str]:
    if not result.truncated:
        return []
    return [
        f"That is head and tail of {result.output_chars} characters. All of it: "
        f"read_output(handoff_id={_json(result.handoff_id)}, offset=0)."
    ]


def _failure_text(result: HandoffResult) -> str:
    word = result.outcome or result.status
    error = result.error
    head = f"{error.code}: {error.detail}" if error else f"{word}: there is no answer"
    lines = [head, f"Handoff {result.handoff_id} to {result.agent_profile}: {word}."]
    exit_status = error.exit_status if error and error.exit_status is not None else result.exit_status
    if exit_status is not None:
        lines.append(f"Exit status: {exit_status}")
    if error and error.signal:
        lines.append(f"Signal: {error.signal}")
    if result.cancel_reason:
        lines.append(f"Reason: {result.cancel_reason}")
    if error and error.last_lines:
        lines.append(f"Last lines of its terminal:\n{error.last_lines}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
