"""Field cases C4, C5 and C6: an answer is exactly what the agent answered, all of it, and nothing else."""

import json
from pathlib import Path

import anyio
import pytest

from orchestrator.domain.agent import FactKind
from tests.cases.recording import SECONDS, desk
from tests.cases.scripted import ScriptedProfile, seen, settled
from tests.live import LiveService, hand_off, start_agent

pytestmark = pytest.mark.anyio


# C4


@pytest.mark.promise("C4")
@pytest.mark.parametrize(
    ("profile", "task", "answer"),
    [
        ("scripted", "@lines 12000", "\n".join(f"line {number}" for number in range(1, 12_001))),
        ("shell", "seq 12000", "\n".join(str(number) for number in range(1, 12_001))),
    ],
)
async def test_twelve_thousand_lines_come_back_whole(
    shared: LiveService, profile: str, task: str, answer: str
) -> None:
    result = await hand_off(shared, profile, task)
    assert (result.outcome, result.truncated, result.output_chars) == ("succeeded", False, len(answer))
    assert result.output == answer


# C5

WIDTH = 81
LONG_LINES = [
    "https://example.org/" + "path/" * 96,
    json.dumps({"key": "v" * 990}),
    "漢" * 120,
    "👩‍👩‍👧" * 40,
    "x" * WIDTH,
    "next",
    "x" * 200,
    "last",
]


@pytest.mark.promise("C5", "exact-output")
async def test_lines_longer_than_the_pane_come_back_as_they_were(shared: LiveService) -> None:
    assert [len(line) for line in LONG_LINES[:2]] == [500, 1001]
    text = "\n".join(LONG_LINES)
    (shared.work / "long.txt").write_text(text + "\n")
    result = await hand_off(shared, "shell", "cat long.txt")
    assert (result.outcome, result.output) == ("succeeded", text)
    assert json.loads((result.output or "").split("\n")[1]) == {"key": "v" * 990}
    assert (await hand_off(shared, "scripted", text)).output == text


@pytest.mark.promise("C5")
@pytest.mark.parametrize("width", [WIDTH, 200])
async def test_a_screen_shows_each_logical_line_as_one(shared: LiveService, width: int) -> None:
    (shared.work / "long.txt").write_text("\n".join(LONG_LINES) + "\n")
    async with shared.client() as client:
        agent = await start_agent(shared, client, "shell", f"wide{width}")
        window = f"changeover:{agent.terminal_id}"
        assert shared.tmux("resize-window", "-t", window, "-x", str(width)).returncode == 0
        await settled(client, await client.send_text(agent.terminal_id, "cat long.txt"))
        await seen(lambda: client.terminal(agent.terminal_id), lambda view: view.activity == "ready")
        shown = (await client.screen(agent.terminal_id, lines=1000)).text.split("\n")
    start = shown.index(LONG_LINES[0])
    assert shown[start : start + len(LONG_LINES)] == LONG_LINES


# C6


@pytest.mark.promise("C6")
async def test_a_shell_s_answer_holds_neither_its_prompt_nor_the_task_nor_an_earlier_answer(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as terminals:
        terminal = await terminals.start("worker", "shell")
        for task in ("echo hello; echo world", "true", "echo hello; echo world"):
            await terminals.terminals.submit(terminal, task, header=None)
            with anyio.fail_after(SECONDS):
                await terminals.terminals.wait_ready(terminal)
        answers = [fact.answer for fact in terminals.facts if fact.kind is FactKind.TURN_ENDED]
    assert answers == ["hello\nworld", "", "hello\nworld"]


@pytest.mark.promise("C6")
async def test_a_shell_that_prints_nothing_answers_nothing(shared: LiveService) -> None:
    assert (await hand_off(shared, "shell", "echo hello; echo world")).output == "hello\nworld"
    silent = await hand_off(shared, "shell", "true")
    assert (silent.outcome, silent.output, silent.warnings) == ("succeeded", "", [])


FORTY_LINES = "\n".join(["⏺ x", "❯ y", *(f"line {number} of forty" for number in range(3, 41))])


@pytest.mark.promise("C6")
async def test_the_same_prompt_twice_in_one_terminal_has_two_answers(tmp_path: Path) -> None:
    switches = ["--history", "x", "--answer", "⏺ first\nanswer", "--answer", "second"]
    async with desk(tmp_path) as terminals:
        terminal = await terminals.start("worker", "scripted", switches)
        turns: list[str | None] = []
        for _ in range(2):
            taken = await terminals.terminals.submit(terminal, FORTY_LINES, header="[handoff ho_1]")
            turns.append(taken.turn)
            with anyio.fail_after(SECONDS):
                await terminals.terminals.wait_ready(terminal)
        ended = [fact for fact in terminals.facts if fact.kind is FactKind.TURN_ENDED]
    assert [(fact.turn, fact.answer) for fact in ended] == [
        (turns[0], "⏺ first\nanswer"),
        (turns[1], "second"),
    ]


@pytest.mark.promise("C6")
async def test_the_same_prompt_handed_off_twice_has_two_answers(shared: LiveService) -> None:
    profile = ScriptedProfile(shared)
    task, answer = f"{FORTY_LINES}\n@file {shared.work / 'answer'}", shared.work / "answer"
    for expected in ("first", "second"):
        answer.write_text(expected)
        assert (await hand_off(shared, profile.name, task)).output == expected
    assert profile.texts() == [task, task]
