"""Agents that hand work to one another through the tools: over HTTP and stdio, in both protocol eras."""

import json

import pytest

from tests.cases.ways import HTTP_MODERN, Way, assigned, both_transports, connected, every_way, whole, worker
from tests.live import LiveService
from tests.mcp_tools.driver import MODERN, call, facts, texts

pytestmark = pytest.mark.anyio


@every_way
@pytest.mark.promise("handoff-tool", "word-for-word")
async def test_handoff_gives_the_answer_word_for_word_and_the_facts(shared: LiveService, way: Way) -> None:
    worker(shared)
    message = "Grüße 漢字 😀\n\ttabs\n  blanks  \n/not a command"
    async with connected(shared, way) as tools:
        result = await tools.tool("handoff", {"agent_profile": "worker", "message": message})
    assert texts(result)[0] == message
    found = facts(result)
    assert (found["status"], found["outcome"]) == ("completed", "succeeded")
    assert found["handoff_id"].startswith("ho_")
    assert found["terminal_id"].startswith("term_")
    assert found["duration_s"] > 0
    assert not result.get("isError")


@every_way
@pytest.mark.promise("assign-tool", "wait-tool", "read-output-tool", "list-profiles-tool")
async def test_assign_then_wait_for_any_for_all_and_read(shared: LiveService, way: Way) -> None:
    worker(shared)
    async with connected(shared, way) as tools:
        quick = await assigned(tools, "worker", "quick")
        slow = await assigned(tools, "worker", "@say begun\n@wait 60\n@say late")
        first = await tools.tool("wait_handoff", {"handoff_ids": [slow, quick], "mode": "any"})
        states = [each["status"] for each in facts(first)["handoffs"]]
        assert states[0] in ("pending", "accepted")
        assert states[1] == "completed"
        assert "quick" in texts(first)
        ran_out = await tools.tool("wait_handoff", {"handoff_ids": [slow, quick], "timeout": 1})
        assert facts(ran_out)["wait"] == "timed_out"
        stopped = await tools.tool("stop_handoff", {"handoff_id": slow})
        assert facts(stopped)["outcome"] == "interrupted"
        both = await tools.tool("wait_handoff", {"handoff_ids": [quick, slow]})
        assert [each["outcome"] for each in facts(both)["handoffs"]] == ["succeeded", "interrupted"]
        assert await whole(tools, slow) == "begun"
        assert await whole(tools, quick) == "quick"
        listed = json.loads(texts(await tools.tool("list_profiles", {}))[0])
        assert {"worker", "scripted", "developer"} <= {each["name"] for each in listed}


@both_transports
@pytest.mark.promise("wait-tool")
async def test_a_wait_without_ids_is_for_what_is_open_or_uncollected(live: LiveService, way: Way) -> None:
    worker(live)
    async with connected(live, way) as tools:
        nothing = await tools.tool("wait_handoff", {})
        assert texts(nothing)[0] == "No handoff of yours is open or uncollected."
        one = await assigned(tools, "worker", "one")
        given = {"agent_profile": "worker", "message": "@wait 2\n@say two", "timeout": 1}
        two = facts(await tools.tool("handoff", given))
        assert two["wait"] == "timed_out"
    async with connected(live, way) as tools:  # another session of the same agent: it knows no id
        found = facts(await tools.tool("wait_handoff", {}))["handoffs"]
        assert [each["handoff_id"] for each in found] == [one, two["handoff_id"]]
        assert [each["outcome"] for each in found] == ["succeeded", "succeeded"]
        assert "open or uncollected" in texts(await tools.tool("wait_handoff", {}))[0]


@every_way
@pytest.mark.promise("wait-ran-out", "job-outlives-call")
async def test_a_handoff_whose_wait_ran_out_works_on_under_its_id(shared: LiveService, way: Way) -> None:
    worker(shared)
    async with connected(shared, way) as tools:
        given = {"agent_profile": "worker", "message": "@say part\n@wait 2\n@say rest", "timeout": 1}
        early = await tools.tool("handoff", given)
        found = facts(early)
        assert (found["status"], found["wait"], found["partial"]) == ("accepted", "timed_out", True)
        assert "outcome" not in found
        assert any("part" in text and "not the answer" in text for text in texts(early))
        done = await tools.tool("wait_handoff", {"handoff_ids": [found["handoff_id"]]})
        assert (texts(done)[0], facts(done)["outcome"]) == ("part\nrest", "succeeded")


@both_transports
@pytest.mark.promise("on-timeout-stop")
async def test_where_the_profile_says_so_a_timeout_stops_the_work(shared: LiveService, way: Way) -> None:
    worker(shared, "hasty", front="on_timeout: stop")
    async with connected(shared, way) as tools:
        given = {"agent_profile": "hasty", "message": "@say part\n@wait 60", "timeout": 2}
        result = await tools.tool("handoff", given)
        assert result["isError"]
        assert facts(result)["outcome"] == "timed_out"
        assert facts(result)["handoff_id"] in texts(result)[0]
        assert await whole(tools, facts(result)["handoff_id"]) == "part"


@pytest.mark.promise("max-duration")
async def test_a_detached_job_ends_at_the_profiles_longest_time(shared: LiveService) -> None:
    worker(shared, "bounded", front="max_duration: 2")
    async with connected(shared, HTTP_MODERN) as tools:
        handoff_id = await assigned(tools, "bounded", "@say part\n@wait 60", timeout=3600)
        found = facts(await tools.tool("wait_handoff", {"handoff_ids": [handoff_id]}))
        assert found["outcome"] == "timed_out"


@every_way
@pytest.mark.promise("rejoin")
async def test_a_call_repeated_under_its_tool_use_id_rejoins_the_job(shared: LiveService, way: Way) -> None:
    name = worker(shared, f"rejoined-{'-'.join(way)}", "--log", str(shared.work / f"{'-'.join(way)}.jsonl"))
    given = {"agent_profile": name, "message": "@wait 1\n@say once"}
    ids: set[str] = set()
    for meta in ({"claudecode/toolUseId": f"toolu_{way}"}, {"callId": f"call ✓ {way}"}):
        for _ in range(2):  # two processes or sessions, as after a crash of the client
            async with connected(shared, way) as tools:
                result = await tools.tool("handoff", given, meta)
                assert texts(result)[0] == "once"
                ids.add(facts(result)["handoff_id"])
    assert len(ids) == 2
    assert len((shared.work / f"{'-'.join(way)}.jsonl").read_text().splitlines()) == 2


@every_way
@pytest.mark.promise("unknown-arguments", "timeout-range", "unknown-profile")
async def test_wrong_arguments_are_refused_with_what_is_right(shared: LiveService, way: Way) -> None:
    worker(shared)
    given = {"agent_profile": "worker", "message": "never done"}
    async with connected(shared, way) as tools:
        for more, says in [
            ({"colour": "blue"}, "colour"),
            ({"working_directory": str(shared.work)}, "working_directory"),
            ({"timeout": 0}, "1 to 3600"),
            ({"timeout": 3601}, "1 to 3600"),
            ({"timeout": "60"}, "1 to 3600"),
            ({"agent_profile": "nobody"}, "worker"),
            ({"message": None}, "message"),
        ]:
            refused = await tools.tool("handoff", given | more)
            assert refused["isError"], more
            assert says in texts(refused)[0], (more, texts(refused))
        listed = (await tools.ask("tools/list"))["result"]["tools"]
        schemas = {tool["name"]: tool["inputSchema"] for tool in listed}
        assert all(schema["additionalProperties"] is False for schema in schemas.values())
        assert "working_directory" not in schemas["handoff"]["properties"]
        assert "complete_handoff" not in schemas
        for tool in ("stop_handoff", "read_output"):
            lost = await tools.tool(tool, {"handoff_id": "ho_nothing"})
            assert lost["isError"]
            assert "ho_nothing" in texts(lost)[0]


@both_transports
@pytest.mark.promise("dead-delegate", "id-early")
async def test_a_delegate_that_dies_is_an_error_with_its_id_exit_and_last_words(
    shared: LiveService, way: Way
) -> None:
    worker(shared)
    async with connected(shared, way) as tools:
        given = {"agent_profile": "worker", "message": "@say half\n@think last words\n@exit 7"}
        result = await tools.tool("handoff", given)
    assert result["isError"]
    text = texts(result)[0]
    assert facts(result)["handoff_id"] in text
    assert "Exit status: 7" in text
    assert "last words" in text
    assert "half" in text


@pytest.mark.parametrize("name", ["CHANGEOVER_ENABLE_WORKING_DIRECTORY", "CAO_ENABLE_WORKING_DIRECTORY"])
@both_transports
@pytest.mark.promise("working-directory-gate", "working-directory")
async def test_a_folder_can_be_given_once_that_is_switched_on(
    tmp_path_factory: pytest.TempPathFactory, name: str, way: Way
) -> None:
    switch = {name: "true"}
    folder = tmp_path_factory.mktemp("gate")
    outside = tmp_path_factory.mktemp("outside")
    with LiveService(folder, switch if way[0] == "http" else {}) as service:
        service.start()
        service.profile("roaming")
        inside = service.work / "inside"
        inside.mkdir()
        (inside / "where.txt").write_text("inside")
        async with connected(service, way, env=switch) as tools:
            given = {"agent_profile": "roaming", "message": "@file where.txt"}
            done = await tools.tool("handoff", given | {"working_directory": str(inside)})
            assert texts(done)[0] == "inside"
            for wrong, says in [
                (str(outside), "allowed root"),
                (str(inside / "nothing"), "does not exist"),
                ("inside", "not an absolute path"),
                (str(inside / ".." / ".." / ".." / outside.name), "allowed root"),
            ]:
                refused = await tools.tool("handoff", given | {"working_directory": wrong})
                assert refused["isError"]
                assert says in texts(refused)[0]
            link = inside / "link"
            link.symlink_to(outside)
            refused = await tools.tool("handoff", given | {"working_directory": str(link)})
            assert "allowed root" in texts(refused)[0]


@pytest.mark.promise("working-directory")
async def test_without_a_folder_the_callers_is_taken_and_else_it_is_an_error(shared: LiveService) -> None:
    shared.profile("homeless")
    (shared.work / "here.txt").write_text("the stdio server's folder")
    given = {"agent_profile": "homeless", "message": "@file here.txt"}
    async with connected(shared, ("stdio", MODERN)) as tools:
        assert texts(await tools.tool("handoff", given))[0] == "the stdio server's folder"
    async with connected(shared, HTTP_MODERN) as tools:
        refused = await tools.tool("handoff", given)
        assert "no working directory" in texts(refused)[0]


@pytest.mark.promise("progress", "id-early")
@both_transports
async def test_the_first_progress_names_the_id(shared: LiveService, way: Way) -> None:
    worker(shared)
    given = {"agent_profile": "worker", "message": "@wait 1\n@say done"}
    params = call("handoff", given, way[1], {"progressToken": "p"})
    async with connected(shared, way) as tools:
        if way[0] == "http":
            async with tools.stream("tools/call", params) as stream:  # type: ignore[union-attr]
                await stream.read()
                told, answer = stream.progress("p"), await stream.response(stream.request_id)
        else:
            answer = await tools.response(await tools.start("tools/call", params))  # type: ignore[union-attr]
            told = tools.progress("p")  # type: ignore[union-attr]
        assert facts(answer["result"])["handoff_id"] in told[0]["message"]
