"""The real Claude Code in real tmux, against the stand-in for its model: what the driver is built on.

Also a tripwire: what the driver or our tools rely on and no document promises is asked of the CLI here, so
that a newer one that behaves otherwise is noticed.
"""

import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.domain.agent import AgentFact, FactKind, Source
from orchestrator.domain.errors import TerminalBusy
from orchestrator.domain.profile import Profile
from orchestrator.ports import AgentSpec, Taken
from orchestrator.terminals.driver import Look, View
from orchestrator.terminals.drivers.claude_code import ClaudeCode
from orchestrator.terminals.tmux_terminals import TmuxTerminals
from tests.acceptance.claude import call, environment, make_home, script
from tests.live import eventually
from tests.model_server.running import StandIn
from tests.model_server.script import characters, numbered

pytestmark = [pytest.mark.anyio, pytest.mark.cli_agents]

HEADER = "[handoff th_1]"
SECONDS = 60.0


class Agent:
    """One Claude Code in a terminal of ours, what it told and what its model was asked."""

    def __init__(self, terminals: TmuxTerminals, model: StandIn, home: Path, work: Path) -> None:
        self.terminals = terminals
        self.model = model
        self.home = home
        self.work = work
        self.id = "term_1"
        self.facts: list[AgentFact] = []
        self._told = anyio.Event()
        terminals.listen(self._hear)

    def _hear(self, fact: AgentFact) -> None:
        self.facts.append(fact)
        self._told.set()
        self._told = anyio.Event()

    def settings(self, **settings: Any) -> None:
        """The user's own settings."""
        folder = self.home / ".claude"
        folder.mkdir(exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(settings))

    async def start(self, url: str = "http://127.0.0.1:1", *, ready: bool = True, **profile: Any) -> None:
        asked = {"mcp": False, **profile}
        await self.terminals.start(
            AgentSpec(
                terminal_id=self.id,
                profile=Profile(name="worker", **asked),
                working_directory=str(self.work),
                token="the-token",
                url=url,
            )
        )
        if ready:
            with anyio.fail_after(SECONDS):
                await self.terminals.wait_ready(self.id)

    async def submit(self, text: str) -> Taken:
        with anyio.fail_after(SECONDS):
            await self.terminals.wait_ready(self.id)
            return await self.terminals.submit(self.id, text, header=HEADER)

    async def fact(self, kind: FactKind, number: int = 1, seconds: float = SECONDS) -> AgentFact:
        """The fact of this kind, counted from 1."""
        with anyio.move_on_after(seconds):
            while len(found := [fact for fact in self.facts if fact.kind is kind]) < number:
                await self._told.wait()
            return found[number - 1]
        told = [str(fact.kind) for fact in self.facts]
        raise AssertionError(f"no {kind} {number}; {told}\n{await self.terminals.screen(self.id)}")

    async def turn(self, text: str) -> AgentFact:
        """The end of the turn that took `text`."""
        ends = sum(fact.kind is FactKind.TURN_ENDED for fact in self.facts)
        taken = await self.submit(text)
        ended = await self.fact(FactKind.TURN_ENDED, ends + 1)
        assert ended.turn == taken.turn
        return ended

    async def looks(self, wanted: Callable[[Look], bool]) -> Look:
        with anyio.fail_after(SECONDS):
            while not wanted(look := ClaudeCode().look(await self.terminals.screen(self.id))):  # noqa: ASYNC110
                await anyio.sleep(0.05)
            return look

    def results(self) -> list[Any]:
        """The tool results of the newest request."""
        return self.model.requests()[-1]["tool_results"]


@pytest.fixture
def agent_home(tmp_path: Path) -> tuple[Path, Path]:
    """A home in which the start-up questions were answered, and a folder to work in."""
    work = tmp_path / "work"
    work.mkdir()
    return make_home(tmp_path / "home", work), work


@pytest.fixture
async def agent(tmp_path: Path, agent_home: tuple[Path, Path]) -> AsyncIterator[Agent]:
    home, work = agent_home
    with StandIn(tmp_path) as model:
        environ = environment(home, model.url)
        terminals = TmuxTerminals(tmp_path / "service", {"claude_code": ClaudeCode()}, environ)
        async with terminals.running():
            agent = Agent(terminals, model, home, work)
            try:
                yield agent
            finally:
                await terminals.close(agent.id)
                socket_path = str(tmp_path / "service" / "run" / "tmux.sock")
                await anyio.run_process(["tmux", "-S", socket_path, "kill-server"], check=False)


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An MCP server to call, and the file of the calls it got."""
    calls = tmp_path / "calls.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Path(__file__).with_name("tool_server.py")
    process = subprocess.Popen([sys.executable, str(server), str(port), str(calls)])
    eventually(lambda: _answers(port), "the tool server listens")
    try:
        yield f"http://127.0.0.1:{port}", calls
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_task_goes_in_word_for_word_and_the_answer_comes_out_exactly(agent: Agent) -> None:
    await agent.start(system_prompt="You are the worker of this test.", model="claude-opus-4-5")
    text = "Grüße, 漢字 😀\n\n  blanks stay\n/not a command\n!ls\nSAY=  done, exactly  \n."
    ended = await agent.turn(text)
    assert ended.answer == "  done, exactly  "
    assert (ended.source, ended.background) == (Source.TRANSCRIPT, 0)
    [request] = agent.model.requests()
    assert request["user"] == f"{HEADER}\n{text}"
    assert "You are the worker of this test." in request["system"]
    assert request["model"] == "claude-opus-4-5"
    assert not (agent.home / ".claude" / "settings.json").exists()


async def test_texts_of_every_kind_are_submitted_and_recognised(agent: Agent) -> None:
    await agent.start()
    texts = [
        "/help",
        "!ls",
        "ends in a backslash \\",
        "",
        "look at @",
        "#",
        "a\tb",
        "x\n\n\n",
        "e\u0301 \u200d",
        "\n".join(f"line {number}" for number in range(60)),
        "word " * 30_000,
    ]
    for text in texts:
        ended = await agent.turn(text)
        assert ended.answer is not None
        assert ended.answer.startswith("ECHO[")
    assert len(agent.model.requests()) == len(texts)


async def test_a_megabyte_is_seen_submitted_and_reaches_the_model_whole(agent: Agent) -> None:
    await agent.start()
    text = "".join(f"{number:07d} zeile ✓\n" for number in range(60_000)) + "SAY=got it"
    assert len(text.encode()) > 1_000_000
    assert (await agent.turn(text)).answer == "got it"
    assert agent.model.requests()[-1]["user"] == f"{HEADER}\n{text}"


async def test_long_answers_are_whole(agent: Agent) -> None:
    await agent.start()
    assert (await agent.turn("LINES=12000")).answer == numbered(12_000)
    assert (await agent.turn("CHARS=100000")).answer == characters(100_000)
    assert (await agent.turn("SAY=short again")).answer == "short again"


async def test_the_answer_is_the_last_message_of_this_turn_and_of_no_other(agent: Agent) -> None:
    agent.settings(permissions={"allow": ["Bash(echo:*)"]})
    await agent.start()
    echo = {"type": "tool", "name": "Bash", "input": {"command": "echo hi", "description": "x"}}
    two = [{"type": "text", "text": "one\n"}, {"type": "text", "text": "  two \n"}]
    assert (await agent.turn(script(two))).answer == "one\n  two \n"
    looking = [{"type": "text", "text": "I look."}, echo]
    assert (await agent.turn(script(looking, [{"type": "text", "text": " seen\n\n"}]))).answer == " seen\n\n"
    assert (await agent.turn(script([]))).answer == ""


async def test_our_tools_are_there_at_the_first_request_and_need_no_permission(
    agent: Agent, tools: tuple[str, Path]
) -> None:
    url, calls = tools
    agent.settings(permissions={"defaultMode": "default"})
    await agent.start(url, mcp=True)
    await agent.turn(call("mcp__changeover__plain", {}))
    first, _ = agent.model.requests()
    assert "mcp__changeover__plain" in first["tools"]
    [result] = agent.results()
    assert result["content"][0]["text"] == "0000000.0000001.0000"
    assert json.loads(calls.read_text()) == {"tool": "plain", "authorization": "Bearer the-token"}
    assert FactKind.ASKING not in {fact.kind for fact in agent.facts}


async def test_what_the_model_sees_of_a_tools_result(agent: Agent, tools: tuple[str, Path]) -> None:
    """Structured content replaces the text, and what is large arrives only if its tool says so."""
    await agent.start(tools[0], mcp=True)
    facts = {"handoff_id": "th_1", "status": "completed"}

    async def seen(tool: str, chars: int) -> Any:
        await agent.turn(call(f"mcp__changeover__{tool}", {"chars": chars}))
        return agent.results()[-1]["content"]

    assert json.loads(await seen("structured", 8)) == facts
    assert [block["text"] for block in await seen("blocks", 8)] == ["0000000.", json.dumps(facts)]
    assert (await seen("plain", 60_000)).startswith("<persisted-output>")
    [whole] = await seen("large", 300_000)
    assert len(whole["text"]) == 300_000


async def test_allowed_tools_are_all_there_is(agent: Agent, tools: tuple[str, Path]) -> None:
    await agent.start(tools[0], mcp=True, allowed_tools=["Read", "Bash(echo:*)"])
    ran = agent.work / "ran"
    await agent.turn(call("Bash", {"command": f"touch {ran}", "description": "x"}))
    assert "denied" in agent.results()[-1]["content"]
    assert not ran.exists()
    await agent.turn(call("Bash", {"command": "echo allowed", "description": "x"}))
    assert agent.results()[-1]["content"] == "allowed"
    await agent.turn(call("Write", {"file_path": str(ran), "content": "x"}))
    assert "No such tool available" in agent.results()[-1]["content"]
    assert not ran.exists()
    offered = agent.model.requests()[0]["tools"]
    assert {name for name in offered if "__" not in name} - {"DeferredToolPlaceholder"} == {"Bash", "Read"}
    assert "mcp__changeover__plain" in offered


async def test_an_empty_list_leaves_only_our_tools(agent: Agent, tools: tuple[str, Path]) -> None:
    await agent.start(tools[0], mcp=True, allowed_tools=[])
    await agent.turn("SAY=nothing")
    offered = set(agent.model.requests()[0]["tools"]) - {"DeferredToolPlaceholder"}
    assert all(name.startswith("mcp__changeover__") for name in offered)


async def test_a_permission_is_told_shown_and_never_typed_into(agent: Agent) -> None:
    agent.settings(permissions={"defaultMode": "default"})
    await agent.start()
    wanted = agent.work / "wanted"
    await agent.submit(call("Bash", {"command": f"touch {wanted}", "description": "make it"}))
    asking = await agent.fact(FactKind.ASKING)
    assert asking.question == f"Bash\ncommand: touch {wanted}\ndescription: make it"
    look = await agent.looks(lambda look: look.view is View.DIALOG)
    assert look.question is not None
    assert f"touch {wanted}" in look.question
    with pytest.raises(TerminalBusy):
        await agent.terminals.submit(agent.id, "another task", header=HEADER)
    assert not wanted.exists()


async def test_an_untrusted_folder_is_asked_about_and_nothing_is_typed(agent: Agent) -> None:
    known = agent.home / ".claude.json"
    known.write_text(json.dumps({**json.loads(known.read_text()), "projects": {}}))
    await agent.start(ready=False)
    asking = await agent.fact(FactKind.ASKING)
    assert asking.question is not None
    assert "Yes, I trust this folder" in asking.question
    with pytest.raises(TerminalBusy):
        await agent.terminals.submit(agent.id, "a task", header=HEADER)
    assert agent.model.requests() == []


async def test_a_failed_turn_says_why_and_the_agent_goes_on(agent: Agent) -> None:
    await agent.start()
    taken = await agent.submit("HTTP=400")
    failed = await agent.fact(FactKind.TURN_FAILED)
    assert failed.turn == taken.turn
    assert failed.error is not None
    assert "scripted error 400" in failed.error
    assert (await agent.turn("SAY=on we go")).answer == "on we go"


async def test_a_rate_limit_is_seen_while_it_is_waited_for(agent: Agent) -> None:
    await agent.start()
    await agent.submit("HTTP=429x1 RETRY_AFTER=3 \nSAY=at last")
    look = await agent.looks(lambda look: look.limited is not None)
    assert look.view is View.BUSY
    assert (await agent.fact(FactKind.TURN_ENDED)).answer == "at last"


async def test_a_turn_with_a_background_task_ends_once_more_when_that_has_ended(agent: Agent) -> None:
    agent.settings(permissions={"allow": ["Bash(sleep:*)"]})
    await agent.start()
    sleeps = {"command": "sleep 2", "description": "x", "run_in_background": True}
    taken = await agent.submit(call("Bash", sleeps))
    first = await agent.fact(FactKind.TURN_ENDED)
    assert (first.turn, first.background) == (taken.turn, 1)
    second = await agent.fact(FactKind.TURN_ENDED, 2)
    assert (second.turn, second.background) == (taken.turn, 0)


async def test_the_partial_answer_is_what_was_said_before_a_tool_that_runs(agent: Agent) -> None:
    agent.settings(permissions={"allow": ["Bash(sleep:*)"]})
    await agent.start()
    sleeps = {"type": "tool", "name": "Bash", "input": {"command": "sleep 5", "description": "x"}}
    await agent.submit(
        script([{"type": "text", "text": "I begin."}, sleeps], [{"type": "text", "text": "x"}])
    )
    with anyio.fail_after(SECONDS):
        while await agent.terminals.partial(agent.id) != "I begin.":  # noqa: ASYNC110
            await anyio.sleep(0.05)
