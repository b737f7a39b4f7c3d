"""What a transaction promises, on every store."""

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from orchestrator.domain.errors import Interrupted, NotFound, StateChanged, TerminalNotFound, ThreadNotFound
from orchestrator.domain.event import Event
from orchestrator.domain.identity import Principal
from orchestrator.domain.thread import Actor, Move, Thread, advance
from orchestrator.ports import Store, Tx

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls")]


class Undone(Exception):
    pass


@pytest.mark.promise("compare-and-swap")
async def test_of_twenty_sessions_that_accept_at_once_one_wins_and_the_others_are_told(
    store: Store, make: Any
) -> None:
    await store.write(lambda tx: tx.insert_thread(make.thread()))
    won: list[str] = []
    lost: list[StateChanged] = []

    async def accept(session: str) -> None:
        def work(tx: Tx) -> None:
            old = tx.thread("t1")
            assert old is not None
            new = advance(old, Move.ACCEPT, Actor(principal=make.bob, session=session), make.now)
            tx.replace_thread(old, new)

        try:
            await store.write(work)
            won.append(session)
        except StateChanged as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(accept, f"s{n}")
    stored = await store.read(lambda tx: tx.thread("t1"))
    assert stored is not None
    assert (len(won), len(lost)) == (1, 19)
    assert (stored.holder, stored.attempt) == (won[0], 1)


async def test_a_work_whose_record_was_outdated_runs_again_on_fresh_ones(store: Store, make: Any) -> None:
    first = make.thread()
    await store.write(lambda tx: tx.insert_thread(first))
    await store.write(lambda tx: tx.replace_thread(first, msgspec.structs.replace(first, version=1)))
    seen: list[Thread] = [first]

    def work(tx: Tx) -> int:
        old = seen[-1]
        fresh = tx.thread("t1")
        assert fresh is not None
        seen.append(fresh)
        tx.append_event(make.event())
        tx.replace_thread(old, msgspec.structs.replace(old, holder="h", version=old.version + 1))
        return len(seen)

    assert await store.write(work) == 3
    stored = await store.read(lambda tx: tx.thread("t1"))
    assert stored is not None
    assert (stored.holder, stored.version) == ("h", 2)
    assert len(await store.read(lambda tx: tx.events())) == 1, "the run that was undone left its event"


async def test_an_outdated_work_runs_again_even_if_it_swallows_the_exception(store: Store, make: Any) -> None:
    first = make.thread()
    await store.write(lambda tx: tx.insert_thread(first))
    runs: list[int] = []

    def work(tx: Tx) -> None:
        runs.append(len(runs))
        old = msgspec.structs.replace(first, version=7) if len(runs) == 1 else first
        try:
            tx.replace_thread(old, msgspec.structs.replace(old, version=old.version + 1))
        except Exception:
            tx.append_event(make.event())

    await store.write(work)
    assert runs == [0, 1]
    assert await store.read(lambda tx: tx.events()) == []


async def test_a_work_that_is_outdated_each_time_is_told_that_it_lost(store: Store, make: Any) -> None:
    first = make.thread()
    await store.write(lambda tx: tx.insert_thread(first))
    await store.write(lambda tx: tx.replace_thread(first, msgspec.structs.replace(first, version=1)))
    with pytest.raises(StateChanged, match="t1"):
        await store.write(lambda tx: tx.replace_thread(first, msgspec.structs.replace(first, version=1)))


async def test_a_replacement_that_does_not_count_its_version_up_is_refused(store: Store, make: Any) -> None:
    first = make.thread()
    await store.write(lambda tx: tx.insert_thread(first))
    with pytest.raises(ValueError, match="version 0 cannot replace"):
        await store.write(lambda tx: tx.replace_thread(first, msgspec.structs.replace(first, holder="h")))


async def test_a_work_that_raises_is_undone_alone_while_its_neighbours_commit(
    store: Store, make: Any
) -> None:
    outcomes: dict[int, str] = {}

    async def write(n: int) -> None:
        def work(tx: Tx) -> None:
            tx.insert_thread(make.thread(f"t{n}"))
            tx.append_message(make.message(f"t{n}"))
            tx.append_event(make.event(thread_id=f"t{n}"))
            if n % 3 == 0:
                raise Undone(n)

        try:
            await store.write(work)
            outcomes[n] = "kept"
        except Undone as error:
            outcomes[n] = f"undone {error}"

    async with anyio.create_task_group() as tasks:
        for n in range(30):
            tasks.start_soon(write, n)
    assert outcomes == {n: "kept" if n % 3 else f"undone {n}" for n in range(30)}
    kept = {f"t{n}" for n in range(30) if n % 3}
    assert {t.id for t in await store.read(lambda tx: tx.threads())} == kept
    assert {e.thread_id for e in await store.read(lambda tx: tx.events())} == kept
    assert await store.read(lambda tx: tx.messages("t0")) == []


async def test_every_kind_of_change_is_undone_with_its_work(store: Store, make: Any) -> None:
    def everything(tx: Tx) -> None:
        tx.insert_thread(make.thread("t1"))
        tx.append_message(make.message("t1"))
        tx.append_event(make.event(thread_id="t1"))
        tx.insert_key(make.key())
        tx.insert_terminal(make.terminal("w1"))
        tx.insert_delivery(make.delivery("d1"))
        tx.insert_credential(make.credential("c1"))

    await store.write(everything)

    def state(tx: Tx) -> list[object]:
        return [
            tx.threads(),
            tx.messages("t1"),
            tx.events(),
            tx.key("person:ann", "handoff", "k1"),
            tx.terminals(),
            tx.deliveries("w1"),
            tx.credential("c1"),
        ]

    def change_everything(tx: Tx) -> None:
        late = make.now.replace(year=2027)
        thread, terminal, delivery = tx.thread("t1"), tx.terminal("w1"), tx.delivery("d1")
        assert thread is not None
        assert terminal is not None
        assert delivery is not None
        tx.replace_thread(thread, msgspec.structs.replace(thread, holder="x", version=1))
        tx.replace_terminal(terminal, msgspec.structs.replace(terminal, pid=7, version=1))
        tx.replace_delivery(delivery, msgspec.structs.replace(delivery, attempts=1, version=1))
        tx.replace_credential(make.credential("c1", revoked_at=late))
        tx.append_message(make.message("t1"))
        tx.append_event(make.event())
        tx.insert_delivery(make.delivery("d2"))
        assert tx.purge_events(late) == 2
        assert tx.purge_keys(late) == 1
        assert state(tx) != before
        raise Undone

    before = await store.read(state)
    with pytest.raises(Undone):
        await store.write(change_everything)
    assert await store.read(state) == before
    event = await store.write(lambda tx: tx.append_event(make.event()))
    assert event.id == 2, "an undone event must not leave a hole"


async def test_a_key_and_its_effect_are_kept_or_undone_together(store: Store, make: Any) -> None:
    def work(tx: Tx) -> None:
        tx.insert_key(make.key())
        tx.insert_thread(make.thread())
        raise Undone

    with pytest.raises(Undone):
        await store.write(work)
    assert await store.read(lambda tx: (tx.key("person:ann", "handoff", "k1"), tx.thread("t1"))) == (
        None,
        None,
    )


async def test_a_work_reads_back_what_it_wrote(store: Store, make: Any) -> None:
    def work(tx: Tx) -> bool:
        tx.insert_thread(make.thread())
        tx.append_event(make.event(thread_id="t1"))
        tx.append_message(make.message())
        return tx.thread("t1") == make.thread() and len(tx.events()) == len(tx.messages("t1")) == 1

    assert await store.write(work)


async def test_a_work_given_to_read_cannot_write(store: Store, make: Any) -> None:
    await store.write(lambda tx: tx.insert_credential(make.credential()))
    for work in (
        lambda tx: tx.insert_thread(make.thread()),
        lambda tx: tx.append_event(make.event()),
        lambda tx: tx.purge_events(make.now),
        lambda tx: tx.purge_keys(make.now),
        lambda tx: tx.replace_credential(make.credential()),
    ):
        with pytest.raises(RuntimeError, match="may not write"):
            await store.read(work)
    assert await store.read(lambda tx: (tx.threads(), tx.events())) == ([], [])


@pytest.mark.promise("event-order")
async def test_listeners_hear_each_commit_in_order_and_before_the_writers(store: Store, make: Any) -> None:
    heard: list[int] = []
    late: list[int] = []

    def listen(events: Sequence[Event]) -> None:
        heard.extend(event.id for event in events)

    async def write() -> None:
        event = await store.write(lambda tx: tx.append_event(make.event()))
        if event.id not in heard:
            late.append(event.id)

    end = store.subscribe(listen)
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(write)
    assert heard == list(range(1, 51))
    assert late == []
    end()
    await store.write(lambda tx: tx.append_event(make.event()))
    assert len(heard) == 50


async def test_what_listeners_hear_can_be_read_already(store: Store, make: Any) -> None:
    heard = anyio.Event()
    found: list[list[Event]] = []

    async def read_when_woken() -> None:
        await heard.wait()
        found.append(await store.read(lambda tx: tx.events()))

    store.subscribe(lambda events: heard.set())
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_when_woken)
            stored = await store.write(lambda tx: tx.append_event(make.event()))
    assert found == [[stored]]


async def test_nobody_hears_of_a_work_that_was_undone(store: Store, make: Any) -> None:
    heard: list[Event] = []
    store.subscribe(heard.extend)

    def work(tx: Tx) -> None:
        tx.append_event(make.event())
        raise Undone

    with pytest.raises(Undone):
        await store.write(work)
    kept = await store.write(lambda tx: tx.append_event(make.event()))
    assert heard == [kept]


async def test_a_listener_that_raises_harms_neither_the_writer_nor_the_next_listener(
    store: Store, make: Any
) -> None:
    heard: list[Event] = []

    def broken(events: Sequence[Event]) -> None:
        raise Undone

    store.subscribe(broken)
    store.subscribe(heard.extend)
    assert [await store.write(lambda tx: tx.append_event(make.event()))] == heard


async def test_a_cancelled_caller_does_not_undo_a_work_that_has_begun(store: Store, make: Any) -> None:
    began: list[bool] = []

    def work(tx: Tx) -> None:
        began.append(True)
        tx.insert_thread(make.thread())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.write, work)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await store.write(lambda tx: tx.append_event(make.event()))
    stored = await store.read(lambda tx: tx.thread("t1"))
    assert (stored is not None) == bool(began)


async def test_a_caller_that_is_cancelled_already_begins_nothing(store: Store, make: Any) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.write(lambda tx: tx.insert_thread(make.thread()))
    assert await store.read(lambda tx: tx.threads()) == []


async def test_a_closed_store_refuses_works(store: Store, make: Any) -> None:
    await store.close()
    with pytest.raises(Interrupted):
        await store.write(lambda tx: tx.insert_thread(make.thread()))
    with pytest.raises(Interrupted):
        await store.read(lambda tx: tx.threads())
    await store.close()


async def test_works_handed_over_before_close_are_finished_by_it(store: Store, make: Any) -> None:
    kept: list[str] = []

    async def write(n: int) -> None:
        await store.write(lambda tx: tx.insert_thread(make.thread(f"t{n}")))
        kept.append(f"t{n}")

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(write, n)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        await store.close()
    await store.open()
    assert len(kept) == 20
    assert {thread.id for thread in await store.read(lambda tx: tx.threads())} == set(kept)


async def test_records_of_what_does_not_exist_are_refused(store: Store, make: Any) -> None:
    with pytest.raises(ThreadNotFound):
        await store.write(lambda tx: tx.append_message(make.message("nowhere")))
    with pytest.raises(TerminalNotFound):
        await store.write(lambda tx: tx.insert_delivery(make.delivery(terminal_id="nowhere")))
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.replace_credential(make.credential()))


async def test_principals_of_equal_ids_and_other_kinds_are_not_confused(store: Store, make: Any) -> None:
    other = Principal(kind=make.bob.kind, id=make.ann.id)
    await store.write(lambda tx: tx.insert_thread(make.thread()))
    assert await store.read(lambda tx: tx.threads(sender=other)) == []
    assert len(await store.read(lambda tx: tx.threads(sender=make.ann))) == 1
