"""The stand-in as a process of its own, and its record."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent


class StandIn:
    """Runs while it is entered. `url` is what an agent CLI is given as its vendor's address."""

    def __init__(self, folder: Path) -> None:
        self.record = folder / "requests.jsonl"
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.model_server", "--port", "0", "--record", str(self.record)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def requests(self) -> list[dict[str, Any]]:
        """The conversations' requests, oldest first; a CLI's own small questions are left out."""
        if not self.record.exists():
            return []
        lines = [json.loads(line) for line in self.record.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if "messages" in line and not line["aside"]]
