"""The client against a real server on loopback: what it returns, what it raises, what it survives."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from orchestrator import wire
from orchestrator.api.app import ApiSettings, create_app
from orchestrator.client import Client
from orchestrator.domain import errors
from orchestrator.domain.errors import ChangeoverError
from orchestrator.domain.identity import Caller
from tests.api.fake import TOKENS, Handoffs, Services, serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_blocking_calls")]
ECHO = wire.HandoffRequest(agent_profile="echo", message="m")


def app_of(services: Services) -> Any:
    return create_app(services, ApiSettings())


@asynccontextmanager
async def a_client(services: Services, token: str = TOKENS["person"]) -> AsyncIterator[Client]:
    async with serving(app_of(services)) as server, Client(server.url, token) as client:
        yield client


class Asked:
    """A wait that goes on in a task, and what came of it."""

    def __init__(self, tasks: TaskGroup, client: Client, *args: Any, **options: Any) -> None:
        self.answer: wire.WaitResponse | ChangeoverError | None = None
        self.over = anyio.Event()
        tasks.start_soon(self._ask, client, args, options)

    async def _ask(self, client: Client, args: Any, options: Any) -> None:
        try:
            self.answer = await client.wait_until(*args, **options)
        except ChangeoverError as error:
            self.answer = error
        self.over.set()

    async def result(self) -> wire.WaitResponse:
        with anyio.fail_after(10):
            await self.over.wait()
        assert isinstance(self.answer, wire.WaitResponse), repr(self.answer)
        return self.answer


# What it returns


async def test_a_handoff_goes_its_way_from_start_to_output() -> None:
    services = Services()
    async with a_client(services) as client:
        started = await client.start_handoff(ECHO, "k")
        assert (await client.start_handoff(ECHO, "k")).replayed
        assert await client.handoff(started.handoff_id) == started
        done = await client.complete(started.handoff_id, wire.CompleteRequest(result="naïve 😀"))
        assert (done.outcome, done.output) == ("succeeded", "naïve 😀")
        page = await client.output(done.handoff_id, 4)
        assert (page.output, page.next_offset, page.total_chars) == ("e 😀", None, 7)
        thread = await client.thread(done.handoff_id)
        assert [message.text for message in thread.messages] == ["m"]


async def test_handoffs_are_listed_by_status_and_page() -> None:
    async with a_client(Services()) as client:
        ids = [(await client.start_handoff(ECHO)).handoff_id for _ in range(5)]
        await client.stop(ids[0])
        first = await client.handoffs(limit=3)
        rest = await client.handoffs(cursor=first.next_cursor, limit=3)
        assert [each.handoff_id for each in first.items + rest.items] == ids[::-1]
        assert rest.next_cursor is None
        assert [each.handoff_id for each in (await client.handoffs("completed")).items] == ids[:1]
        assert len((await client.handoffs(["completed", "accepted"])).items) == 5


async def test_a_terminal_is_started_read_written_to_and_closed_by_id_or_name() -> None:
    async with a_client(Services()) as client:
        agent = await client.start_agent(wire.StartAgentRequest(agent_profile="echo", name="a b-ü"))
        assert await client.terminal("a b-ü") == await client.terminal(agent.terminal_id) == agent
        sent = await client.send_text("a b-ü", "hello")
        assert (await client.deliveries(agent.terminal_id)).items == [sent]
        assert (await client.screen("a b-ü")).text == "0 lines, colours False"
        assert (await client.screen("a b-ü", 5, True)).text == "5 lines, colours True"
        await client.close_terminal("a b-ü")
        assert (await client.terminals()).items == []
        assert [each.state for each in (await client.terminals(all=True)).items] == ["ended"]


async def test_the_service_tells_what_it_is() -> None:
    async with a_client(Services()) as client:
        assert (await client.profiles()).items[0].name == "echo"
        assert (await client.drivers())[0].name == "scripted"
        assert (await client.service()).instance == "ins_1"
    async with serving(app_of(Services())) as server, Client(server.url, None) as nobody:
        assert (await nobody.health())["status"] == "ok"


async def test_it_works_without_a_network_in_the_service_s_own_process() -> None:
    services = Services()
    async with Client.in_process(app_of(services), TOKENS["terminal"], session="trm_1") as client:
        started = await client.start_handoff(ECHO)
        services.handoffs.finish(started.handoff_id, "done")
        assert (await client.wait_until([started.handoff_id])).handoffs[0].output == "done"
    assert services.handoffs.callers[0].session == "trm_1"


# What it raises


def kinds() -> list[type[ChangeoverError]]:
    found, left = list[type[ChangeoverError]](), [ChangeoverError]
    while left:
        kind = left.pop()
        left += [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
        found.append(kind)
    return found


class Failing(Handoffs):
    """Raises the error whose code is asked for."""

    async def result(self, caller: Caller, handoff_id: str) -> wire.HandoffResult:
        kind = next(kind for kind in kinds() if kind.code == handoff_id)
        raise kind(f"no, because of {handoff_id}", chain=["a", "b"], limit=8)


@pytest.mark.parametrize("kind", kinds()[1:], ids=lambda kind: kind.code)
async def test_each_error_of_the_service_comes_out_as_itself(kind: type[ChangeoverError]) -> None:
    services = Services()
    services.handoffs = Failing()
    async with Client.in_process(app_of(services), TOKENS["person"]) as client:
        with pytest.raises(ChangeoverError, match=f"no, because of {kind.code}") as caught:
            await client.handoff(kind.code)
    assert type(caught.value) is kind
    assert caught.value.facts == {"chain": ["a", "b"], "limit": 8}


async def test_a_failure_nobody_expected_comes_out_as_internal() -> None:
    async with a_client(Services()) as client:
        with pytest.raises(ChangeoverError) as caught:
            await client.start_handoff(wire.HandoffRequest(agent_profile="broken", message="m"))
        assert type(caught.value) is ChangeoverError
        assert "passwd" not in caught.value.detail


async def test_a_wrong_token_is_unauthenticated() -> None:
    async with a_client(Services(), "wrong") as client:
        with pytest.raises(errors.Unauthenticated):
            await client.profiles()


async def test_where_nobody_listens_it_says_so_with_the_address_and_what_to_do() -> None:
    async with serving(app_of(Services())) as server:
        url = server.url
    async with Client(url, "t") as client:
        with pytest.raises(errors.Unavailable, match=f"{url}.*changeover serve") as caught:
            await client.profiles()
        assert caught.value.facts == {"url": url}


@pytest.mark.parametrize("status", [200, 404, 502])
async def test_what_is_no_service_of_ours_is_unavailable(status: int) -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>hello"})

    async with Client.in_process(other, "t") as client:
        with pytest.raises(errors.Unavailable, match=f"not this service .HTTP {status}"):
            await client.profiles()


async def test_an_error_of_a_newer_service_keeps_its_code() -> None:
    problem = (
        b'{"type":"x","title":"x","status":418,"code":"teapot","detail":"short","request_id":"r","new":1}'
    )

    async def newer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": problem})

    async with Client.in_process(newer, "t") as client:
        with pytest.raises(ChangeoverError, match="short") as caught:
            await client.profiles()
        assert caught.value.facts == {"code": "teapot"}


@pytest.mark.parametrize("key", ["", "two words", "x" * 256, "é", "a\nb"])
async def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_sent(key: str) -> None:
    services = Services()
    async with Client.in_process(app_of(services), TOKENS["person"]) as client:
        with pytest.raises(errors.InvalidParams):
            await client.start_handoff(ECHO, key)
    assert services.handoffs.results == {}


@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\0"])
async def test_text_that_is_no_text_is_refused(text: str) -> None:
    async with Client.in_process(app_of(Services()), TOKENS["person"]) as client:
        with pytest.raises(errors.InvalidParams):
            await client.start_handoff(wire.HandoffRequest(agent_profile="echo", message=text))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../terminals", "\0", "\ud83d", "?x=1", "#", "%2e%2e", "x" * 5000]
)
async def test_an_id_that_can_be_none_is_not_found(name: str) -> None:
    async with a_client(Services()) as client:
        with pytest.raises(errors.NotFound):
            await client.handoff(name)


# Waiting


async def test_a_wait_ends_when_all_or_any_are_done() -> None:
    services = Services()
    async with a_client(services) as client, anyio.create_task_group() as tasks:
        ids = [(await client.start_handoff(ECHO)).handoff_id for _ in range(2)]
        every, some = Asked(tasks, client, ids), Asked(tasks, client, ids, "any")
        await services.handoffs.until(waiting=2)
        services.handoffs.finish(ids[1], "second")
        assert [each.output for each in (await some.result()).handoffs] == [None, "second"]
        services.handoffs.finish(ids[0], "first")
        answer = await every.result()
        assert answer.wait == "done"
        assert [each.output for each in answer.handoffs] == ["first", "second"]


async def test_a_wait_without_ids_keeps_to_those_of_its_first_answer() -> None:
    services = Services()
    async with a_client(services) as client, anyio.create_task_group() as tasks:
        first = (await client.start_handoff(ECHO)).handoff_id

        async def another(answer: wire.WaitResponse) -> None:
            await client.start_handoff(ECHO)
            services.handoffs.finish(first, "done")

        asked = Asked(tasks, client, poll=0.01, on_progress=another)
        answer = await asked.result()
        assert [(each.handoff_id, each.output) for each in answer.handoffs] == [(first, "done")]


async def test_a_wait_that_runs_out_returns_what_there_is_and_told_its_progress() -> None:
    services, told = Services(), list[str]()
    async with a_client(services) as client:

        async def progress(answer: wire.WaitResponse) -> None:
            told.append(answer.wait)

        started = await client.start_handoff(ECHO)
        answer = await client.wait_until([started.handoff_id], timeout=1, on_progress=progress, poll=0.02)
        assert answer.wait == "timed_out"
        assert answer.handoffs == [started]
        assert set(told) == {"timed_out"}


@pytest.mark.promise("job-outlives-call")
async def test_a_wait_survives_a_dropped_connection() -> None:
    services = Services()
    async with serving(app_of(services)) as server, Client(server.url, TOKENS["person"]) as client:
        started = await client.start_handoff(ECHO)
        async with anyio.create_task_group() as tasks:
            asked = Asked(tasks, client, [started.handoff_id])
            await services.handoffs.until(waiting=1)
            server.drop()
            await services.handoffs.until(waiting=0)
            await services.handoffs.until(waiting=1)
            services.handoffs.finish(started.handoff_id, "after all")
            assert (await asked.result()).handoffs[0].output == "after all"


@pytest.mark.promise("job-outlives-call")
async def test_a_wait_survives_a_service_that_dies_and_comes_back() -> None:
    services = Services()
    app = app_of(services)
    async with anyio.create_task_group() as tasks:
        async with serving(app) as server:
            async with Client(server.url, TOKENS["person"]) as client:
                started = await client.start_handoff(ECHO)
            survivor = Client(server.url, TOKENS["person"])
            await survivor.health()
            asked = Asked(tasks, survivor, [started.handoff_id])
            await services.handoffs.until(waiting=1)
        with pytest.raises(errors.Unavailable):
            await survivor.health()
        async with serving(app, server.port):
            await services.handoffs.until(waiting=1)
            services.handoffs.finish(started.handoff_id, "after the restart")
            assert (await asked.result()).handoffs[0].output == "after the restart"
            await survivor.__aexit__()


async def test_a_wait_goes_on_when_a_stopping_service_interrupts_it() -> None:
    services = Services()
    app = app_of(services)
    async with anyio.create_task_group() as tasks:
        async with serving(app) as server:
            client = Client(server.url, TOKENS["person"])
            started = await client.start_handoff(ECHO)
            asked = Asked(tasks, client, [started.handoff_id])
            await services.handoffs.until(waiting=1)
            services.handoffs.stopping = True
            services.handoffs.wake()
            await services.handoffs.until(waiting=0)
        services.handoffs.stopping = False
        async with serving(app, server.port):
            services.handoffs.finish(started.handoff_id, "done")
            assert (await asked.result()).wait == "done"
            await client.__aexit__()


async def test_a_single_wait_tells_that_the_service_is_stopping() -> None:
    services = Services()
    async with a_client(services) as client:
        started = await client.start_handoff(ECHO)
        services.handoffs.stopping = True
        answer = await client.wait(wire.WaitRequest(handoff_ids=[started.handoff_id], timeout=60))
        assert answer.wait == "interrupted"


async def test_at_its_deadline_without_a_service_a_wait_returns_the_latest_it_heard() -> None:
    services = Services()
    async with serving(app_of(services)) as server, Client(server.url, TOKENS["person"]) as client:
        started = await client.start_handoff(ECHO)
        told: list[wire.WaitResponse] = []

        async def dies(answer: wire.WaitResponse) -> None:
            told.append(answer)
            server.die()

        answer = await client.wait_until([started.handoff_id], timeout=1, on_progress=dies, poll=0.01)
        assert [answer] == told
        assert (answer.wait, answer.handoffs) == ("timed_out", [started])


async def test_at_its_deadline_a_wait_that_heard_nothing_says_that_the_service_is_gone() -> None:
    async with serving(app_of(Services())) as server:
        client = Client(server.url, TOKENS["person"])
        started = await client.start_handoff(ECHO)
        assert (await client.wait_until([started.handoff_id], timeout=0)).wait == "timed_out"
    with pytest.raises(errors.Unavailable, match=server.url):
        await client.wait_until([started.handoff_id], timeout=0.05)
    await client.__aexit__()


async def test_a_wait_for_a_service_never_heard_from_fails_at_once() -> None:
    async with serving(app_of(Services())) as server:
        url = server.url
    async with Client(url, "t") as client:
        with anyio.fail_after(5), pytest.raises(errors.Unavailable):
            await client.wait_until(["thr_1"], timeout=3600)


async def test_a_wait_for_what_is_not_there_fails_at_once() -> None:
    async with a_client(Services()) as client:
        with pytest.raises(errors.ThreadNotFound):
            await client.wait_until(["thr_9"], timeout=3600)


async def test_hanging_up_ends_the_wait_in_the_service_and_not_the_handoff() -> None:
    services = Services()
    async with a_client(services) as client:
        started = await client.start_handoff(ECHO)
        async with anyio.create_task_group() as tasks:
            Asked(tasks, client, [started.handoff_id])
            await services.handoffs.until(waiting=1)
            tasks.cancel_scope.cancel()
        await services.handoffs.until(waiting=0)
        assert await client.handoff(started.handoff_id) == started


@pytest.mark.promise("D5")
async def test_many_waits_hold_up_nobody_else() -> None:
    services = Services()
    async with a_client(services) as client, anyio.create_task_group() as tasks:
        started = await client.start_handoff(ECHO)
        waits = [Asked(tasks, client, [started.handoff_id]) for _ in range(150)]
        await services.handoffs.until(waiting=150)
        with anyio.fail_after(1):
            await client.health()
            await client.handoffs()
        services.handoffs.finish(started.handoff_id, "done")
        assert {(await each.result()).wait for each in waits} == {"done"}
