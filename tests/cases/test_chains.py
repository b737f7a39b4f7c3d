"""Field case E7: agents that hand work to each other in a circle, to themselves, or on and on."""

import json
from collections.abc import Iterator

import pytest

from tests.live import LiveService, hand_off

pytestmark = [pytest.mark.anyio, pytest.mark.promise("E7", "chain")]

DEPTH = 8
"""The documented limit."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service with a single place for terminals."""
    with LiveService(tmp_path_factory.mktemp("narrow"), {"CHANGEOVER_MAX_TERMINALS": "1"}) as service:
        yield service.start()


def call(profile: str, message: str, tool: str = "handoff") -> str:
    """A task that hands a task on and answers with what comes back."""
    return f"@call {tool} " + json.dumps({"agent_profile": profile, "message": message}, ensure_ascii=False)


async def test_a_circle_is_refused_at_once_with_the_chain(shared: LiveService) -> None:
    for name in ("alpha", "beta"):
        shared.profile(name)
    result = await hand_off(shared, "alpha", call("beta", call("alpha", "never done")))
    assert result.outcome == "succeeded"
    assert "alpha → beta → alpha" in (result.output or "")
    assert "never done" not in (result.output or "")
    assert result.duration_s < 10


async def test_a_longer_circle_is_refused_too(shared: LiveService) -> None:
    for name in ("one", "two", "three"):
        shared.profile(name)
    result = await hand_off(shared, "one", call("two", call("three", call("one", "never done"))))
    assert "one → two → three → one" in (result.output or "")


@pytest.mark.parametrize("tool", ["handoff", "assign"])
async def test_an_agent_cannot_hand_work_to_itself(shared: LiveService, tool: str) -> None:
    shared.profile("solo")
    result = await hand_off(shared, "solo", call("solo", "never done", tool))
    assert "solo → solo" in (result.output or "")
    assert (result.outcome, "never done" in (result.output or "")) == ("succeeded", False)


async def test_a_chain_stops_at_the_documented_depth_and_its_terminals_are_bounded(
    shared: LiveService,
) -> None:
    names = [shared.profile(f"link{number}") for number in range(DEPTH + 2)]
    task = "the end"
    for name in reversed(names[1:]):
        task = call(name, task)
    async with shared.client() as client:
        before = len((await client.handoffs(limit=200)).items)
        result = await hand_off(shared, names[0], task, seconds=90)
        assert f"the limit is {DEPTH}" in (result.output or "")
        assert "link0 → link1 → link2" in (result.output or "")
        made = (await client.handoffs(limit=200)).items[: -before or None]
        assert len(made) == DEPTH
        assert {each.outcome for each in made} == {"succeeded"}
        above = None
        for handoff in reversed(made):
            thread = await client.thread(handoff.handoff_id)
            assert thread.parent_id == above
            above = thread.thread_id


@pytest.mark.promise("limits")
async def test_agents_that_fill_all_places_never_wait_for_children_that_find_none(
    narrow: LiveService,
) -> None:
    """One place: each agent lends its own to the one it waits for, or assigned and will wait for."""
    for name in ("parent", "middle", "leaf"):
        narrow.profile(name)
    blocking = await hand_off(narrow, "parent", call("middle", call("leaf", "deep")), seconds=30)
    assert "deep" in (blocking.output or "")
    assigned = await hand_off(
        narrow,
        "parent",
        call("leaf", "@say later", "assign")
        + "\n@call wait_handoff "
        + json.dumps({"handoff_ids": ["$1.handoff_id"], "timeout": 20}),
        seconds=30,
    )
    assert "later" in (assigned.output or "")
    async with narrow.client() as client:
        events = (await client.thread(assigned.handoff_id)).events
    assert "handoff.child_ended" in [event.type for event in events]
