"""One service that drives the real Claude Code, for all tests that leave no trace in each other's way."""

from collections.abc import Iterator

import pytest

from tests.acceptance.claude import ClaudeService
from tests.model_server.running import StandIn


@pytest.fixture(scope="session")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClaudeService]:
    folder = tmp_path_factory.mktemp("claude")
    with StandIn(folder) as model, ClaudeService(folder, model) as live:
        yield live.start()
