"""A process that only imports what the service uses, and sleeps: what its memory is measured against.

`python -m tests.bench.only_imports FILE`, where FILE is what a service logged that was started with
PYTHONPROFILEIMPORTTIME set. It prints a line once it sleeps.
"""

import importlib
import sys
from contextlib import suppress
from pathlib import Path

import anyio

LINE = "import time:"


def modules(log: str) -> list[str]:
    """The modules a process imported, in their order, those that others import after their importers."""
    named = [line.rpartition("|")[2] for line in log.splitlines() if line.startswith(LINE)][1:]
    by_depth = sorted(named, key=lambda name: len(name) - len(name.lstrip()))
    return [name.strip() for name in by_depth]


async def sleep(names: list[str]) -> None:
    missing = {name for name in names if name not in sys.modules}
    print(f"imports {len(names) - len(missing)} modules; {len(missing)} are not installed", flush=True)
    await anyio.sleep_forever()


if __name__ == "__main__":
    wanted = modules(Path(sys.argv[1]).read_text())
    for name in wanted:
        # Names that a package only makes up while it loads cannot be imported again.
        with suppress(ImportError):
            importlib.import_module(name)
    anyio.run(sleep, wanted, backend_options={"use_uvloop": True})
