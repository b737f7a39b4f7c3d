"""Credentials: bearer tokens, known to the store by their hash only."""

import hashlib
import secrets
import time

import msgspec

from orchestrator.domain.errors import Unauthenticated
from orchestrator.domain.identity import Caller, Credential, Principal, PrincipalKind, Scope
from orchestrator.ports import Clock, Ids, Store, Tx

TOKEN_PREFIX = "cot_"  # noqa: S105
_CACHE_SECONDS = 5.0
"""How long a revocation by another service on the same database may go unseen."""


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


class Credentials:
    def __init__(self, store: Store, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._cache: dict[str, tuple[float, Credential]] = {}

    async def authenticate(self, token: str, session: str | None) -> Caller:
        """The caller a token stands for. Raises `Unauthenticated`, without telling why it is not valid."""
        hashed = token_hash(token)
        credential = await self._credential(hashed)
        if credential is None or not credential.valid(self._clock.now()):
            raise Unauthenticated("the bearer token is not valid")
        terminal = credential.principal.id if credential.scope is Scope.TERMINAL else None
        return Caller(
            principal=credential.principal,
            scope=credential.scope,
            session=terminal or session,
            terminal_id=terminal,
        )

    def is_terminal(self, token: str) -> bool:
        """Whether a token that was just authenticated belongs to a terminal."""
        cached = self._cache.get(token_hash(token))
        return cached is not None and cached[1].scope is Scope.TERMINAL

    async def ensure(self, token: str, scope: Scope, principal: Principal) -> None:
        """Makes sure that the store knows this token."""

        def work(tx: Tx) -> None:
            if tx.credential_by_hash(token_hash(token)) is None:
                tx.insert_credential(self._new(token, scope, principal))

        await self._store.write(work)

    def for_terminal(self, terminal_id: str) -> tuple[str, Credential]:
        """A token for one terminal and its credential, not yet stored."""
        token = new_token()
        principal = Principal(kind=PrincipalKind.TERMINAL, id=terminal_id)
        return token, self._new(token, Scope.TERMINAL, principal)

    def revoke(self, tx: Tx, credential_id: str | None) -> None:
        """Within a transaction: the credential is of no more use once that is committed."""
        credential = tx.credential(credential_id) if credential_id else None
        if credential is not None and credential.revoked_at is None:
            tx.replace_credential(msgspec.structs.replace(credential, revoked_at=self._clock.now()))
            self._cache.pop(credential.hash, None)

    def _new(self, token: str, scope: Scope, principal: Principal) -> Credential:
        return Credential(
            id=self._ids.new("cred"),
            hash=token_hash(token),
            scope=scope,
            principal=principal,
            created_at=self._clock.now(),
        )

    async def _credential(self, hashed: str) -> Credential | None:
        now = time.monotonic()
        cached = self._cache.get(hashed)
        if cached is not None and cached[0] > now:
            return cached[1]
        credential = await self._store.read(lambda tx: tx.credential_by_hash(hashed))
        if credential is not None:
            self._cache[hashed] = (now + _CACHE_SECONDS, credential)
        return credential
