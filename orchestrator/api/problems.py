"""Failures as replies: RFC 9457 problem details, in one shape wherever in the API they arise.

It is the only place that knows which HTTP status an error has. What is not an expected failure is
`internal`, and its reply says nothing about it but the request's id.
"""

from typing import Any, NamedTuple

import msgspec
from litestar.exceptions import HTTPException

from orchestrator import wire
from orchestrator.domain import errors
from orchestrator.domain.errors import ChangeoverError

MEDIA_TYPE = "application/problem+json"
DETAIL_CHARS = 2000


class WrongHost(errors.Forbidden):
    """The Host header names a server that this one is not."""


class MethodNotAllowed(errors.InvalidParams):
    """The address exists and takes other methods."""


class UnsupportedMediaType(errors.InvalidParams):
    """The body is not declared as JSON."""


class BodyTimedOut(errors.InvalidParams):
    """The body did not arrive in time."""


STATUS: dict[type[ChangeoverError], int] = {
    ChangeoverError: 500,
    errors.InvalidParams: 400,
    errors.TooLarge: 413,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.InvalidProfile: 422,
    errors.Refused: 409,
    errors.NotAuthorizedTransition: 403,
    errors.TerminalFailure: 502,
    errors.TerminalBusy: 409,
    errors.Interrupted: 503,
    errors.Unavailable: 503,
    WrongHost: 421,
    MethodNotAllowed: 405,
    UnsupportedMediaType: 415,
    BodyTimedOut: 408,
}
"""Looked up along a class's bases: a new error has the status of its branch."""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def status_of(error: BaseException) -> int:
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def problem(error: BaseException, request_id: str) -> Reply:
    """The reply to a request that ended with `error`. Of an unexpected one it tells nothing."""
    status = status_of(error)
    if isinstance(error, ChangeoverError) and type(error) is not ChangeoverError:
        code, detail, facts = error.code, error.detail, error.facts
    else:
        code, detail, facts = "internal", "the service failed; its log has the request id", {}
    body = wire.Problem(
        type=f"urn:changeover:error:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        code=code,
        detail=detail[:DETAIL_CHARS],
        request_id=request_id,
        facts=facts or msgspec.UNSET,
    )
    return Reply(status, {"Content-Type": MEDIA_TYPE, **_headers(error)}, _encoded(body))


def from_framework(error: HTTPException) -> BaseException:
    """The framework's own refusal as one of ours; what it calls a failure of the server stays foreign."""
    if error.status_code == 404:
        return errors.NotFound("there is nothing at this address")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("allow", "")
        return MethodNotAllowed(f"this address takes {allowed}", allow=allowed)
    if error.status_code >= 500:
        return error
    return errors.InvalidParams(**_offence(error))


class _Offence(msgspec.Struct):
    """How the framework names a parameter that is wrong, in a list in `extra`."""

    key: str
    message: str = "invalid"


def _offence(error: HTTPException) -> dict[str, Any]:
    try:
        first = msgspec.convert(error.extra, list[_Offence])[0]
    except (msgspec.ValidationError, IndexError):
        return {"detail": error.detail}
    return {"detail": f"{first.key}: {first.message}", "path": first.key}


def _headers(error: BaseException) -> dict[str, str]:
    match error:
        case errors.Unauthenticated():
            return {"WWW-Authenticate": 'Bearer realm="changeover"'}
        case errors.Interrupted() | errors.Unavailable():
            return {"Retry-After": "1"}
        case MethodNotAllowed():
            return {"Allow": str(error.facts.get("allow", ""))}
        case _:
            return {}


def _encoded(body: wire.Problem) -> bytes:
    """Facts that are no JSON are shown as text; text that is no Unicode loses what cannot be said."""
    try:
        return msgspec.json.encode(body, enc_hook=str)
    except UnicodeEncodeError:
        detail = body.detail.encode("utf-8", "replace").decode()
        return msgspec.json.encode(msgspec.structs.replace(body, detail=detail, facts=msgspec.UNSET))
