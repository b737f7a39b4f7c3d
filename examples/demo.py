"""One handoff, from nothing: starts a service on a record of its own, hands a task to the scripted agent in a
real terminal, prints the answer, and ends the service again. Needs Python and tmux; no account.

`make demo` runs it. It does what a person would type, with the `changeover` command.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHANGEOVER = [sys.executable, "-m", "orchestrator.cli"]
TASK = """\
Count the lines of the three files that changed most.
@wait 0.5
@say client.py 274, settings.py 330, thread.py 266"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="changeover-demo-") as home:
        environ = os.environ | {"CHANGEOVER_HOME": home, "CHANGEOVER_PORT": "0"}
        environ = {
            name: value
            for name, value in environ.items()
            if name not in {"CHANGEOVER_URL", "CHANGEOVER_TOKEN"}
        }
        print("$ changeover serve &", flush=True)
        with (Path(home) / "service.log").open("wb") as log:
            service = subprocess.Popen(
                [*CHANGEOVER, "serve", "--end-agents"], env=environ, stdout=log, stderr=log
            )
        try:
            return hand_off(service, environ)
        finally:
            service.terminate()
            service.wait(20)


def hand_off(service: subprocess.Popen[bytes], environ: dict[str, str]) -> int:
    address = Path(environ["CHANGEOVER_HOME"]) / "service.json"
    deadline = time.monotonic() + 20
    while not address.exists():
        if service.poll() is not None or time.monotonic() > deadline:
            print((address.parent / "service.log").read_text(), file=sys.stderr)
            return 1
        time.sleep(0.02)
    print(f"$ changeover handoff scripted '{TASK}'", flush=True)
    answer = subprocess.run([*CHANGEOVER, "handoff", "scripted", TASK], env=environ, check=False)
    print()
    return answer.returncode


if __name__ == "__main__":
    sys.exit(main())
