"""A thread moves as the table of the protocol says, and in no other way."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import (
    ChangeoverError,
    InvalidTransition,
    NotAuthorizedTransition,
    StateChanged,
    ThreadTerminal,
)
from orchestrator.domain.identity import SERVICE, Principal, PrincipalKind
from orchestrator.domain.thread import Actor, Change, Move, Origin, Outcome, Status, Thread, advance, roles_of

START = datetime(2030, 1, 1, tzinfo=UTC)
NOW = START + timedelta(minutes=5)
HOLDER, OTHER = "session-1", "session-2"

OWNER = Principal(kind=PrincipalKind.PERSON, id="owner")
GIVER = Principal(kind=PrincipalKind.AGENT, id="giver")
TAKER = Principal(kind=PrincipalKind.AGENT, id="taker")

ACTORS = {
    "sender": Actor(principal=GIVER, session="giver-session"),
    "recipient": Actor(principal=TAKER, session=OTHER),
    "holder": Actor(principal=TAKER, session=HOLDER),
    "service": Actor(principal=SERVICE),
    "stranger": Actor(principal=Principal(kind=PrincipalKind.AGENT, id="stranger"), session="s"),
    "owner": Actor(principal=OWNER, session="page"),
}

BLOCKING, OTHERS = {"blocking"}, {"relay", "pipeline"}
ALL = BLOCKING | OTHERS

# The table of section 1, a line each: from, move, who, on which origins, to.
TABLE = [
    ("pending", "accept", "recipient", OTHERS, "accepted"),
    ("pending", "accept", "service", BLOCKING, "accepted"),
    ("pending", "cancel", "sender", ALL, "cancelled"),
    ("pending", "cancel", "service", ALL, "cancelled"),
    ("pending", "fail", "service", BLOCKING, "completed"),
    ("pending", "stop", "sender", BLOCKING, "cancelled"),
    ("accepted", "complete", "holder", ALL, "completed"),
    ("accepted", "complete", "service", BLOCKING, "completed"),
    ("accepted", "stop", "sender", BLOCKING, "completed"),
    ("accepted", "release", "recipient", OTHERS, "pending"),
    ("accepted", "release", "service", OTHERS, "pending"),
    ("pending", "send_message", "sender", ALL, "pending"),
    ("pending", "send_message", "recipient", ALL, "pending"),
    ("accepted", "send_message", "sender", ALL, "accepted"),
    ("accepted", "send_message", "recipient", ALL, "accepted"),
]


class Attempted(NamedTuple):
    status: Status
    move: Move
    actor: str
    origin: Origin


ATTEMPTS = [Attempted(*each) for each in product(Status, Move, sorted(ACTORS), Origin)]


def thread_in(status: Status, origin: Origin) -> Thread:
    """One that came to this status; a blocking one has no recipient before it is accepted."""
    taken = status in (Status.ACCEPTED, Status.COMPLETED)
    return Thread(
        id="ho_1",
        origin=origin,
        sender=GIVER,
        created_at=START,
        recipient=TAKER if taken or origin is not Origin.BLOCKING else None,
        status=status,
        outcome=Outcome.SUCCEEDED if status is Status.COMPLETED else None,
        holder=HOLDER if taken else None,
        attempt=1 if taken else 0,
        accepted_at=START if taken else None,
        ended_at=START if status in (Status.COMPLETED, Status.CANCELLED) else None,
        version=3,
    )


def names_of(thread: Thread, actor: str) -> set[str]:
    """What the actor is to the thread, in the words of the table."""
    there = thread.recipient is not None
    return {
        "sender": {"sender"},
        "recipient": {"recipient"} if there else set[str](),
        "holder": {"recipient", "holder"} if thread.holder else {"recipient"} if there else set[str](),
        "service": {"service"},
        "stranger": set[str](),
        "owner": {"sender"} if thread.origin is Origin.BLOCKING else set[str](),
    }[actor]


def expected(attempt: Attempted) -> str | type[ChangeoverError]:
    """The status after the move, or the error, in the protocol's order of answers."""
    thread = thread_in(attempt.status, attempt.origin)
    names = names_of(thread, attempt.actor)
    if not thread.open:
        return ThreadTerminal
    ever = [row for row in TABLE if row[1] == attempt.move and attempt.origin in row[3]]
    if attempt.move is Move.COMPLETE and "recipient" in names - {"holder"} and "holder" not in names:
        # Who could hold it and does not: another session does, or nobody yet.
        return StateChanged if attempt.status is Status.ACCEPTED else InvalidTransition
    if not names & {row[2] for row in ever}:
        return NotAuthorizedTransition
    if attempt.move is Move.ACCEPT and attempt.status is Status.ACCEPTED:
        return StateChanged
    here = [row for row in ever if row[0] == attempt.status and row[2] in names]
    return here[0][4] if here else InvalidTransition


@pytest.mark.promise("moves", "final-states", "order-of-answers")
@pytest.mark.parametrize("move", Move)
def test_a_move_does_what_the_table_says_or_is_refused_in_the_promised_order(move: Move) -> None:
    for attempt in ATTEMPTS:
        if attempt.move is not move:
            continue
        thread, actor, wanted = (
            thread_in(attempt.status, attempt.origin),
            ACTORS[attempt.actor],
            expected(attempt),
        )
        if move is Move.ACCEPT and attempt.actor == "holder" and wanted is StateChanged:
            assert advance(thread, move, actor, NOW) is thread
        elif isinstance(wanted, str):
            assert advance(thread, move, actor, NOW).status == wanted, attempt
        else:
            with pytest.raises(wanted) as refused:
                advance(thread, move, actor, NOW)
            assert type(refused.value) is wanted, attempt


steps = st.tuples(
    st.sampled_from(Move), st.sampled_from(sorted(ACTORS)), st.none() | st.sampled_from(Outcome)
)


@pytest.mark.promise("outcome", "final-states")
@given(st.sampled_from(Origin), st.lists(steps, max_size=12))
def test_whatever_is_tried_in_whatever_order_a_thread_stays_whole(
    origin: Origin, tried: list[tuple[Move, str, Outcome | None]]
) -> None:
    thread = thread_in(Status.PENDING, origin)
    for move, name, outcome in tried:
        change = Change(outcome=outcome, recipient=TAKER, holder=HOLDER if name == "service" else None)
        try:
            after = advance(thread, move, ACTORS[name], NOW, change)
        except ChangeoverError:
            continue
        assert thread.open
        assert after is thread or after.version == thread.version + 1
        assert after.attempt - thread.attempt == (move is Move.ACCEPT and after is not thread)
        assert (after.outcome is not None) == (after.status is Status.COMPLETED)
        assert (after.ended_at is not None) == (not after.open)
        assert (after.cancel_reason is not None) == (after.status is Status.CANCELLED)
        if after.open:
            assert (after.holder is not None) == (after.status is Status.ACCEPTED)
            assert (after.accepted_at is not None) == (after.status is Status.ACCEPTED)
        untouched = ("id", "origin", "sender", "created_at", "parent_id")
        assert all(getattr(after, each) == getattr(thread, each) for each in untouched)
        thread = after


@pytest.mark.promise("repeat-accept")
def test_the_winner_of_an_accept_may_repeat_it_and_another_session_learns_who_won() -> None:
    pending = thread_in(Status.PENDING, Origin.RELAY)
    accepted = advance(pending, Move.ACCEPT, ACTORS["holder"], NOW)
    assert (accepted.holder, accepted.attempt, accepted.accepted_at) == (HOLDER, 1, NOW)
    assert advance(accepted, Move.ACCEPT, ACTORS["holder"], NOW + timedelta(hours=1)) is accepted
    with pytest.raises(StateChanged) as lost:
        advance(accepted, Move.ACCEPT, ACTORS["recipient"], NOW)
    assert lost.value.facts == {"accepted_by": str(TAKER), "accepted_at": NOW}


@pytest.mark.promise("repeat-accept")
def test_without_a_session_an_accept_cannot_be_repeated() -> None:
    nobody = Actor(principal=TAKER)
    accepted = advance(thread_in(Status.PENDING, Origin.RELAY), Move.ACCEPT, nobody, NOW)
    with pytest.raises(StateChanged):
        advance(accepted, Move.ACCEPT, nobody, NOW)


@pytest.mark.promise("late-result")
def test_a_completion_of_an_earlier_attempt_is_refused() -> None:
    first = advance(thread_in(Status.PENDING, Origin.RELAY), Move.ACCEPT, ACTORS["holder"], NOW)
    released = advance(first, Move.RELEASE, ACTORS["service"], NOW)
    assert (released.status, released.holder, released.attempt) == (Status.PENDING, None, 1)
    second = advance(released, Move.ACCEPT, ACTORS["holder"], NOW)
    with pytest.raises(StateChanged) as late:
        advance(second, Move.COMPLETE, ACTORS["holder"], NOW, Change(result="old", attempt=1))
    assert late.value.facts == {"attempt": 2}
    done = advance(second, Move.COMPLETE, ACTORS["holder"], NOW, Change(result="new", attempt=2))
    assert (done.status, done.outcome, done.result) == (Status.COMPLETED, Outcome.SUCCEEDED, "new")


@pytest.mark.promise("late-result")
def test_a_session_that_lost_its_hold_cannot_complete_what_another_one_took() -> None:
    first = advance(thread_in(Status.PENDING, Origin.RELAY), Move.ACCEPT, ACTORS["holder"], NOW)
    released = advance(first, Move.RELEASE, ACTORS["recipient"], NOW)
    second = advance(released, Move.ACCEPT, ACTORS["recipient"], NOW)
    with pytest.raises(StateChanged):
        advance(second, Move.COMPLETE, ACTORS["holder"], NOW)


@pytest.mark.promise("moves")
@pytest.mark.parametrize(
    ("status", "move", "actor", "outcome"),
    [
        (Status.PENDING, Move.FAIL, "service", Outcome.FAILED),
        (Status.ACCEPTED, Move.STOP, "sender", Outcome.INTERRUPTED),
        (Status.ACCEPTED, Move.STOP, "owner", Outcome.INTERRUPTED),
        (Status.ACCEPTED, Move.COMPLETE, "service", Outcome.SUCCEEDED),
    ],
)
def test_an_end_without_a_said_outcome_has_the_one_of_its_move(
    status: Status, move: Move, actor: str, outcome: Outcome
) -> None:
    after = advance(thread_in(status, Origin.BLOCKING), move, ACTORS[actor], NOW, Change(result="so far"))
    assert (after.status, after.outcome, after.result) == (Status.COMPLETED, outcome, "so far")


@pytest.mark.promise("strangers")
def test_a_stranger_has_no_role_and_the_owner_only_on_blocking_handoffs() -> None:
    for origin in Origin:
        thread = thread_in(Status.ACCEPTED, origin)
        assert roles_of(thread, ACTORS["stranger"]) == frozenset()
        assert bool(roles_of(thread, ACTORS["owner"])) == (origin is Origin.BLOCKING)


def test_the_record_a_refusal_leaves_is_the_one_there_was() -> None:
    thread = thread_in(Status.ACCEPTED, Origin.RELAY)
    before = msgspec.json.encode(thread)
    with pytest.raises(InvalidTransition):
        advance(thread, Move.CANCEL, ACTORS["sender"], NOW)
    assert msgspec.json.encode(thread) == before
