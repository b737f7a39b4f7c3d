"""The stdio server starts lean: it is started once for each agent."""

import subprocess
import sys

import pytest

from tests.mcp_tools.start import cost

LOADED = "import sys, mcp_tools.stdio; print(*sys.modules)"


def test_nothing_of_the_service_is_loaded_but_its_client() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.startswith("orchestrator.")}
    assert {name.split(".")[1] for name in ours} == {"client", "wire", "domain"}
    assert not loaded & {"litestar", "sqlalchemy", "structlog", "rich", "libtmux", "mcp_tools.http"}


@pytest.mark.bench
def test_it_starts_nearly_as_fast_as_a_bare_server_and_stays_small() -> None:
    ratio, megabytes = cost()
    assert ratio <= 1.3
    assert megabytes <= 90
