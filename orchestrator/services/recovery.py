"""Recovery and upkeep: what a service does with what the last one left, and what it throws away."""

from datetime import timedelta

import anyio
import msgspec

from orchestrator.domain.errors import ChangeoverError
from orchestrator.domain.profile import Profile
from orchestrator.domain.terminal import Terminal
from orchestrator.domain.thread import Status, Thread
from orchestrator.ports import Tx
from orchestrator.services.context import ServiceContext
from orchestrator.services.fleet import Fleet, load_profile
from orchestrator.services.idempotency import KEY_HOURS
from orchestrator.services.moves import failed, settle_failure

EVENT_DAYS = 30
_UPKEEP_SECONDS = 3600.0


async def recover(context: ServiceContext, fleet: Fleet) -> None:
    """Adopts the living terminals of this home, settles the dead ones, and queues what never started."""
    left = await context.store.read(lambda tx: tx.terminals(instance=context.instance, living=True))
    known = [(terminal, await _profile(context, terminal)) for terminal in left]
    await fleet.adopt(known)
    for thread in await context.store.read(lambda tx: _orphans(tx, context.instance)):
        if thread.status is Status.PENDING:
            await fleet.enqueue(thread)
        else:
            await _settle_lost(context, thread.id)


async def _settle_lost(context: ServiceContext, thread_id: str) -> None:
    lost = failed("terminal_lost", "its terminal was gone when the service came back", None)
    await context.store.write(lambda tx: settle_failure(tx, context, thread_id, lost))


async def _profile(context: ServiceContext, terminal: Terminal) -> Profile:
    """The terminal's profile; where its file is gone or broken by now, one that can still be watched.

    Its driver stays the one that started it, whatever the file says now.
    """
    try:
        profile = await load_profile(context, terminal.profile, terminal.working_directory, None)
    except ChangeoverError:
        return Profile(name=terminal.profile, driver=terminal.driver)
    return msgspec.structs.replace(profile, driver=terminal.driver)


def _orphans(tx: Tx, runner: str) -> list[Thread]:
    """The open handoffs of this home that no terminal works on, oldest first."""
    found: list[Thread] = []
    before: str | None = None
    while page := tx.threads(
        statuses=(Status.PENDING, Status.ACCEPTED), runner=runner, before=before, limit=500
    ):
        found += page
        before = page[-1].id
    return [each for each in found[::-1] if not tx.terminals(thread_id=each.id, living=True, limit=1)]


async def keep_up(context: ServiceContext) -> None:
    """Purges, once an hour, the events and idempotency keys whose time is over."""
    while True:
        now = context.now()

        def work(tx: Tx) -> None:
            tx.purge_keys(now - timedelta(hours=KEY_HOURS))  # noqa: B023 - the work runs before the next turn
            tx.purge_events(now - timedelta(days=EVENT_DAYS))  # noqa: B023

        await context.store.write(work)
        await anyio.sleep(_UPKEEP_SECONDS)
