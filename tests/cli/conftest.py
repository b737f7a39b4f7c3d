"""The command line as a user meets it: a process of its own, beside a real service."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.live import LiveService

COMMAND = [sys.executable, "-m", "orchestrator.cli"]


class Said(NamedTuple):
    """What a command line printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.err.splitlines()[-1])["error"]


Run = Callable[..., Said]


def say(*arguments: str, env: Mapping[str, str], cwd: Path, stdin: bytes = b"") -> Said:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=dict(env),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
    said = Said(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in said.err
    return said


@pytest.fixture
def cli(shared: LiveService) -> Run:
    """Runs a command line against the module's service, from its work folder."""

    def run(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Said:
        return say(*arguments, env={**shared.env, **(env or {})}, cwd=shared.work, stdin=stdin)

    return run


@pytest.fixture
def alone(tmp_path: Path) -> Run:
    """Runs a command line where no service is."""
    quiet = LiveService(tmp_path)

    def run(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Said:
        return say(*arguments, env={**quiet.env, **(env or {})}, cwd=tmp_path, stdin=stdin)

    return run
