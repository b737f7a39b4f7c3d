"""What every request passes first, whatever answers it: the API, a mounted application, an unknown path.

In this order: the Host is ours, the Origin is ours or absent, the token is valid, the body is JSON within
the limit. So no web page reaches the service by DNS rebinding or by a simple cross-site POST, and nobody
without a token learns which addresses exist. What may be done with a token is said by each route.
"""

import re
import secrets
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from orchestrator.api.exchange import ASGIApp, Exchange, Headers, HungUp, Message, Receive, Scope, Send
from orchestrator.api.problems import BodyTimedOut, UnsupportedMediaType, WrongHost
from orchestrator.domain.errors import Forbidden, InvalidParams, NotFound, TooLarge, Unauthenticated
from orchestrator.domain.identity import Caller

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
_WORD = re.compile(r"[!-~]{1,255}")
_JSON = re.compile(r'application/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?', re.IGNORECASE)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class GuardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`extra_hosts` are names (with a port: that port only) under which the service may be asked too."""

    extra_hosts: frozenset[str] = frozenset()
    max_body_bytes: int = 8 * 1024 * 1024
    body_seconds: float = 30.0


class Guard:
    """Wraps `app`. Behind it `scope["state"]` holds `caller`, `token` and `request_id`, and bodies are whole.

    `caller` and `token` are missing on the open paths: /health and /schema.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Callable[[str, str | None], Awaitable[Caller]],
        settings: GuardSettings,
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._settings = settings
        self._hosts = LOOPBACK | {host.lower() for host in settings.extra_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        async with Exchange(scope, send, _request_id(scope)) as exchange:
            headers = Headers(scope["headers"])
            await self._admit(scope, headers, exchange)
            if scope["type"] == "http":
                receive = await self._whole_body(scope["method"], headers, receive)
            await self._app(scope, receive, exchange.send)

    async def _admit(self, scope: Scope, headers: Headers, exchange: Exchange) -> None:
        self._check_host(headers.one(b"host"))
        self._check_origin(headers.one(b"origin"))
        path = scope["path"]
        if not (path == "/health" or path == "/schema" or path.startswith("/schema/")):
            token, session = _bearer(headers), _word(headers, b"changeover-session")
            exchange.identify(await self._authenticate(token, session), token)
        if "\0" in path:
            raise NotFound("there is nothing at this address")
        if b"%00" in scope["query_string"]:
            raise InvalidParams("a parameter may not hold U+0000")
        _word(headers, b"idempotency-key")

    def _check_host(self, host: str | None) -> None:
        if host is None or not self._ours(host):
            raise WrongHost(
                "this service does not answer to that Host; `extra_hosts` in its settings adds names"
            )

    def _check_origin(self, origin: str | None) -> None:
        if origin is None:
            return
        scheme, _, rest = origin.partition("://")
        if scheme not in ("http", "https") or not self._ours(rest):
            raise Forbidden("requests of web pages from elsewhere are refused")

    def _ours(self, host: str) -> bool:
        host = host.lower()
        match = _HOST.fullmatch(host)
        return match is not None and (match[1] in self._hosts or host in self._hosts)

    async def _whole_body(self, method: str, headers: Headers, receive: Receive) -> Receive:
        """Reads the body to its end, so that none is too large, late or cut off for what comes behind."""
        carries = method in ("POST", "PUT", "PATCH")
        if (
            not carries
            and headers.one(b"content-length") is None
            and headers.one(b"transfer-encoding") is None
        ):
            return receive
        if carries:
            _check_content_type(headers)
        try:
            with anyio.fail_after(self._settings.body_seconds):
                body = await self._read(headers, receive)
        except TimeoutError:
            raise BodyTimedOut(f"the body took over {self._settings.body_seconds:g} s to arrive") from None
        if carries and not body:
            raise InvalidParams("the body is empty; send a JSON object, at least {}", path="$")
        return _replay(body, receive)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        limit = self._settings.max_body_bytes
        too_large = TooLarge(f"the body is larger than {limit} bytes", limit=limit)
        declared = headers.one(b"content-length") or "0"
        if not declared.isdigit():
            raise InvalidParams("Content-Length is no number", path="content-length")
        if int(declared) > limit:
            raise too_large
        chunks, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise HungUp
            chunk: bytes = message.get("body", b"")
            chunks.append(chunk)
            size, more = size + len(chunk), message.get("more_body", False)
            if size > limit:
                raise too_large
        return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then what the server says: that the other side has gone."""
    unread = [body]

    async def again() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return again


def _check_content_type(headers: Headers) -> None:
    if not _JSON.fullmatch((headers.one(b"content-type") or "").strip()):
        raise UnsupportedMediaType("the body must be declared as Content-Type: application/json")
    if (headers.one(b"content-encoding") or "identity").lower() != "identity":
        raise UnsupportedMediaType("the body must not be compressed")


def _bearer(headers: Headers) -> str:
    scheme, _, token = (headers.one(b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("send a token as Authorization: Bearer <token>")
    return token.strip()


def _word(headers: Headers, name: bytes) -> str | None:
    value = headers.one(name)
    if value is not None and not _WORD.fullmatch(value):
        raise InvalidParams(f"{name.decode()} takes 1 to 255 visible ASCII characters", path=name.decode())
    return value


def _request_id(scope: Scope) -> str:
    """The caller's own, where it is harmless, so that a call can be followed through several programs."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value.decode("latin-1")):
            return value.decode()
    return f"req_{secrets.token_hex(8)}"
