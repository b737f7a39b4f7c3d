"""A service that drives the real Claude Code, for the tests of one module."""

from collections.abc import Iterator

import pytest

from tests.acceptance.claude import ClaudeService
from tests.model_server.running import StandIn


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClaudeService]:
    folder = tmp_path_factory.mktemp("claude")
    with StandIn(folder) as model, ClaudeService(folder, model) as live:
        yield live.start()
