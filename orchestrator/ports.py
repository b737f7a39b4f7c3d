"""The ports: what the services need from the outside. Each docstring is the contract its adapters keep.

Adapters live in `store/` and `terminals/`; `bootstrap` chooses them. Every adapter of a port passes the
same contract suite in `tests/`.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from orchestrator.domain.agent import AgentFact
from orchestrator.domain.event import Event, NewEvent
from orchestrator.domain.identity import Credential, Principal
from orchestrator.domain.profile import Profile, ProfileEntry
from orchestrator.domain.terminal import Delivery, Terminal
from orchestrator.domain.thread import Message, Status, Thread

T = TypeVar("T")


class Clock(Protocol):
    """The time as an argument."""

    def now(self) -> datetime:
        """Aware, UTC. It may stand still or go backwards: nothing may order records by it."""
        ...


class Ids(Protocol):
    """New ids: a readable prefix, `_`, and a time-ordered part in lower case."""

    def new(self, prefix: str) -> str: ...


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One used idempotency key: the payload it came with and the response it got."""

    principal: str
    operation: str
    key: str
    payload_sha256: str
    thread_id: str | None
    response: bytes
    created_at: datetime


class Tx(Protocol):
    """One transaction's view of the store; synchronous, valid only inside the work it is handed to.

    What a work has written it reads back. Records are immutable structs. `replace_*` compares the version:
    the row is written only if it still has `old.version`, else the store runs the whole work again on
    fresh rows. Works must therefore have no effect but through the Tx.
    """

    # threads, messages, events
    def insert_thread(self, thread: Thread) -> None: ...
    def thread(self, thread_id: str) -> Thread | None: ...
    def replace_thread(self, old: Thread, new: Thread) -> None: ...
    def threads(
        self,
        *,
        statuses: Sequence[Status] | None = None,
        sender: Principal | None = None,
        parent_id: str | None = None,
        runner: str | None = None,
        uncollected: bool = False,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Thread]:
        """Newest first by order of insertion. `before` is a thread id: only those inserted earlier.

        `uncollected` keeps the threads without `collected_at`. Unknown `before`: an empty list.
        """
        ...

    def append_message(self, message: Message) -> Message:
        """Stores it under the next `sequence_no` of its thread, whatever it says, and returns it so."""
        ...

    def messages(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Message]: ...
    def append_event(self, event: NewEvent) -> Event: ...
    def events(
        self,
        *,
        after: int = 0,
        thread_id: str | None = None,
        terminal_id: str | None = None,
        limit: int = 1000,
    ) -> list[Event]: ...
    def purge_events(self, before: datetime) -> int: ...

    # idempotency keys, in the same transaction as their effect
    def key(self, principal: str, operation: str, key: str) -> KeyRecord | None: ...
    def insert_key(self, record: KeyRecord) -> None: ...
    def purge_keys(self, before: datetime) -> int: ...

    # terminals and deliveries
    def insert_terminal(self, terminal: Terminal) -> None: ...
    def terminal(self, terminal_id: str) -> Terminal | None: ...
    def replace_terminal(self, old: Terminal, new: Terminal) -> None: ...
    def terminals(
        self,
        *,
        instance: str | None = None,
        living: bool = False,
        name: str | None = None,
        thread_id: str | None = None,
        limit: int = 1000,
    ) -> list[Terminal]:
        """Newest first. `living` keeps those that have not ended."""
        ...

    def insert_delivery(self, delivery: Delivery) -> Delivery:
        """Stores it with the next `position` of its terminal (from 1) and returns it so."""
        ...

    def delivery(self, delivery_id: str) -> Delivery | None: ...
    def replace_delivery(self, old: Delivery, new: Delivery) -> None: ...
    def deliveries(self, terminal_id: str, *, unsettled: bool = False) -> list[Delivery]:
        """By position. `unsettled` keeps the queued and typing ones."""
        ...

    # credentials
    def insert_credential(self, credential: Credential) -> None: ...
    def credential_by_hash(self, token_hash: str) -> Credential | None: ...
    def credential(self, credential_id: str) -> Credential | None: ...
    def replace_credential(self, credential: Credential) -> None:
        """Unconditional: revocation and `last_used_at` need no race."""
        ...


class Store(Protocol):
    """Where records live. Built closed; `open` before use and `close` after."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Runs `work` in a transaction of its own and returns its result once that is durable.

        Works of one store run one after the other; several may share one commit, each in its own
        savepoint, so that one that raises undoes only itself and its exception reaches its caller. A
        cancelled caller does not undo a work that has begun.
        """
        ...

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Runs `work` on one consistent snapshot of what is committed. A work that writes is an error."""
        ...

    def subscribe(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Calls `listener` on the event loop's thread with the events of each commit, in order, after it is
        durable and before the writers learn of it. Returns the function that ends the subscription."""
        ...


class Profiles(Protocol):
    """The catalogue of agent profiles, read anew at each call. Both methods block on files."""

    def get(self, name: str, *, folder: Path | None = None) -> Profile:
        """The profile as seen from `folder`. Raises `UnknownProfile` or `InvalidProfile`."""
        ...

    def entries(self, *, folder: Path | None = None) -> list[ProfileEntry]: ...


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to start one agent. `token` is the terminal's own credential, `url` the service's.

    What reaches the agent of the service's own environment is decided by `terminals`.
    """

    terminal_id: str
    profile: Profile
    working_directory: str
    token: str
    url: str
    name: str | None = None
    thread_id: str | None = None


class StartedPane(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    pane_id: str
    pid: int


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Proof that the agent took a text: which turn, how it is known, how often Enter was pressed."""

    turn: str | None
    source: str
    enters: int


class DriverInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One driver as `doctor` shows it: whether its program was found, where, and its version."""

    name: str
    program: str
    found: bool
    path: str | None = None
    version: str | None = None
    advice: str | None = None


class Terminals(Protocol):
    """Agents' terminals. Failures are the `TerminalFailure` branch of the error tree.

    Facts about agents go to the one listener given to `listen`, on the event loop's thread, in order per
    terminal, and before any method that waited for them returns.
    """

    def listen(self, listener: Callable[[AgentFact], None]) -> None: ...

    async def start(self, spec: AgentSpec) -> StartedPane:
        """Creates and tags the window and starts the agent as the pane's own process.

        Returns when the pane exists; readiness comes as a fact. Raises `StartFailed`, with nothing left
        behind, when the program is missing or the window cannot be made.
        """
        ...

    async def submit(self, terminal_id: str, text: str, *, header: str | None) -> Taken:
        """Types `text` behind the driver's form of `header` and returns when the agent provably took it.

        One at a time per terminal. Raises `TerminalBusy` (nothing was typed), `NotSubmitted` (a draft is
        left in the composer), `Uncertain`, `TerminalDead`, `TerminalLost`.
        """
        ...

    async def resume_submit(
        self, terminal_id: str, text: str, *, header: str | None, earlier: Collection[str]
    ) -> Taken:
        """After an adoption, settles a `submit` that a kill cut off; never types the text again.

        Submits the draft if it stands in the composer. `earlier` are the turns known to have taken other
        texts. Raises as `submit` does, `Uncertain` if neither draft nor turn was seen.
        """
        ...

    async def wait_ready(self, terminal_id: str) -> None:
        """Returns once the agent is idle at its prompt; raises `TerminalDead`/`TerminalLost` if it ends."""
        ...

    async def adopt(self, specs: Sequence[tuple[Terminal, Profile]]) -> dict[str, StartedPane]:
        """Takes over the living ones of `specs` after a restart and replays their facts, oldest first.

        Returns the panes of those that live. Those that died meanwhile get their facts too, and an EXITED
        or LOST one. Panes with our tag that no spec names are closed.
        """
        ...

    async def close(self, terminal_id: str) -> None:
        """Ends the agent and its window, and returns when both are gone. A stranger's id is no error."""
        ...

    async def screen(self, terminal_id: str, *, lines: int = 0, colours: bool = False) -> str:
        """The visible screen, with `lines` of history before it. Raises `TerminalDead`/`TerminalNotFound`."""
        ...

    async def partial(self, terminal_id: str) -> str | None:
        """What the running turn has answered so far, as far as the driver can tell; None if it cannot."""
        ...

    def attach_command(self, terminal_id: str) -> list[str]:
        """The argument vector with which a person looks at this terminal, in a view of its own."""
        ...

    async def drivers(self) -> list[DriverInfo]: ...
