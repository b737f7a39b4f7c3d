"""A service of one's own for each test, in memory and listening."""

from collections.abc import AsyncGenerator

import pytest

from tests.mcp_tools.service import Service, listening


@pytest.fixture
async def service() -> Service:
    return Service()


@pytest.fixture
async def url(service: Service) -> AsyncGenerator[str]:
    async with listening(service) as address:
        yield address
