"""The fair queue for terminals: callers take turns, and nobody who waits for a child blocks that child."""

from collections import OrderedDict, deque

import msgspec


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff that needs a terminal. `lender` is the place of the agent that gave it, if an agent did."""

    thread_id: str
    caller: str
    lender: str | None = None


class FairQueue:
    """Who gets the next terminal. Pure bookkeeping: it starts nothing and knows no time.

    At most `limit` terminals run at once and `per_caller` of one caller; those who wait are served caller
    by caller. When all places are taken, an agent lends its own to one of the handoffs it gave: it waits
    for that one now or later, so agents that fill all places never wait for children that find none.
    """

    def __init__(self, limit: int, per_caller: int) -> None:
        self.limit = limit
        self.per_caller = per_caller
        self._running: dict[str, str] = {}
        """Place → caller, of those that hold a place of their own or a borrowed one."""
        self._lent: dict[str, str] = {}
        """Lender → borrower."""
        self._waiting: OrderedDict[str, deque[Ticket]] = OrderedDict()

    def add(self, ticket: Ticket) -> None:
        self._waiting.setdefault(ticket.caller, deque()).append(ticket)

    def take(self, ticket: Ticket) -> bool:
        """Counts a handoff as running that need not wait at all; False if it has to be added."""
        own = sum(each == ticket.caller for each in self._running.values())
        if self._waiting or self.full or own >= self.per_caller:
            return False
        self._running[ticket.thread_id] = ticket.caller
        return True

    def occupy(self, place: str, caller: str) -> None:
        """Counts a terminal that runs already (a long-lived agent, an adopted one)."""
        self._running[place] = caller

    def remove(self, place: str) -> None:
        """The handoff or agent ended, wherever it was. What it had lent now counts by itself."""
        self._running.pop(place, None)
        self._lent = {
            lender: borrower for lender, borrower in self._lent.items() if place not in (lender, borrower)
        }
        for caller, tickets in list(self._waiting.items()):
            kept = deque(ticket for ticket in tickets if ticket.thread_id != place)
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
            if self.full:
                assert ticket.lender is not None
                self._lent[ticket.lender] = ticket.thread_id
            self._running[ticket.thread_id] = caller
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
        return len(self._running)

    @property
    def full(self) -> bool:
        return len(self._running) - len(self._lent) >= self.limit

    def _runnable(self, caller: str) -> Ticket | None:
        if sum(each == caller for each in self._running.values()) >= self.per_caller:
            return None
        tickets = self._waiting[caller]
        if not self.full:
            return tickets[0]
        return next((ticket for ticket in tickets if self._may_borrow(ticket)), None)

    def _may_borrow(self, ticket: Ticket) -> bool:
        return ticket.lender in self._running and ticket.lender not in self._lent
