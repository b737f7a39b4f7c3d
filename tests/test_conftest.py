"""The shared fixtures are seen to bite."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from blockbuster import BlockingError

SLEEPER = """
import time

async def sleep():
    time.sleep(0.001)
"""


@pytest.mark.anyio
@pytest.mark.usefixtures("no_blocking_calls")
async def test_a_blocking_call_of_the_service_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("orchestrator.sleeper")
    path = Path(sys.modules["orchestrator"].__file__ or "").with_name("sleeper.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SLEEPER, str(path), "exec"), module.__dict__)

    with pytest.raises(BlockingError):
        await module.sleep()
