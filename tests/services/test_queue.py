"""Who gets the next terminal: limits hold, callers take turns, and nobody waits for ever."""

from collections import defaultdict
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.services.queue import FairQueue, Ticket

pytestmark = pytest.mark.promise("limits")


def drain(queue: FairQueue) -> list[str]:
    """Starts all that may run now."""
    started: list[str] = []
    while (ticket := queue.next()) is not None:
        started.append(ticket.thread_id)
    return started


def test_callers_take_turns_whoever_came_with_more() -> None:
    queue = FairQueue(1, 1)
    for number in range(3):
        queue.add(Ticket(thread_id=f"a{number}", caller="a"))
    queue.add(Ticket(thread_id="b0", caller="b"))
    order: list[str] = []
    while started := drain(queue):
        order += started
        queue.remove(started[0])
    assert order == ["a0", "b0", "a1", "a2"]


def test_the_place_is_the_order_in_which_they_will_run() -> None:
    queue = FairQueue(1, 1)
    queue.occupy("long-lived", "x")
    for name in ("a0", "a1", "b0"):
        queue.add(Ticket(thread_id=name, caller=name[0]))
    places = {name: queue.place(name) for name in ("a0", "b0", "a1", "none")}
    assert places == {"a0": 1, "b0": 2, "a1": 3, "none": None}
    queue.remove("long-lived")
    for name in ("a0", "b0", "a1"):
        assert drain(queue) == [name]
        queue.remove(name)


def test_an_agent_lends_its_place_to_one_child_at_a_time() -> None:
    queue = FairQueue(1, 9)
    queue.occupy("parent", "person")
    for name in ("child1", "child2"):
        queue.add(Ticket(thread_id=name, caller="agent", lender="parent"))
    queue.add(Ticket(thread_id="stranger", caller="other"))
    assert drain(queue) == ["child1"]
    queue.remove("child1")
    assert drain(queue) == ["child2"]
    queue.remove("child2")
    assert drain(queue) == []
    queue.remove("parent")
    assert drain(queue) == ["stranger"]


def test_lending_does_not_lift_the_limit_of_one_caller() -> None:
    queue = FairQueue(2, 1)
    for parent in ("p1", "p2"):
        queue.occupy(parent, parent)
    queue.add(Ticket(thread_id="child1", caller="agent", lender="p1"))
    queue.add(Ticket(thread_id="child2", caller="agent", lender="p2"))
    assert drain(queue) == ["child1"]


def test_a_place_whose_holder_is_gone_cannot_be_lent() -> None:
    queue = FairQueue(1, 1)
    queue.occupy("other", "x")
    queue.add(Ticket(thread_id="child", caller="agent", lender="gone"))
    assert drain(queue) == []


def test_a_child_that_outlives_its_lender_keeps_the_place_busy() -> None:
    queue = FairQueue(1, 1)
    queue.occupy("parent", "person")
    queue.add(Ticket(thread_id="child", caller="agent", lender="parent"))
    assert drain(queue) == ["child"]
    queue.remove("parent")
    queue.add(Ticket(thread_id="next", caller="person"))
    assert (drain(queue), queue.running, queue.full) == ([], 1, True)
    queue.remove("child")
    assert drain(queue) == ["next"]


class Agents(RuleBasedStateMachine):
    """Agents hand on work, end, and give up waiting, in any order."""

    LIMIT, PER_CALLER = 2, 2

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue(self.LIMIT, self.PER_CALLER)
        self.ids = count()
        self.callers: dict[str, str] = {}
        self.running: set[str] = set()
        self.waiting: set[str] = set()
        self.open_children: defaultdict[str, set[str]] = defaultdict(set)

    @rule(caller=st.sampled_from(["ann", "bob", "cy"]))
    def a_person_hands_work_on(self, caller: str) -> None:
        self._add(caller, None)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 99))
    def an_agent_hands_work_on(self, pick: int) -> None:
        giver = self._pick(self.running, pick)
        self._add(f"agent {giver}", giver)

    @precondition(lambda self: self._free_to_end())
    @rule(pick=st.integers(0, 99))
    def an_agent_ends(self, pick: int) -> None:
        """One that waits for no child of its own."""
        self._remove(self._pick(self._free_to_end(), pick))

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 99))
    def an_agent_dies(self, pick: int) -> None:
        self._remove(self._pick(self.running, pick))

    @precondition(lambda self: self.waiting)
    @rule(pick=st.integers(0, 99))
    def a_waiting_handoff_is_stopped(self, pick: int) -> None:
        self._remove(self._pick(self.waiting, pick))

    @invariant()
    def nobody_runs_who_should_not_and_all_wait_whom_nobody_started(self) -> None:
        assert self.queue.running == len(self.running)
        places = sorted(self.queue.place(each) or 0 for each in self.waiting)
        assert places == list(range(1, len(self.waiting) + 1))

    @invariant()
    def someone_can_always_go_on(self) -> None:
        assert not self.waiting or self._free_to_end(), "all wait for children that find no place"

    def teardown(self) -> None:
        """Whoever can end ends: then every one that waits runs in the end."""
        while self._free_to_end():
            self._remove(self._pick(self._free_to_end(), 0))
        assert not self.waiting
        assert self.queue.running == 0

    def _add(self, caller: str, giver: str | None) -> None:
        thread = f"h{next(self.ids)}"
        self.callers[thread] = caller
        self.waiting.add(thread)
        if giver is not None:
            self.open_children[giver].add(thread)
        self.queue.add(Ticket(thread_id=thread, caller=caller, lender=giver))
        self._dispatch()

    def _remove(self, thread: str) -> None:
        self.running.discard(thread)
        self.waiting.discard(thread)
        for children in self.open_children.values():
            children.discard(thread)
        self.queue.remove(thread)
        self._dispatch()

    def _dispatch(self) -> None:
        while True:
            was_full = self.queue.full
            ticket = self.queue.next()
            if ticket is None:
                return
            thread = ticket.thread_id
            assert thread in self.waiting
            if was_full:
                assert ticket.lender in self.running, "started beyond the limit and on nobody's place"
            own = sum(self.callers[each] == ticket.caller for each in self.running)
            assert own < self.PER_CALLER
            self.waiting.remove(thread)
            self.running.add(thread)

    def _free_to_end(self) -> set[str]:
        return {each for each in self.running if not self.open_children[each] & (self.running | self.waiting)}

    def _pick(self, among: set[str], number: int) -> str:
        return sorted(among, key=lambda each: int(each[1:]))[number % len(among)]


Agents.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class TestAgents(Agents.TestCase):
    pass


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 4))
def test_between_two_turns_of_a_caller_every_other_one_that_waits_has_its_own(
    senders: list[int], limit: int
) -> None:
    queue = FairQueue(limit, limit)
    waiting: defaultdict[str, int] = defaultdict(int)
    for number, sender in enumerate(senders):
        queue.add(Ticket(thread_id=f"h{number}", caller=str(sender)))
        waiting[str(sender)] += 1
    since: dict[str, set[str]] = {}
    running: list[str] = []
    for _ in senders:
        ticket = queue.next()
        if ticket is None:
            queue.remove(running.pop(0))
            ticket = queue.next()
        assert ticket is not None
        caller = ticket.caller
        others = {name for name, left in waiting.items() if left and name != caller}
        if caller in since and waiting[caller]:
            assert others <= since[caller]
        running.append(ticket.thread_id)
        waiting[caller] -= 1
        since[caller] = set()
        for name in since:
            since[name].add(caller)
