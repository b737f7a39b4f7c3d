"""A process's way to the service, looked up for each call: it may have moved, or only now been started."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from orchestrator.client import Client
from orchestrator.domain.errors import ChangeoverError

Where = tuple[str, str | None]
"""The service's address and the token to use there."""

SCOPE_SECONDS = 2.0
"""How long the list of the tools may wait for a service to say whose token it is."""


class Connection:
    """One process's clients of the service, all in one session; a new one whenever the address changes."""

    def __init__(self, find: Callable[[], Where], session: str) -> None:
        self._find = find
        self._session = session
        self._stack = AsyncExitStack()
        self._lock = anyio.Lock()
        self._where: Where | None = None
        self._client: Client | None = None
        self._scope: tuple[Where, str] | None = None
        """Whose token that is, once the service has said so."""

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def open(self, caller: object) -> AsyncGenerator[Client]:
        """The client for one call; it stays open for the next."""
        where = await anyio.to_thread.run_sync(self._find)
        async with self._lock:
            if self._client is None or where != self._where:
                url, token = where
                self._client = await self._stack.enter_async_context(
                    Client(url, token, session=self._session)
                )
                self._where = where
            client = self._client
        yield client

    async def is_terminal(self, caller: object) -> bool:
        """Whether the token is a terminal's. While no service says so, it is not."""
        with suppress(ChangeoverError), anyio.move_on_after(SCOPE_SECONDS):
            async with self.open(caller) as client:
                if self._scope is None or self._scope[0] != self._where:
                    where = self._where
                    found = (await client.caller()).scope
                    self._scope = (where, found) if where else None
                return self._scope is not None and self._scope[1] == "terminal"
        return False
