"""Who may hand work to whom: no agent to itself, no circle of waits, no endless chain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.chain import Link, check_chain
from orchestrator.domain.errors import ChangeoverError, HandoffCycle, HandoffSelf, HandoffTooDeep

pytestmark = pytest.mark.promise("chain")

LIMIT = 8

links = st.lists(
    st.builds(
        Link,
        profile=st.sampled_from("abcdef"),
        thread_id=st.sampled_from(["ho_1", "ho_2"]),
        waits=st.booleans(),
    ),
    max_size=12,
)


def chain(*profiles: str, waits: bool = True) -> list[Link]:
    """From the giver up; the last one was started by a person."""
    return [Link(profile=name, thread_id=f"ho_{name}", waits=waits) for name in profiles]


def test_a_person_hands_work_to_anyone() -> None:
    check_chain("a", [], waits=True, limit=1)


def test_an_agent_never_hands_work_to_its_own_profile_even_without_waiting() -> None:
    for waits in (True, False):
        with pytest.raises(HandoffSelf) as refused:
            check_chain("a", chain("a", "b"), waits=waits, limit=LIMIT)
        assert refused.value.facts["chain"] == ["b", "a", "a"]


def test_a_circle_of_waits_is_refused_and_names_its_agents_in_order() -> None:
    with pytest.raises(HandoffCycle) as refused:
        check_chain("a", chain("c", "b", "a"), waits=True, limit=LIMIT)
    assert refused.value.facts["chain"] == ["a", "b", "c", "a"]
    assert "a → b → c → a" in refused.value.detail


def test_a_circle_that_nobody_waits_around_is_none() -> None:
    check_chain("a", chain("b", "a"), waits=False, limit=LIMIT)
    assigned = [Link(profile="b", thread_id="ho_b", waits=False), Link(profile="a", thread_id="ho_a")]
    check_chain("a", assigned, waits=True, limit=LIMIT)


def test_the_chain_stops_at_its_limit() -> None:
    check_chain("z", chain(*"abcdefg"), waits=True, limit=LIMIT)
    with pytest.raises(HandoffTooDeep) as refused:
        check_chain("z", chain(*"abcdefgh"), waits=False, limit=LIMIT)
    assert refused.value.facts["limit"] == LIMIT
    assert refused.value.facts["chain"] == [*"hgfedcba", "z"]


def test_an_agent_that_no_handoff_started_is_no_step_of_the_chain() -> None:
    lead = [Link(profile="lead")]
    check_chain("a", lead, waits=True, limit=1)
    with pytest.raises(HandoffTooDeep):
        check_chain("b", [*chain("a"), *lead], waits=True, limit=1)


@given(st.sampled_from("abcdef"), links, st.booleans())
def test_what_is_allowed_closes_no_circle_of_waits_and_is_no_deeper_than_the_limit(
    target: str, above: list[Link], waits: bool
) -> None:
    try:
        check_chain(target, above, waits=waits, limit=LIMIT)
    except ChangeoverError:
        return
    assert len(above) < LIMIT
    waiting = set[str]()
    blocked = waits
    for index, link in enumerate(above):
        if index:
            blocked = blocked and above[index - 1].waits
        if blocked or index == 0:
            waiting.add(link.profile)
    assert target not in waiting
