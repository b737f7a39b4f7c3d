"""Who waits for whom: the rules against circles and endless chains of handoffs."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from orchestrator.domain.errors import HandoffCycle, HandoffSelf, HandoffTooDeep


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One agent of a chain. `waits` says that the agent above blocks on it; False for the first of all."""

    profile: str
    thread_id: str | None = None
    waits: bool = False


def check_chain(target: str, chain: Sequence[Link], *, waits: bool, limit: int) -> None:
    """Raises if the agent at `chain[0]` may not hand work to the profile `target`.

    `chain` goes from the giver up to the agent that no handoff started; empty for a person. An agent never
    hands work to its own profile; agents that block never close a circle; at most `limit` handoffs hang
    one below the other.
    """
    names = [link.profile for link in reversed(chain)] + [target]
    shown = " → ".join(names)
    if chain and chain[0].profile == target:
        raise HandoffSelf(
            f"{target} cannot hand work to itself ({shown}): do the work, or name another profile",
            chain=names,
        )
    waiting = waits
    for below, link in pairwise(chain):
        waiting = waiting and below.waits
        if waiting and link.profile == target:
            raise HandoffCycle(
                f"{target} already waits for this agent ({shown}): answer it instead", chain=names
            )
    depth = sum(link.thread_id is not None for link in chain) + 1
    if depth > limit:
        raise HandoffTooDeep(
            f"the chain {shown} would be {depth} handoffs deep; the limit is {limit} (CHANGEOVER_MAX_DEPTH)",
            chain=names,
            limit=limit,
        )
