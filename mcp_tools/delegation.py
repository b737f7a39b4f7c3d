"""The tools of the blocking handoff: each starts, waits on, reads or ends stored work of the service.

A call waits and does no work of its own: cancelling it, or losing its connection, changes nothing about
the handoff.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import mcp_types as types
import msgspec

from mcp_tools import arguments, results
from mcp_tools.arguments import Arguments
from mcp_tools.results import Answer
from mcp_tools.waiting import Patience, Progress, follow, key_of, keyed_by_content, retried
from orchestrator import wire
from orchestrator.client import Client
from orchestrator.domain.errors import (
    ChangeoverError,
    DuplicateIdempotencyKey,
    Interrupted,
    InvalidParams,
    Unavailable,
)
from orchestrator.wire import HandoffRequest, HandoffResult, WaitResponse


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for every call of one server.

    `caller_directory` is where the caller stands, if that is known. `stopping`, once set, ends every wait
    with `interrupted`.
    """

    working_directory_enabled: bool
    caller_directory: str | None
    progress_interval: float
    patience: Patience
    stopping: anyio.Event


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool: whom it asks, when it arrived, how it tells its progress (None: unwanted)."""

    client: Client
    meta: Mapping[str, Any]
    arrival: float
    tell: Callable[..., Awaitable[None]] | None
    options: Options


Run = Callable[[Call, Any], Awaitable[Answer]]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is listed, and what runs. `reports` keeps it for callers with a terminal's credential."""

    listed: types.Tool
    arguments: type[Arguments]
    run: Run
    reports: bool = False


async def handoff(call: Call, given: arguments.Handoff) -> Answer:
    started = await _start(call, given, waits=True)
    waited = await _wait(call, [started.handoff_id], "all", given.timeout, started)
    if isinstance(waited, ChangeoverError):
        return _lost(waited, [started.handoff_id])
    return results.waited(waited)


async def assign(call: Call, given: arguments.Handoff) -> Answer:
    return results.assigned(await _start(call, given, waits=False))


async def wait_handoff(call: Call, given: arguments.WaitHandoff) -> Answer:
    waited = await _wait(call, given.handoff_ids, given.mode, given.timeout)
    if isinstance(waited, ChangeoverError):
        return _lost(waited, given.handoff_ids)
    return results.waited(waited)


async def stop_handoff(call: Call, given: arguments.StopHandoff) -> Answer:
    key, _ = key_of(call.meta)
    result = await _asked(call, lambda: call.client.stop(given.handoff_id, key))
    return results.settled(result, f"is {result.outcome or result.status}")


async def read_output(call: Call, given: arguments.ReadOutput) -> Answer:
    return results.page(await _asked(call, lambda: call.client.output(given.handoff_id, given.offset)))


async def list_profiles(call: Call, given: arguments.ListProfiles) -> Answer:
    return results.profiles(await _asked(call, call.client.profiles))


async def complete_handoff(call: Call, given: arguments.CompleteHandoff) -> Answer:
    key, _ = key_of(call.meta)
    report = wire.CompleteRequest(result=given.result, outcome=given.outcome)
    handoff_id = given.handoff_id
    if handoff_id is None:
        handoff_id = (await _asked(call, call.client.caller)).handoff_id
    if handoff_id is None:
        raise InvalidParams(
            "this agent was started for no handoff: name the handoff_id of the one to complete"
        )
    result = await _asked(call, lambda: call.client.complete(handoff_id, report, key))
    return results.settled(result, "is reported; its giver has your result")


async def _asked(call: Call, act: Callable[[], Awaitable[Any]]) -> Any:
    return await retried(call.options.patience.first, act)


async def _start(call: Call, given: arguments.Handoff, *, waits: bool) -> HandoffResult:
    folder = given.working_directory if isinstance(given, arguments.HandoffInFolder) else None
    request = HandoffRequest(
        agent_profile=given.agent_profile,
        message=given.message,
        timeout=given.timeout,
        working_directory=folder,
        model=given.model,
        waits=waits,
        caller_directory=call.options.caller_directory,
    )
    key, from_client = key_of(call.meta)
    try:
        return await _asked(call, lambda: call.client.start_handoff(request, key=key))
    except DuplicateIdempotencyKey:
        if not from_client:
            raise
        key = keyed_by_content(key, request)
        return await _asked(call, lambda: call.client.start_handoff(request, key=key))


async def _wait(
    call: Call, ids: Sequence[str], mode: str, seconds: int, started: HandoffResult | None = None
) -> WaitResponse | ChangeoverError:
    """Waits until done or `seconds` after the call's arrival, telling the client meanwhile."""
    options, ended = call.options, anyio.CancelScope()
    progress = Progress(call.tell, call.arrival, options.progress_interval) if call.tell else None
    if progress and started:
        progress.saw([started])

    def seen(answer: WaitResponse) -> None:
        if progress:
            progress.saw(answer.handoffs)

    async def end_when_stopping() -> None:
        await options.stopping.wait()
        ended.cancel()

    waited: WaitResponse | ChangeoverError = Interrupted("the service is stopping")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_when_stopping)
        if progress:
            tasks.start_soon(progress.run)
        with ended:
            try:
                waited = await follow(call.client, ids, mode, call.arrival + seconds, options.patience, seen)
            except ChangeoverError as error:
                waited = error
        tasks.cancel_scope.cancel()
    return waited


def _lost(error: ChangeoverError, ids: Sequence[str]) -> Answer:
    passing = isinstance(error, Unavailable | Interrupted)
    return results.failure(error, ids, results.wait_advice(ids) if passing and ids else "")
