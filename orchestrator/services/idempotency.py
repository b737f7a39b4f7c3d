"""Idempotency keys: an effect that happens once, and its answer that can be given again."""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from orchestrator.domain.errors import DuplicateIdempotencyKey, InvalidParams
from orchestrator.domain.identity import Caller
from orchestrator.ports import KeyRecord, Tx

MAX_KEY_CHARS = 255
KEY_HOURS = 24

T = TypeVar("T", bound=msgspec.Struct)


class KeyUse(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a key: whose, for what, with which payload."""

    principal: str
    operation: str
    key: str
    payload_sha256: str

    @classmethod
    def of(cls, caller: Caller, operation: str, key: str | None, payload: Any) -> "KeyUse | None":
        """None without a key. The order of the payload's keys does not matter."""
        if key is None:
            return None
        if not 0 < len(key) <= MAX_KEY_CHARS or not key.isprintable():
            raise InvalidParams(f"an idempotency key has 1 to {MAX_KEY_CHARS} printable characters")
        encoded = msgspec.json.encode(payload, order="deterministic")
        return cls(
            principal=str(caller.principal),
            operation=operation,
            key=key,
            payload_sha256=hashlib.sha256(encoded).hexdigest(),
        )


def once(
    tx: Tx, use: KeyUse | None, now: datetime, kind: type[T], effect: Callable[[Tx], T]
) -> tuple[T, bool]:
    """Runs `effect`, or gives back the answer stored for its key; says whether it was given again.

    The key's row is written in the transaction of its effect: an effect that raises burns no key. Raises
    `DuplicateIdempotencyKey` for a key that came with another payload.
    """
    if use is None:
        return effect(tx), False
    known = tx.key(use.principal, use.operation, use.key)
    if known is not None:
        if known.payload_sha256 != use.payload_sha256:
            raise DuplicateIdempotencyKey(
                f"the idempotency key {use.key!r} was used for another request"
                + (f" ({known.thread_id})" if known.thread_id else "")
                + ": take a new key",
                thread_id=known.thread_id,
            )
        return msgspec.json.decode(known.response, type=kind), True
    answer = effect(tx)
    tx.insert_key(
        KeyRecord(
            principal=use.principal,
            operation=use.operation,
            key=use.key,
            payload_sha256=use.payload_sha256,
            thread_id=getattr(answer, "handoff_id", None),
            response=msgspec.json.encode(answer),
            created_at=now,
        )
    )
    return answer, False
