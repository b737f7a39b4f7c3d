"""Who acts: principals, the scopes of their credentials, and callers with their sessions."""

from datetime import datetime
from enum import StrEnum

import msgspec


class PrincipalKind(StrEnum):
    PERSON = "person"
    AGENT = "agent"
    TERMINAL = "terminal"
    SERVICE = "service"


class Principal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An identity the server has verified. It is never taken from a request's body."""

    kind: PrincipalKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


SERVICE = Principal(kind=PrincipalKind.SERVICE, id="service")


class Scope(StrEnum):
    """What a credential may do; each route names the scopes it takes."""

    PERSON = "person"
    AGENT = "agent"
    TERMINAL = "terminal"
    ADMIN = "admin"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes one call, with which credential, in which session.

    `session` tells one life of a client from another (for a terminal, the terminal's id); None means that
    each call is its own. `terminal_id` is set for a terminal's credential and for nothing else.
    """

    principal: Principal
    scope: Scope
    session: str | None = None
    terminal_id: str | None = None


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token as the store knows it: by its hash."""

    id: str
    hash: str
    scope: Scope
    principal: Principal
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    def valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
