"""The fair queue for terminals: callers take turns, and nobody who waits for a child blocks that child."""

from collections import OrderedDict, deque

import msgspec


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff that needs a terminal. `lender` is a terminal that blocks on it and lends it its place."""

    thread_id: str
    caller: str
    lender: str | None = None


class FairQueue:
    """Who gets the next terminal. Pure bookkeeping: it starts nothing and knows no time.

    At most `limit` terminals run at once and `per_caller` of one caller; those who wait are served caller
    by caller. A blocking giver lends its own place to one child at a time, so that givers which fill all
    places can never wait for children that find none.
    """

    def __init__(self, limit: int, per_caller: int) -> None:
        self.limit = limit
        self.per_caller = per_caller
        self._running: dict[str, str] = {}
        self._lent: dict[str, str] = {}
        self._waiting: OrderedDict[str, deque[Ticket]] = OrderedDict()

    def add(self, ticket: Ticket) -> None:
        self._waiting.setdefault(ticket.caller, deque()).append(ticket)

    def occupy(self, thread_id: str, caller: str) -> None:
        """Counts a terminal that runs already (a long-lived agent, an adopted one)."""
        self._running[thread_id] = caller

    def remove(self, thread_id: str) -> None:
        """The handoff ended, wherever it was."""
        self._running.pop(thread_id, None)
        for lender, borrower in list(self._lent.items()):
            if borrower == thread_id:
                del self._lent[lender]
        for caller, tickets in list(self._waiting.items()):
            kept = deque(ticket for ticket in tickets if ticket.thread_id != thread_id)
            if kept:
                self._waiting[caller] = kept
            else:
                del self._waiting[caller]

    def next(self) -> Ticket | None:
        """Takes the ticket whose turn it is and counts it as running; None if nobody may run now."""
        for caller in list(self._waiting):
            ticket = self._runnable(caller)
            if ticket is None:
                continue
            self._waiting[caller].remove(ticket)
            self._waiting.move_to_end(caller)
            if not self._waiting[caller]:
                del self._waiting[caller]
            if self._free(caller):
                self._running[ticket.thread_id] = caller
            elif ticket.lender is not None:
                self._lent[ticket.lender] = ticket.thread_id
            return ticket
        return None

    def place(self, thread_id: str) -> int | None:
        """1 for the next to run, by the order in which callers take turns; None if it does not wait."""
        queues = [list(tickets) for tickets in self._waiting.values()]
        place = 0
        for turn in range(max(map(len, queues), default=0)):
            for queue in queues:
                if turn < len(queue):
                    place += 1
                    if queue[turn].thread_id == thread_id:
                        return place
        return None

    @property
    def running(self) -> int:
        return len(self._running) + len(self._lent)

    @property
    def full(self) -> bool:
        return len(self._running) >= self.limit

    def _free(self, caller: str) -> bool:
        own = sum(each == caller for each in self._running.values())
        return len(self._running) < self.limit and own < self.per_caller

    def _runnable(self, caller: str) -> Ticket | None:
        tickets = self._waiting[caller]
        if self._free(caller):
            return tickets[0]
        for ticket in tickets:
            if ticket.lender is not None and ticket.lender not in self._lent:
                return ticket
        return None
