"""Wake-ups: who waits for a thread or a terminal is woken by its events. The store is the truth."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from math import inf

import anyio

from orchestrator.domain.event import Event, EventType

THREAD_ENDED = frozenset({EventType.COMPLETED, EventType.CANCELLED})
TERMINAL_ENDED = frozenset({EventType.TERMINAL_ENDED})


class Watch:
    """A standing interest in events of some types. A wake-up between two waits is not lost."""

    def __init__(self, types: frozenset[EventType]) -> None:
        self.types = types
        self._woken = anyio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, seconds: float = inf) -> None:
        """Returns at the first wake-up since the last wait, or when the time is up."""
        with anyio.move_on_after(seconds):
            await self._woken.wait()
        self._woken = anyio.Event()


class Bus:
    """Watch first, then read, then wait, then read again: then nothing is missed."""

    def __init__(self) -> None:
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)
        self.stopping = False

    def publish(self, events: Sequence[Event]) -> None:
        for event in events:
            for key in (event.thread_id, event.terminal_id):
                for watch in self._watches.get(key, ()) if key else ():
                    if event.type in watch.types:
                        watch.wake()

    @contextmanager
    def watch(self, keys: Iterable[str], types: frozenset[EventType]) -> Generator[Watch]:
        """Wakes for events of `types` about the threads and terminals `keys`; each wake-up costs a read."""
        watch = Watch(types)
        wanted = set(keys)
        for key in wanted:
            self._watches[key].add(watch)
        try:
            yield watch
        finally:
            for key in wanted:
                self._watches[key].discard(watch)
                if not self._watches[key]:
                    del self._watches[key]

    def stop(self) -> None:
        """The service is stopping: every wait ends now."""
        self.stopping = True
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()
