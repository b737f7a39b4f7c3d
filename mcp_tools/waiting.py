"""Waiting on stored work: the key a call is known by, retries, long polls, and progress.

The work is a job of the service. Whatever ends a wait here (its time, a cancel, a lost connection, the end
of this process) leaves the job as it is.
"""

import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import anyio
import msgspec
import stamina

from orchestrator import wire
from orchestrator.client import Client
from orchestrator.domain.errors import Interrupted, Unavailable
from orchestrator.wire import HandoffResult, WaitResponse, WaitState

T = TypeVar("T")

KEY_NAMES = (
    "claudecode/toolUseId",
    "callId",
    "toolUseId",
    "toolCallId",
    "tool_use_id",
    "tool_call_id",
    "idempotencyKey",
)
"""Where clients put the id of a tool call in `_meta`: Claude Code, Codex, then whoever else."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a service that does not answer is asked again, in seconds.

    `first` before it was heard in this call, `outage` after: a job that exists is worth waiting for through
    a restart. `poll` is the longest single poll. `settle` is how long after the deadline a job may still be
    seen to end, so that a stop at that very deadline is reported as what it is.
    """

    first: float = 2.0
    outage: float = 60.0
    poll: float = 10.0
    settle: float = 0.5


def key_of(meta: Mapping[str, Any] | None) -> tuple[str, bool]:
    """The key a call is repeated under, and whether the client chose it."""
    for name in KEY_NAMES:
        value = (meta or {}).get(name)
        if isinstance(value, str) and value:
            fits = len(value) <= 200 and all("!" <= character <= "~" for character in value)
            return value if fits else hashlib.sha256(value.encode(errors="replace")).hexdigest(), True
    return uuid4().hex, False


def keyed_by_content(key: str, request: msgspec.Struct) -> str:
    """A key for a client that uses the same tool-use id for different calls: its id and what it asks."""
    return f"{key}:{hashlib.sha256(msgspec.json.encode(request)).hexdigest()[:32]}"


async def retried(seconds: float, act: Callable[[], Awaitable[T]]) -> T:
    """Runs `act`, again with jittered pauses for `seconds` while nothing answers; then raises `Unavailable`.

    Any other failure is final. What `act` changes has to be known by one key.
    """
    retries = stamina.retry_context(
        on=(Unavailable, Interrupted),
        attempts=None,
        timeout=seconds,
        wait_initial=0.05,
        wait_max=1.0,
        wait_jitter=0.2,
    )
    async for attempt in retries:
        with attempt:
            return await act()
    raise AssertionError("unreachable: the last attempt raises")


async def follow(
    client: Client,
    ids: Sequence[str],
    mode: str,
    deadline: float,
    patience: Patience,
    seen: Callable[[WaitResponse], None],
) -> WaitResponse:
    """Long polls until `all` or `any` of `ids` are done, or until `deadline` on the clock of `anyio`.

    No ids: those the first answer names. `seen` gets every answer. A wait that ran out is `timed_out`, with
    the latest there is. Raises `Unavailable` when the service stays away.
    """
    wanted, heard = list(ids), bool(ids)

    async def poll() -> WaitResponse:
        left = max(0.0, min(patience.poll, deadline + patience.settle - anyio.current_time()))
        answer = await client.wait(wire.WaitRequest(handoff_ids=wanted, mode=mode, timeout=left))
        if answer.wait == WaitState.INTERRUPTED:
            raise Interrupted("the service is stopping")
        return answer

    while True:
        left = max(patience.first, deadline - anyio.current_time())
        answer = await retried(min(patience.outage, left) if heard else patience.first, poll)
        heard, wanted = True, wanted or [each.handoff_id for each in answer.handoffs]
        seen(answer)
        if answer.wait == WaitState.DONE or anyio.current_time() >= deadline + patience.settle:
            return answer


class Progress:
    """Tells a client that asked for it how its call goes: at once, then every `interval` seconds.

    Values rise strictly: they are the seconds since `arrival`. `send` is the session's `report_progress`.
    """

    def __init__(self, send: Callable[..., Awaitable[None]], arrival: float, interval: float) -> None:
        self._send = send
        self._arrival = arrival
        self._interval = interval
        self._last = -math.inf
        self._latest: Sequence[HandoffResult] = ()

    def saw(self, handoffs: Sequence[HandoffResult]) -> None:
        self._latest = handoffs

    async def run(self) -> None:
        """Until it is cancelled; the caller does so before it answers."""
        while True:
            await self._tell()
            await anyio.sleep(self._interval)

    async def _tell(self) -> None:
        value = max(round(anyio.current_time() - self._arrival, 3), self._last + 0.001)
        self._last = value
        message = "; ".join(_phrase(each) for each in self._latest) or "waiting"
        await self._send(value, None, message)


def _phrase(result: HandoffResult) -> str:
    if result.question:
        return f"{result.handoff_id}: asks a person: {result.question}"
    if result.queue_place:
        return f"{result.handoff_id}: queued at place {result.queue_place}"
    outcome = result.outcome or result.phase or result.status
    return f"{result.handoff_id}: {outcome}"
