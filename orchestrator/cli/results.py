"""What a handoff became, for a person and as an exit status.

Exit status of `handoff` and `wait`: 0 succeeded, 3 failed, 4 timed out, 5 interrupted, 6 cancelled, 7 the
wait ran out and the work goes on. Of several handoffs the first that is not 0 counts.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from orchestrator import wire
from orchestrator.cli.printing import end_line, note, table, write

if TYPE_CHECKING:
    from orchestrator.client import Client

FAILED, TIMED_OUT, INTERRUPTED, CANCELLED, STILL_OPEN = 3, 4, 5, 6, 7
EXIT_STATUS = {"succeeded": 0, "failed": FAILED, "timed_out": TIMED_OUT, "interrupted": INTERRUPTED}
EXIT_HELP = """\b
Exit status: 0 succeeded, 1 error, 2 wrong usage, 3 failed, 4 timed out, 5 interrupted,
6 cancelled, 7 the wait ran out and the work goes on, 130 after Ctrl-C (it goes on too)."""


def exit_status(results: Sequence[wire.HandoffResult]) -> int:
    return next((status for status in map(_one_status, results) if status), 0)


def _one_status(result: wire.HandoffResult) -> int:
    if result.status == "cancelled":
        return CANCELLED
    return EXIT_STATUS.get(result.outcome, FAILED) if result.outcome else STILL_OPEN


def is_over(result: wire.HandoffResult) -> bool:
    return result.status in {"completed", "cancelled"}


async def whole(client: "Client", result: wire.HandoffResult) -> wire.HandoffResult:
    """The result with its whole output, fetched page by page if it came cut."""
    if not result.truncated:
        return result
    page = await whole_output(client, result.handoff_id)
    return msgspec.structs.replace(result, output=page.output, truncated=False)


async def whole_output(client: "Client", handoff_id: str) -> wire.OutputPage:
    first = page = await client.output(handoff_id)
    parts = [page.output]
    while page.next_offset is not None:
        page = await client.output(handoff_id, page.next_offset)
        parts.append(page.output)
    return msgspec.structs.replace(
        first, output="".join(parts), total_chars=page.total_chars, next_offset=None, partial=page.partial
    )


def print_result(result: wire.HandoffResult) -> None:
    """The output on standard output, exactly, and how it went on standard error.

    What an unfinished handoff has so far is left to `changeover output`.
    """
    if is_over(result) and result.output:
        write(result.output)
        end_line(result.output)
        sys.stdout.flush()
    if result.partial and is_over(result) and result.output:
        note("That is what there was of the answer; it is not complete.")
    for warning in result.warnings:
        note(f"warning: {warning}")
    note(sentence(result))


def sentence(result: wire.HandoffResult) -> str:
    """How it went, in a line or a few."""
    name = result.handoff_id
    if not is_over(result):
        going = f"{name} goes on ({describe_phase(result)})."
        return (
            f"{going} `changeover wait {name}` waits again, `changeover output {name}` shows what there is."
        )
    word = result.outcome or "cancelled"
    text = f"{name} {word.replace('_', ' ')} after {result.duration_s:.1f} s"
    if result.cancel_reason:
        text += f" ({result.cancel_reason})"
    if result.error:
        text += f": {result.error.detail}"
        if result.error.last_lines:
            text += f"\nThe last lines of its screen:\n{result.error.last_lines}"
    return text


def describe_phase(result: wire.HandoffResult) -> str:
    """What is going on, in a few words."""
    phase = result.phase or result.status
    if result.queue_place is not None:
        return f"{phase}, place {result.queue_place} in the queue"
    if result.question:
        where = f"; answer with `changeover attach {result.terminal_id}`" if result.terminal_id else ""
        return f"{phase}: {' '.join(result.question.split())}{where}"
    return phase


def print_table(results: Sequence[wire.HandoffResult]) -> None:
    headings = ("HANDOFF", "PROFILE", "STATUS", "SECONDS", "TERMINAL", "NOTE")
    rows = [
        (
            result.handoff_id,
            result.agent_profile,
            result.outcome or result.status,
            f"{result.duration_s:.1f}",
            result.terminal_id or "",
            _remark(result),
        )
        for result in results
    ]
    table(headings, rows)


def _remark(result: wire.HandoffResult) -> str:
    if result.error:
        return result.error.detail
    return result.cancel_reason or "" if is_over(result) else describe_phase(result)


class Progress:
    """Tells on standard error what changes while one waits; the same thing only once."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    async def __call__(self, answer: wire.WaitResponse) -> None:
        for result in answer.handoffs:
            now = describe_phase(result)
            if not is_over(result) and self._told.get(result.handoff_id) != now:
                self._told[result.handoff_id] = now
                note(f"{result.handoff_id}: {now}")
