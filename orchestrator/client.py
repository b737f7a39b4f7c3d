"""The API as Python: what the MCP tools, the command line and the examples use, and nothing else.

It knows bodies, addresses and errors. It does not know where the service lives (the caller says), and it
keeps no record: what it asked for is found again by id.
"""

import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import anyio
import httpcore2  # noqa: F401  # pyright: ignore[reportUnusedImport] - else httpx2 loads it in the loop
import httpx2
import msgspec

from orchestrator import wire
from orchestrator.domain.errors import ChangeoverError, Interrupted, InvalidParams, Unavailable

T = TypeVar("T")
Progress = Callable[[wire.WaitResponse], Awaitable[None]]

ANSWER_SECONDS = 30.0
"""How long any answer but a long poll's may take."""
SLACK_SECONDS = 10.0
"""What a long poll's answer may take beyond the time it was asked to wait."""
POLL_SECONDS = 10.0
"""One long poll of `wait_until`, at most 60."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.05, 1.0
IDLE_CONNECTION_SECONDS = 2.0
"""Below what servers keep (uvicorn: 5 s), so that a request never meets a connection being closed."""


class Client:
    """One caller's way to the service at `url`, as the holder of `token`, in one session.

    Use it as an async context manager. Every method returns a struct of `wire` or raises the error of
    `domain.errors` that the service raised; `Unavailable` says that nothing was heard from it, with the
    address and what to do. A method sends its request once: after a lost answer, repeat it with the same
    key. Many tasks may use one client at once. `transport` replaces the network.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        session: str | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._heard = False
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers=_headers(token, session),
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=5.0, pool=None),
            transport=transport or _network(self.url),
            trust_env=False,
        )

    @classmethod
    def in_process(cls, app: Any, token: str, *, session: str | None = None) -> Self:
        """A client of the ASGI application `app` of this same process, without a network between them."""
        return cls("http://localhost", token, session=session, transport=httpx2.ASGITransport(app))

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    # handoffs

    async def start_handoff(self, request: wire.HandoffRequest, key: str | None = None) -> wire.HandoffResult:
        """Starts it and returns at once; with the `key` of an earlier call, that call's handoff."""
        return await self._post(wire.HandoffResult, "/v1/handoffs", request, key)

    async def handoff(self, handoff_id: str) -> wire.HandoffResult:
        return await self._get(wire.HandoffResult, f"/v1/handoffs/{_segment(handoff_id)}")

    async def handoffs(
        self, status: str | Sequence[str] | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.HandoffList:
        """The caller's handoffs, newest first; `cursor` is the `next_cursor` of the page before."""
        statuses = [status] if isinstance(status, str) else list(status or ())
        query = {"status": statuses or None, "cursor": cursor, "limit": limit}
        return await self._get(wire.HandoffList, "/v1/handoffs", query)

    async def wait(self, request: wire.WaitRequest) -> wire.WaitResponse:
        """One long poll: hangs until the wait is over, for at most the request's own timeout."""
        return await self._post(
            wire.WaitResponse, "/v1/handoffs/wait", request, patience=request.timeout + SLACK_SECONDS
        )

    async def wait_until(
        self,
        handoff_ids: Sequence[str] = (),
        mode: str = "all",
        timeout: float = wire.DEFAULT_TIMEOUT,  # noqa: ASYNC109 - its end is an answer, not an exception
        on_progress: Progress | None = None,
        poll: float = POLL_SECONDS,
    ) -> wire.WaitResponse:
        """Waits until `all` or `any` are done, `timeout` seconds at most, whatever befalls the connection.

        No ids: those that the first answer names. A service that goes away is asked again, by id, until the
        deadline; one that this client has never heard from raises `Unavailable` at once. At the deadline
        the answer is the latest there was, with `wait: timed_out`; `Unavailable` if there was none.
        `on_progress` is called with each answer that is not the last, every `poll` seconds or so.
        """
        deadline = anyio.current_time() + timeout
        ids, latest, pauses = list(handoff_ids), None, _pauses()
        while True:
            left = max(0.0, deadline - anyio.current_time())
            request = wire.WaitRequest(handoff_ids=ids, mode=mode, timeout=min(left, poll))
            answer = await self._poll(request)
            if isinstance(answer, wire.WaitResponse):
                if answer.wait == wire.WaitState.DONE:
                    return answer
                latest, ids = answer, ids or [result.handoff_id for result in answer.handoffs]
            elif latest is None and left == 0:
                raise answer
            if latest and anyio.current_time() >= deadline:
                return msgspec.structs.replace(latest, wait=wire.WaitState.TIMED_OUT)
            if isinstance(answer, wire.WaitResponse) and answer.wait == wire.WaitState.TIMED_OUT:
                pauses = _pauses()
                if on_progress:
                    await on_progress(answer)
            else:
                await anyio.sleep(min(next(pauses), max(0.0, deadline - anyio.current_time())))

    async def _poll(self, request: wire.WaitRequest) -> wire.WaitResponse | ChangeoverError:
        try:
            return await self.wait(request)
        except (Unavailable, Interrupted) as error:
            if self._heard:
                return error
            raise

    async def stop(self, handoff_id: str, key: str | None = None) -> wire.HandoffResult:
        return await self._post(wire.HandoffResult, f"/v1/handoffs/{_segment(handoff_id)}/stop", key=key)

    async def complete(
        self, handoff_id: str, request: wire.CompleteRequest, key: str | None = None
    ) -> wire.HandoffResult:
        """The delegate's own report, from the terminal that holds the handoff."""
        path = f"/v1/handoffs/{_segment(handoff_id)}/complete"
        return await self._post(wire.HandoffResult, path, request, key)

    async def output(self, handoff_id: str, offset: int = 0) -> wire.OutputPage:
        """A page of the whole answer from character `offset` on; go on with its `next_offset`."""
        path = f"/v1/handoffs/{_segment(handoff_id)}/output"
        return await self._get(wire.OutputPage, path, {"offset": offset})

    async def thread(self, thread_id: str) -> wire.ThreadView:
        return await self._get(wire.ThreadView, f"/v1/threads/{_segment(thread_id)}")

    # terminals, each named by its id or by its agent's name

    async def terminals(self, all: bool = False) -> wire.TerminalList:
        """The living ones; with `all`, those that have ended too."""
        return await self._get(wire.TerminalList, "/v1/terminals", {"all": "true" if all else None})

    async def terminal(self, terminal: str) -> wire.TerminalView:
        return await self._get(wire.TerminalView, f"/v1/terminals/{_segment(terminal)}")

    async def start_agent(self, request: wire.StartAgentRequest, key: str | None = None) -> wire.TerminalView:
        return await self._post(wire.TerminalView, "/v1/terminals", request, key)

    async def close_terminal(self, terminal: str) -> wire.TerminalView:
        return await self._call(wire.TerminalView, "DELETE", f"/v1/terminals/{_segment(terminal)}")

    async def send_text(self, terminal: str, text: str, key: str | None = None) -> wire.DeliveryView:
        """Queues `text` for the agent; typed at its next turn boundary."""
        path = f"/v1/terminals/{_segment(terminal)}/messages"
        return await self._post(wire.DeliveryView, path, wire.SendTextRequest(text=text), key)

    async def deliveries(self, terminal: str) -> wire.DeliveryList:
        return await self._get(wire.DeliveryList, f"/v1/terminals/{_segment(terminal)}/messages")

    async def screen(self, terminal: str, lines: int = 0, colours: bool = False) -> wire.ScreenView:
        """The visible screen, with `lines` of history before it."""
        query = {"lines": lines, "colours": "true" if colours else None}
        return await self._get(wire.ScreenView, f"/v1/terminals/{_segment(terminal)}/screen", query)

    # the service

    async def profiles(self) -> wire.ProfileList:
        return await self._get(wire.ProfileList, "/v1/profiles")

    async def drivers(self) -> list[wire.DriverView]:
        return await self._get(list[wire.DriverView], "/v1/drivers")

    async def service(self) -> wire.ServiceView:
        return await self._get(wire.ServiceView, "/v1/service")

    async def caller(self) -> wire.CallerView:
        """What this client's token stands for."""
        return await self._get(wire.CallerView, "/v1/caller")

    async def health(self) -> dict[str, str]:
        """Needs no token: `status`, `service` and `version`."""
        return await self._get(dict[str, str], "/health")

    # one request

    async def _get(self, kind: type[T], path: str, query: Mapping[str, Any] | None = None) -> T:
        present = {name: value for name, value in (query or {}).items() if value is not None}
        return await self._call(kind, "GET", path, params=present or None)

    async def _post(
        self,
        kind: type[T],
        path: str,
        request: msgspec.Struct | None = None,
        key: str | None = None,
        patience: float = ANSWER_SECONDS,
    ) -> T:
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = _header_value("Idempotency-Key", key)
        return await self._call(
            kind,
            "POST",
            path,
            content=_body(request),
            headers=headers,
            timeout=httpx2.Timeout(patience, connect=5.0, pool=None),
        )

    async def _call(self, kind: type[T], method: str, path: str, **options: Any) -> T:
        try:
            response = await self._http.request(method, path, **options)
        except httpx2.ConnectError as error:
            raise self._unavailable(f"no service answers at {self.url} ({error})") from error
        except httpx2.HTTPError as error:
            self._heard = True  # there was a connection: the service may come back
            reason = str(error) or type(error).__name__
            raise self._unavailable(f"the connection to {self.url} was lost ({reason})") from error
        if response.is_success:
            answer = self._decoded(kind, response)
            self._heard = True
            return answer
        problem = self._decoded(wire.Problem, response)
        self._heard = True
        raise _error(problem)

    def _decoded(self, kind: type[T], response: httpx2.Response) -> T:
        try:
            return _decoder(kind).decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = f"what answers at {self.url} is not this service (HTTP {response.status_code})"
            raise self._unavailable(what) from error

    def _unavailable(self, what: str) -> Unavailable:
        advice = "start the service with `changeover serve`, or check the address with `changeover doctor`"
        return Unavailable(f"{what}: {advice}", url=self.url)


def _headers(token: str | None, session: str | None) -> dict[str, str]:
    headers = {"Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {_header_value('Authorization', token)}"
    if session is not None:
        headers["Changeover-Session"] = _header_value("Changeover-Session", session)
    return headers


def _header_value(name: str, value: str) -> str:
    if not (1 <= len(value) <= 255 and all("!" <= character <= "~" for character in value)):
        raise InvalidParams(f"{name} takes 1 to 255 visible ASCII characters", path=name)
    return value


def _network(url: str) -> httpx2.AsyncHTTPTransport:
    """Reads no proxy from the environment: the service is on this machine unless the caller says otherwise.

    For plain HTTP the certificates, 10 ms and more to load, stay unread.
    """
    verify = True if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limits = httpx2.Limits(keepalive_expiry=IDLE_CONNECTION_SECONDS)
    return httpx2.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)


def _segment(name: str) -> str:
    """An id as one segment of a path. What cannot be an id comes back as not found, from the service."""
    return {"": "%00", ".": "%2E", "..": "%2E%2E"}.get(name) or quote(name, safe="", errors="replace")


def _body(request: msgspec.Struct | None) -> bytes:
    try:
        return msgspec.json.encode(request) if request is not None else b"{}"
    except UnicodeEncodeError as error:
        raise InvalidParams("the text holds half of a surrogate pair, which is no character") from error


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _pauses() -> Iterator[float]:
    pause = FIRST_RETRY_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, LAST_RETRY_SECONDS)


def _error(problem: wire.Problem) -> ChangeoverError:
    """The error that the service raised. A code that this version does not know stays in the facts."""
    facts = {} if problem.facts is msgspec.UNSET else problem.facts
    kind = _error_kinds().get(problem.code)
    error = (kind or ChangeoverError)(problem.detail)
    error.facts |= facts if kind else {**facts, "code": problem.code}
    return error


@cache
def _error_kinds() -> dict[str, type[ChangeoverError]]:
    kinds, found = [ChangeoverError], dict[str, type[ChangeoverError]]()
    while kinds:
        kind = kinds.pop()
        if "code" in vars(kind):
            found[kind.code] = kind
        kinds += kind.__subclasses__()
    return found
