"""One request and its reply, whatever produces it: common headers, failures as problems, one line of log."""

import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from orchestrator.api.problems import Reply, problem, status_of
from orchestrator.domain.errors import ChangeoverError, InvalidParams
from orchestrator.domain.identity import Caller

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("changeover.api")
PATH_CHARS = 200
HUNG_UP = 499
"""What the log says of a request whose sender was gone before the reply."""


class HungUp(Exception):
    """The other side closed the connection: there is nobody to answer."""


class Headers:
    """The headers of a request, as the server hands them over: lower-case names, bytes."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._raw = list(raw)

    def one(self, name: bytes) -> str | None:
        """Its value. Raises `InvalidParams` when it is there twice: two readers might take different ones."""
        values = [value for key, value in self._raw if key == name]
        if len(values) > 1:
            raise InvalidParams(
                f"the header {name.decode()} is there {len(values)} times", path=name.decode()
            )
        return values[0].decode("latin-1") if values else None


class Exchange:
    """Runs around whatever answers a request, as an async context manager; `send` is what that answers with.

    An exception becomes a problem unless the reply has begun, when the connection is left to break.
    """

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self._scope, self._send, self._request_id = scope, send, request_id
        self._state: dict[str, Any] = scope.setdefault("state", {})
        self._state["request_id"] = request_id
        self._started = perf_counter()
        self._status: int | None = None

    def identify(self, caller: Caller, token: str) -> None:
        self._state.update(caller=caller, token=token)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message = {**message, "headers": self._with_common(message.get("headers", ()))}
        elif message["type"] in ("websocket.accept", "websocket.close"):
            self._status = 101 if message["type"] == "websocket.accept" else 403
        await self._send(message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return isinstance(error, Exception) and await self._settled(error)
        finally:
            self._log()

    async def _settled(self, error: Exception) -> bool:
        if isinstance(error, HungUp):
            return True
        log_failure(error, self._request_id)
        if self._status is not None:
            return False
        if self._scope["type"] == "websocket":
            await self.send({"type": "websocket.close", "code": 1008})
        else:
            await self._reply(problem(error, self._request_id))
        return True

    async def _reply(self, reply: Reply) -> None:
        headers = {**reply.headers, "Content-Length": str(len(reply.body))}
        raw = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": reply.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": reply.body})

    def _with_common(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = list(headers)
        common = [(b"x-request-id", self._request_id.encode()), (b"x-content-type-options", b"nosniff")]
        if not any(name.lower() == b"cache-control" for name, _ in headers):
            common.append((b"cache-control", b"no-store"))
        return headers + common

    def _log(self) -> None:
        if not LOG.isEnabledFor(logging.INFO):
            return
        caller = self._state.get("caller")
        fields = {
            "method": self._scope.get("method", "WEBSOCKET"),
            "path": self._scope["path"][:PATH_CHARS],
            "status": self._status or HUNG_UP,
            "duration_ms": round((perf_counter() - self._started) * 1000, 2),
            "request_id": self._request_id,
            "principal": str(caller.principal) if caller else None,
        }
        LOG.info("request", extra={"fields": fields})


def log_failure(error: BaseException, request_id: str) -> None:
    """Puts what the reply may not tell into the log: the traceback of what nobody expected."""
    if not isinstance(error, ChangeoverError) or status_of(error) == 500:
        LOG.error("failed", exc_info=error, extra={"fields": {"request_id": request_id}})
