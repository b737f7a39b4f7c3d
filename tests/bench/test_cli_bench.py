"""How long the command line takes to say its help, beside a Python that only imports click."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import pytest

pytestmark = pytest.mark.bench

ROUNDS = 9
BARE = [sys.executable, "-c", "import click"]
COMMAND = [sys.executable, "-m", "orchestrator.cli"]


def seconds(argv: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def test_help_answers_at_once(record: Callable[..., None]) -> None:
    """Taken in turns, so that a busy moment of the machine hits all three alike."""
    taken: dict[str, list[float]] = {"bare": [], "--help": [], "handoff --help": []}
    for _ in range(ROUNDS):
        taken["bare"].append(seconds(BARE))
        taken["--help"].append(seconds([*COMMAND, "--help"]))
        taken["handoff --help"].append(seconds([*COMMAND, "handoff", "--help"]))
    middle = {name: statistics.median(times) for name, times in taken.items()}
    for name in ("--help", "handoff --help"):
        record(f"changeover {name}", middle[name], "s", 0.3)
        record(f"changeover {name} / import click", middle[name] / middle["bare"], "ratio", 2.5)
