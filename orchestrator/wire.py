"""Bodies of the HTTP API, shared by `api/` and `client.py`. Their field names are a promise to users.

Requests refuse unknown fields. Times are RFC 3339 in UTC, durations seconds.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

MIN_TIMEOUT = 1
MAX_TIMEOUT = 3600
DEFAULT_TIMEOUT = 600
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""The largest message of a handoff, in UTF-8; above it `too_large`."""
OUTPUT_CAP_BYTES = 256 * 1024
"""An answer larger than this comes as head and tail with `truncated`; `read_output` has all of it."""
OUTPUT_PAGE_CHARS = 64 * 1024
"""Characters in one page of `read_output`, at most 256 KiB in UTF-8."""
MAX_SCREEN_LINES = 50_000
"""The most history of a screen that can be asked for; terminals keep as much."""


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


Timeout = Annotated[int, Meta(ge=MIN_TIMEOUT, le=MAX_TIMEOUT)]


class HandoffRequest(Request):
    """`POST /v1/handoffs`. Answers at once with the id; the wait is a call of its own.

    `waits` says that the caller will block on the result. `caller_directory` is where the caller stands,
    used when neither `working_directory` nor the caller's terminal gives a folder.
    """

    agent_profile: str
    message: str
    timeout: Timeout = DEFAULT_TIMEOUT
    working_directory: str | None = None
    model: str | None = None
    waits: bool = True
    caller_directory: str | None = None


class WaitState(StrEnum):
    """How a wait ended: `done`, its time ran out, or the service is stopping."""

    DONE = "done"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class HandoffError(msgspec.Struct, kw_only=True, omit_defaults=True):
    code: str
    detail: str
    exit_status: int | None = None
    signal: str | None = None
    last_lines: str | None = None


class HandoffResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the giver gets. `outcome` is there exactly when the handoff is completed.

    `output` is the whole answer, or its head and tail with `truncated`; of an unfinished or failed handoff
    it is what there is so far, and `partial` says so. `phase` is the latest fact in a word (queued, starting,
    typing, working, asking, held, uncertain, limited); `question` is what the agent asks of a person.
    """

    handoff_id: str
    status: str
    agent_profile: str
    duration_s: float
    outcome: str | None = None
    wait: str | None = None
    output: str | None = None
    output_chars: int = 0
    truncated: bool = False
    partial: bool = False
    terminal_id: str | None = None
    error: HandoffError | None = None
    exit_status: int | None = None
    phase: str | None = None
    question: str | None = None
    queue_place: int | None = None
    cancel_reason: str | None = None
    warnings: list[str] = []
    replayed: bool = False


class WaitRequest(Request):
    """`POST /v1/handoffs/wait`. Empty `handoff_ids`: the caller's open or uncollected ones.

    `timeout` is how long this one request may hang, at most 60 s; clients ask again until their own
    deadline.
    """

    handoff_ids: list[str] = []
    mode: Annotated[str, Meta(pattern=r"^(all|any)\Z")] = "all"
    timeout: Annotated[float, Meta(ge=0, le=60)] = 30.0


class WaitResponse(msgspec.Struct, kw_only=True):
    """`wait` is how it ended for the whole list; `handoffs` in the order asked for."""

    wait: str
    handoffs: list[HandoffResult]


class OutputPage(msgspec.Struct, kw_only=True):
    """`offset`, `next_offset` and `total_chars` count characters (Unicode code points) of the answer."""

    handoff_id: str
    offset: int
    output: str
    total_chars: int
    next_offset: int | None = None
    partial: bool = False


class CompleteRequest(Request):
    """`POST /v1/handoffs/{id}/complete`: the delegate's own report."""

    result: str
    outcome: Annotated[str, Meta(pattern=r"^(succeeded|failed)\Z")] = "succeeded"


class HandoffList(msgspec.Struct, kw_only=True):
    items: list[HandoffResult]
    next_cursor: str | None = None


class EventView(msgspec.Struct, kw_only=True):
    id: int
    type: str
    at: datetime
    by: str
    data: dict[str, Any]
    thread_id: str | None = None
    terminal_id: str | None = None


class MessageView(msgspec.Struct, kw_only=True):
    sequence_no: int
    author: str
    text: str
    created_at: datetime
    payload: dict[str, Any] | None = None


class ThreadView(msgspec.Struct, kw_only=True):
    """The whole record: `GET /v1/threads/{id}`."""

    thread_id: str
    origin: str
    status: str
    outcome: str | None
    sender: str
    recipient: str | None
    agent_profile: str | None
    model: str | None
    working_directory: str | None
    parent_id: str | None
    attempt: int
    created_at: datetime
    accepted_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    cancel_reason: str | None
    result_facts: dict[str, Any] | None
    messages: list[MessageView]
    events: list[EventView]


class StartAgentRequest(Request):
    """`POST /v1/terminals`: a long-lived agent, unique by name among the living."""

    agent_profile: str
    name: str | None = None
    working_directory: str | None = None
    caller_directory: str | None = None
    model: str | None = None


class TerminalView(msgspec.Struct, kw_only=True, omit_defaults=True):
    terminal_id: str
    agent_profile: str
    driver: str
    state: str
    activity: str
    """ready, working, asking, starting, ended"""
    working_directory: str
    started_at: datetime
    name: str | None = None
    handoff_id: str | None = None
    pid: int | None = None
    question: str | None = None
    queued: int = 0
    ended_at: datetime | None = None
    exit: dict[str, Any] | None = None
    attach_command: list[str] = []


class TerminalList(msgspec.Struct, kw_only=True):
    items: list[TerminalView]


class ScreenView(msgspec.Struct, kw_only=True):
    terminal_id: str
    text: str


class SendTextRequest(Request):
    """`POST /v1/terminals/{id}/messages`: a text for a living agent, typed at its next turn boundary."""

    text: str


class DeliveryView(msgspec.Struct, kw_only=True, omit_defaults=True):
    delivery_id: str
    terminal_id: str
    position: int
    state: str
    created_at: datetime
    attempts: int = 0
    reason: str | None = None
    turn: str | None = None
    handoff_id: str | None = None
    typed_at: datetime | None = None
    delivered_at: datetime | None = None


class DeliveryList(msgspec.Struct, kw_only=True):
    items: list[DeliveryView]


class ProfileView(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    source: str
    path: str
    description: str = ""
    driver: str | None = None
    model: str | None = None
    problems: list[str] = []


class ProfileList(msgspec.Struct, kw_only=True):
    items: list[ProfileView]


class DriverView(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    program: str
    found: bool
    path: str | None = None
    version: str | None = None
    advice: str | None = None


class ServiceView(msgspec.Struct, kw_only=True):
    """`GET /v1/service`: what runs here."""

    version: str
    instance: str
    home: str
    url: str
    database: str
    pid: int
    terminals: int
    max_terminals: int


class CallerView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`GET /v1/caller`: what the token stands for; of a terminal's also the handoff it was started for."""

    scope: str
    principal: str
    terminal_id: str | None = None
    handoff_id: str | None = None


class Problem(msgspec.Struct, kw_only=True):
    """RFC 9457 problem details. `code` is stable; `facts` are those of the error."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    facts: dict[str, Any] | UnsetType = UNSET
