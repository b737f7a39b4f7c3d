"""What every test may use."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx


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
