"""How an answer looks to the model that called a tool.

Two text blocks: what it asked for, exactly and alone, then the facts as one JSON object. There is no
`structuredContent`: agent CLIs that get one show their model its JSON in place of the text (Claude Code
2.1.332, measured), and with the answer in both a large one would be sent twice. An answer that is an error
says everything in its first block, because clients may show only that one.
"""

from collections.abc import Sequence
from typing import Any

import mcp_types as types
import msgspec

from orchestrator.domain.errors import ChangeoverError
from orchestrator.wire import HandoffResult, OutputPage, ProfileList, WaitResponse, WaitState

DONE = frozenset({"completed", "cancelled"})


def answer(*blocks: str, is_error: bool = False) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=block) for block in blocks]
    return types.CallToolResult(content=content, is_error=is_error)


def failure(error: ChangeoverError, ids: Sequence[str] = (), advice: str = "") -> types.CallToolResult:
    """An expected failure: `code: detail`, the ids it is about, and what to do."""
    text = f"{error.code}: {error.detail}"
    if ids:
        text += f"\nhandoff_id: {', '.join(ids)}"
    if advice:
        text += f"\n{advice}"
    facts: dict[str, Any] = {"code": error.code, "detail": error.detail}
    facts |= {"facts": error.facts} if error.facts else {}
    facts |= {"handoff_ids": list(ids)} if ids else {}
    return answer(text, _json(facts), is_error=True)


def one(result: HandoffResult) -> types.CallToolResult:
    """The answer of one handoff that the caller waited for."""
    return answer(*_body(result), facts(result), is_error=_failed(result))


def many(response: WaitResponse) -> types.CallToolResult:
    """Several handoffs, in the order asked for: the facts of each, then its answer in a block of its own."""
    if len(response.handoffs) == 1:
        return one(_waited(response.handoffs[0], response))
    summary = _json({"wait": response.wait, "handoffs": len(response.handoffs)})
    blocks = [block for each in response.handoffs for block in (facts(each), *_body(each))]
    return answer(summary, *blocks or ["No handoff of yours is open or uncollected."])


def assigned(result: HandoffResult) -> types.CallToolResult:
    text = (
        f"Handed to {result.agent_profile} as {result.handoff_id}. It works on its own; collect the answer "
        "with wait_handoff."
    )
    return answer(text, facts(result))


def settled(result: HandoffResult, what: str) -> types.CallToolResult:
    return answer(f"Handoff {result.handoff_id} {what}.", facts(result))


def page(found: OutputPage) -> types.CallToolResult:
    """The page's text alone, then where it stands in the whole."""
    rest = {name: getattr(found, name) for name in found.__struct_fields__ if name != "output"}
    return answer(found.output, _json(rest))


def profiles(found: ProfileList) -> types.CallToolResult:
    return answer(_json(found.items))


def facts(result: HandoffResult) -> str:
    """All of a result but its output, as one JSON object; what is not set is left out."""
    return _json(msgspec.structs.replace(result, output=None))


def wait_advice(ids: Sequence[str]) -> str:
    return f"The work goes on. Ask again with wait_handoff(handoff_ids={_json(list(ids))})."


def _waited(result: HandoffResult, response: WaitResponse) -> HandoffResult:
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
