"""What goes in comes out, complete and in order, on every store."""

from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from orchestrator.domain.errors import InvalidParams, Refused
from orchestrator.domain.event import Event
from orchestrator.domain.terminal import DeliveryState, TerminalState
from orchestrator.domain.thread import Message, Status
from orchestrator.ports import Store, Tx

pytestmark = pytest.mark.anyio


@pytest.mark.promise("messages")
async def test_twenty_concurrent_writers_number_the_messages_of_a_thread_without_a_gap(
    store: Store, make: Any
) -> None:
    await store.write(lambda tx: tx.insert_thread(make.thread()))
    returned: list[Message] = []

    async def write(n: int) -> None:
        for m in range(5):
            message = make.message(text=f"{n}.{m}", sequence_no=99)
            returned.append(await store.write(lambda tx, message=message: tx.append_message(message)))

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(write, n)
    stored = await store.read(lambda tx: tx.messages("t1"))
    assert [message.sequence_no for message in stored] == list(range(1, 101))
    assert sorted(returned, key=lambda message: message.sequence_no) == stored


async def test_messages_are_read_from_any_place_and_by_thread(store: Store, make: Any) -> None:
    def work(tx: Tx) -> None:
        for id_ in ("t1", "t2"):
            tx.insert_thread(make.thread(id_))
            for n in range(4):
                tx.append_message(make.message(id_, text=f"{id_} {n}"))

    await store.write(work)
    page = await store.read(lambda tx: tx.messages("t2", after=1, limit=2))
    assert [(message.sequence_no, message.text) for message in page] == [(2, "t2 1"), (3, "t2 2")]
    assert await store.read(lambda tx: tx.messages("t2", after=4)) == []
    assert await store.read(lambda tx: tx.messages("nowhere")) == []


@pytest.mark.parametrize("step", [0, -3600], ids=["standing still", "going backwards"])
async def test_records_keep_the_order_of_their_insertion_with_a_clock(
    store: Store, make: Any, step: int
) -> None:
    names = ["m", "c", "z", "a", "q"]

    async def insert(n: int, name: str) -> None:
        at = make.now + timedelta(seconds=step * n)

        def work(tx: Tx) -> None:
            tx.insert_thread(make.thread(name, created_at=at))
            tx.append_message(make.message("m", created_at=at, text=name))
            tx.append_event(make.event(at=at, thread_id=name))
            tx.insert_terminal(make.terminal(name, started_at=at))
            tx.insert_delivery(make.delivery(name, terminal_id="m", created_at=at))

        await store.write(work)

    for n, name in enumerate(names):
        await insert(n, name)
    assert [t.id for t in await store.read(lambda tx: tx.threads())] == names[::-1]
    assert [m.text for m in await store.read(lambda tx: tx.messages("m"))] == names
    assert [e.thread_id for e in await store.read(lambda tx: tx.events())] == names
    assert [t.id for t in await store.read(lambda tx: tx.terminals())] == names[::-1]
    assert [d.id for d in await store.read(lambda tx: tx.deliveries("m"))] == names


async def test_a_changed_record_keeps_its_place(store: Store, make: Any) -> None:
    def work(tx: Tx) -> None:
        for name in "abc":
            tx.insert_thread(make.thread(name))
            tx.insert_terminal(make.terminal(name))
        tx.replace_thread(make.thread("a"), make.thread("a", version=1))
        tx.replace_terminal(make.terminal("a"), make.terminal("a", version=1))

    await store.write(work)
    assert [t.id for t in await store.read(lambda tx: tx.threads())] == ["c", "b", "a"]
    assert [t.id for t in await store.read(lambda tx: tx.terminals())] == ["c", "b", "a"]


async def test_paging_threads_repeats_and_skips_nothing_while_new_ones_come(store: Store, make: Any) -> None:
    for n in range(10):
        await store.write(lambda tx, n=n: tx.insert_thread(make.thread(f"t{n}")))
    seen: list[str] = []
    before: str | None = None
    while page := await store.read(lambda tx, before=before: tx.threads(before=before, limit=3)):
        seen += [thread.id for thread in page]
        before = seen[-1]
        late = make.thread(f"later than {before}")
        await store.write(lambda tx, late=late: tx.insert_thread(late))
    assert seen == [f"t{n}" for n in reversed(range(10))]
    assert await store.read(lambda tx: tx.threads(before="nowhere")) == []


async def test_threads_are_chosen_by_each_of_their_marks_and_by_several_at_once(
    store: Store, make: Any
) -> None:
    threads = [
        make.thread("pending"),
        make.thread("accepted", status=Status.ACCEPTED, sender=make.bob),
        make.thread("child", parent_id="pending", runner="i1"),
        make.thread("collected", status=Status.COMPLETED, collected_at=make.now, runner="i1"),
        make.thread("completed", status=Status.COMPLETED, runner="i2"),
    ]
    for thread in threads:
        await store.write(lambda tx, thread=thread: tx.insert_thread(thread))

    async def chosen(**marks: Any) -> list[str]:
        return [thread.id for thread in await store.read(lambda tx: tx.threads(**marks))]

    assert await chosen(statuses=[Status.PENDING]) == ["child", "pending"]
    assert await chosen(statuses=[Status.PENDING, Status.ACCEPTED]) == ["child", "accepted", "pending"]
    assert await chosen(statuses=[]) == []
    assert await chosen(sender=make.bob) == ["accepted"]
    assert await chosen(parent_id="pending") == ["child"]
    assert await chosen(runner="i1") == ["collected", "child"]
    assert await chosen(uncollected=True) == ["completed", "child", "accepted", "pending"]
    assert await chosen(statuses=[Status.COMPLETED], uncollected=True) == ["completed"]
    assert await chosen(sender=make.ann, runner="i1", uncollected=True) == ["child"]
    assert await chosen(sender=make.ann, before="completed", limit=2) == ["collected", "child"]


async def test_terminals_are_chosen_by_each_of_their_marks(store: Store, make: Any) -> None:
    terminals = [
        make.terminal("starting", name="rex"),
        make.terminal("running", state=TerminalState.RUNNING, thread_id="t1"),
        make.terminal("ended", state=TerminalState.ENDED, name="rex", ended_at=make.now),
        make.terminal("elsewhere", instance="i2"),
    ]
    for terminal in terminals:
        await store.write(lambda tx, terminal=terminal: tx.insert_terminal(terminal))

    async def chosen(**marks: Any) -> list[str]:
        return [terminal.id for terminal in await store.read(lambda tx: tx.terminals(**marks))]

    assert await chosen(living=True) == ["elsewhere", "running", "starting"]
    assert await chosen(living=True, instance="i1") == ["running", "starting"]
    assert await chosen(name="rex") == ["ended", "starting"]
    assert await chosen(name="rex", living=True) == ["starting"]
    assert await chosen(thread_id="t1") == ["running"]
    assert await chosen(limit=1) == ["elsewhere"]


async def test_deliveries_queued_at_once_get_positions_without_a_gap(store: Store, make: Any) -> None:
    for id_ in ("w1", "w2"):
        await store.write(lambda tx, id_=id_: tx.insert_terminal(make.terminal(id_)))
    returned: dict[str, int] = {}

    async def queue(n: int) -> None:
        delivery = make.delivery(f"d{n}", terminal_id=f"w{n % 2 + 1}", position=99)
        returned[delivery.id] = (await store.write(lambda tx: tx.insert_delivery(delivery))).position

    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(queue, n)
    for id_ in ("w1", "w2"):
        stored = await store.read(lambda tx, id_=id_: tx.deliveries(id_))
        assert [delivery.position for delivery in stored] == list(range(1, 21))
        assert all(returned[delivery.id] == delivery.position for delivery in stored)


async def test_only_queued_and_typing_deliveries_are_unsettled(store: Store, make: Any) -> None:
    await store.write(lambda tx: tx.insert_terminal(make.terminal()))
    for state in DeliveryState:
        await store.write(lambda tx, state=state: tx.insert_delivery(make.delivery(state.value, state=state)))
    unsettled = await store.read(lambda tx: tx.deliveries("w1", unsettled=True))
    assert [delivery.id for delivery in unsettled] == ["queued", "typing"]


async def test_events_are_read_after_an_id_and_by_thread_or_terminal(store: Store, make: Any) -> None:
    def work(tx: Tx) -> list[Event]:
        places = [{"thread_id": "t1"}, {"terminal_id": "w1"}, {"thread_id": "t1", "terminal_id": "w1"}, {}]
        return [tx.append_event(make.event(**place)) for place in places]

    first, second, third, fourth = await store.write(work)
    assert [first.id, second.id, third.id, fourth.id] == [1, 2, 3, 4]
    assert await store.read(lambda tx: tx.events()) == [first, second, third, fourth]
    assert await store.read(lambda tx: tx.events(after=2)) == [third, fourth]
    assert await store.read(lambda tx: tx.events(after=1, limit=1)) == [second]
    assert await store.read(lambda tx: tx.events(thread_id="t1")) == [first, third]
    assert await store.read(lambda tx: tx.events(terminal_id="w1", after=2)) == [third]


@pytest.mark.promise("event-order")
async def test_purging_events_leaves_no_hole_and_gives_no_id_twice(store: Store, make: Any) -> None:
    def work(tx: Tx) -> None:
        for days in (0, 1, 9, 2, 10):
            tx.append_event(make.event(at=make.now + timedelta(days=days)))

    await store.write(work)
    assert await store.write(lambda tx: tx.purge_events(make.now + timedelta(days=5))) == 2
    assert [event.id for event in await store.read(lambda tx: tx.events())] == [3, 4, 5]
    assert await store.write(lambda tx: tx.purge_events(make.now + timedelta(days=50))) == 3
    assert (await store.write(lambda tx: tx.append_event(make.event()))).id == 6


async def test_keys_are_told_apart_by_principal_and_operation_and_purged_by_age(
    store: Store, make: Any
) -> None:
    young = make.now + timedelta(hours=25)
    records = [
        make.key(),
        make.key(operation="accept"),
        make.key(principal="person:eve", response=b"\x00\xff", created_at=young),
    ]
    for record in records:
        await store.write(lambda tx, record=record: tx.insert_key(record))
    for record in records:
        found = await store.read(lambda tx, r=record: tx.key(r.principal, r.operation, r.key))
        assert found == record
    assert await store.write(lambda tx: tx.purge_keys(make.now + timedelta(hours=24))) == 2
    assert await store.read(lambda tx: tx.key("person:eve", "handoff", "k1")) == records[2]
    assert await store.read(lambda tx: tx.key("person:ann", "handoff", "k1")) is None


async def test_what_exists_cannot_be_inserted_again(store: Store, make: Any) -> None:
    def insert(tx: Tx) -> None:
        tx.insert_terminal(make.terminal())
        tx.insert_delivery(make.delivery())
        tx.insert_thread(make.thread())
        tx.insert_key(make.key())
        tx.insert_credential(make.credential())

    await store.write(insert)
    for again in (
        lambda tx: tx.insert_terminal(make.terminal()),
        lambda tx: tx.insert_delivery(make.delivery()),
        lambda tx: tx.insert_thread(make.thread()),
        lambda tx: tx.insert_key(make.key()),
        lambda tx: tx.insert_credential(make.credential()),
        lambda tx: tx.insert_credential(make.credential("c2", hash="hash of c1")),
    ):
        with pytest.raises(Refused, match="exists already"):
            await store.write(again)
    await store.write(lambda tx: tx.insert_delivery(make.delivery("d2")))
    assert [d.position for d in await store.read(lambda tx: tx.deliveries("w1"))] == [1, 2]


async def test_a_credential_is_found_by_its_hash_and_changed_without_a_race(store: Store, make: Any) -> None:
    credential = make.credential()
    await store.write(lambda tx: tx.insert_credential(credential))
    revoked = msgspec.structs.replace(credential, revoked_at=make.now)
    await store.write(lambda tx: tx.replace_credential(revoked))
    assert await store.read(lambda tx: tx.credential_by_hash("hash of c1")) == revoked
    assert await store.read(lambda tx: tx.credential("c1")) == revoked
    assert await store.read(lambda tx: tx.credential_by_hash("another")) is None


@pytest.mark.parametrize("bad", ["\ud83d", "a\udc00b", "nul\0"])
async def test_text_that_cannot_be_stored_is_refused_with_its_path(store: Store, make: Any, bad: str) -> None:
    await store.write(lambda tx: tx.insert_thread(make.thread()))
    works = {
        "$.text": lambda tx: tx.append_message(make.message(text=bad)),
        "$.payload.list[1]": lambda tx: tx.append_message(make.message(payload={"list": ["", bad]})),
        "$.data.x": lambda tx: tx.append_event(make.event(data={"x": bad})),
        "$.id": lambda tx: tx.insert_thread(make.thread(bad)),
        "$.key": lambda tx: tx.insert_key(make.key(bad)),
        "$": lambda tx: tx.thread(bad),
    }
    for path, work in works.items():
        with pytest.raises(InvalidParams) as refused:
            await store.write(work)
        assert refused.value.facts["path"] == path
    with pytest.raises(InvalidParams):
        await store.write(lambda tx: tx.append_event(make.event(data={bad: 1})))
    assert await store.read(lambda tx: (tx.messages("t1"), tx.events())) == ([], [])


@pytest.mark.parametrize("text", ["\U0001f600", "\\u0000", "a\r\n\tb", "\u202e\u200d", "", "x" * 3_000_000])
async def test_every_other_text_is_kept_exactly(store: Store, make: Any, text: str) -> None:
    def work(tx: Tx) -> None:
        tx.insert_thread(make.thread(result=text))
        tx.append_message(make.message(text=text, payload={text: text}))

    await store.write(work)
    stored = await store.read(lambda tx: (tx.thread("t1"), tx.messages("t1")))
    assert stored[0] is not None
    assert stored[0].result == text
    assert (stored[1][0].text, stored[1][0].payload) == (text, {text: text})


async def test_a_time_without_an_offset_is_refused(store: Store, make: Any) -> None:
    with pytest.raises(ValueError, match=r"created_at = .* has no offset"):
        await store.write(lambda tx: tx.insert_thread(make.thread(created_at=make.now.replace(tzinfo=None))))
