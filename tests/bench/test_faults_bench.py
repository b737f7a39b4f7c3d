"""What a caller sees of a delegate's death, and of the service's."""

import json
import os
import signal
import statistics
import time
from collections import Counter

import anyio
import pytest

from tests.bench.callers import Answer, all_work, hand_over, http_client
from tests.bench.conftest import Record
from tests.live import LiveService

pytestmark = [pytest.mark.bench, pytest.mark.anyio]

DEATHS, RUNNING = 10, 10
WORK_SECONDS = 6


async def test_a_death_reaches_the_caller_within_a_second(live: LiveService, record: Record) -> None:
    live.profile("bench", f"driver: scripted\nworking_directory: {live.work}")
    times: list[float] = []
    async with http_client(live) as client, live.client() as person:
        for _ in range(DEATHS):
            told: list[tuple[Answer, float]] = []

            async def call() -> None:
                answer = await hand_over(client, "@wait 60")
                told.append((answer, time.perf_counter()))  # noqa: B023 - runs within this round

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                [view] = await all_work(person, 1)
                assert view.pid
                killed = time.perf_counter()
                os.kill(view.pid, signal.SIGKILL)
            [(answer, when)] = told
            assert answer.is_error
            assert "SIGKILL" in answer.text
            times.append(when - killed)
    record("death of a delegate to the caller's error, median", statistics.median(times), "s")
    record("death of a delegate to the caller's error, longest", max(times), "s", 1)


async def test_killed_with_ten_handoffs_running_it_answers_all_and_repeats_none(
    live: LiveService, record: Record
) -> None:
    log = live.work / "turns.jsonl"
    live.profile("logged", f'driver: scripted\nworking_directory: {live.work}\ncommand: ["--log", "{log}"]')
    answers = [f"answer {number}" for number in range(RUNNING)]
    async with live.client("agent") as caller, live.client() as person:
        ids = [
            (
                await caller.start_handoff(live.request("logged", f"@wait {WORK_SECONDS}\n@say {answer}"))
            ).handoff_id
            for answer in answers
        ]
        await all_work(person, RUNNING)
    live.kill()
    live.start()
    began = time.perf_counter()
    async with live.client("agent") as caller:
        waited = await caller.wait_until(ids, "all", 60.0)
    took = time.perf_counter() - began
    missing = sum(each.output != answer for each, answer in zip(waited.handoffs, answers, strict=True))
    turns = [json.loads(line)["turn"] for line in log.read_text().splitlines()]
    done = Counter(turn for turn in turns if turn is not None)
    again = sum(count - 1 for count in done.values()) + abs(len(done) - RUNNING)
    record("kill -9 with 10 running handoffs: answers missing", missing, "answers", 0)
    record("kill -9 with 10 running handoffs: tasks not done exactly once", again, "tasks", 0)
    record("kill -9 with 10 running handoffs: restart to the last answer", took, "s")
