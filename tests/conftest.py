"""What every test may use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from tests.live import LiveService


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def no_blocking_calls() -> Iterator[BlockBuster]:
    """Fails a test in which the service's own code blocks the event loop.

    For tests that run the service in their own process:
    `pytestmark = pytest.mark.usefixtures("no_blocking_calls")` at the top of the module.
    """
    with blockbuster_ctx(["orchestrator", "mcp_tools"]) as blockbuster:
        yield blockbuster


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveService]:
    """A running service of the test's own."""
    with LiveService(tmp_path) as service:
        yield service.start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A running service for the tests of one module that leave no trace in each other's way."""
    with LiveService(tmp_path_factory.mktemp("service")) as service:
        yield service.start()
