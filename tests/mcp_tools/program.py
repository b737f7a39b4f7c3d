"""The stdio server as a process for the tests: its options are one JSON object in the first argument."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

from mcp_tools.stdio import run
from mcp_tools.waiting import Patience
from orchestrator.domain.errors import Unavailable

given = json.loads(sys.argv[1])
if given.get("noisy"):
    warnings.warn("a warning at start", DeprecationWarning, stacklevel=1)


def find() -> tuple[str, str | None]:
    """The address as given, or as it stands in a file now."""
    if given.get("noisy"):
        print("what has no business on stdout")
        subprocess.run(["echo", "nor has this"], check=True)
    if "url" in given:
        return given["url"], given.get("token", "agent-token")
    try:
        return Path(given["address_file"]).read_text(), "agent-token"
    except OSError:
        raise Unavailable("no service runs: start it with `changeover serve`") from None


run(
    find,
    working_directory_enabled=given.get("working_directory", False),
    log_level=given.get("log_level", "WARNING"),
    progress_interval=given.get("progress_interval", 10.0),
    patience=Patience(**given.get("patience", {})),
)
