"""The command line as a user meets it: a process of its own, beside a real service."""

import json
import subprocess
import sys
from collections.abc import Mapping
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


class Run:
    """Runs command lines in one folder and environment."""

    def __init__(self, env: Mapping[str, str], cwd: Path) -> None:
        self._env = dict(env)
        self._cwd = cwd

    def __call__(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Said:
        """One command line to its end, which is never a traceback."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            env={**self._env, **(env or {})},
            cwd=self._cwd,
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        said = Said(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in said.err
        return said

    def popen(self, *arguments: str) -> subprocess.Popen[bytes]:
        """One command line to talk to."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*COMMAND, *arguments], env=self._env, cwd=self._cwd, stdin=pipe, stdout=pipe, stderr=pipe
        )


@pytest.fixture
def cli(shared: LiveService) -> Run:
    """Runs a command line against the module's service, from its work folder."""
    return Run(shared.env, shared.work)


@pytest.fixture
def alone(tmp_path: Path) -> Run:
    """Runs a command line where no service is."""
    return Run(LiveService(tmp_path).env, tmp_path)
