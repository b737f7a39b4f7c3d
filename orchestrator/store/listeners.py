"""Who hears of a store's commits."""

import logging
from collections.abc import Callable, Sequence

from orchestrator.domain.event import Event

logger = logging.getLogger(__name__)


class Listeners:
    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[Sequence[Event]], None]] = {}

    def add(self, listener: Callable[[Sequence[Event]], None]) -> Callable[[], None]:
        """Returns the function that takes exactly this subscription away, however often it is called."""
        ticket = object()
        self._listeners[ticket] = listener

        def end() -> None:
            self._listeners.pop(ticket, None)

        return end

    def tell(self, events: Sequence[Event]) -> None:
        """A listener that raises is logged: the change is durable, and the others must still hear of it."""
        if not events:
            return
        for listener in list(self._listeners.values()):
            try:
                listener(events)
            except Exception:
                logger.exception("a listener of the store failed")
