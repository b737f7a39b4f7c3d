"""Which agent CLIs this machine has, for `doctor`."""

import shutil
import subprocess
from collections.abc import Mapping

import anyio

from orchestrator.ports import DriverInfo
from orchestrator.terminals.driver import Driver

_VERSION_SECONDS = 10.0


async def find_programs(drivers: Mapping[str, Driver]) -> list[DriverInfo]:
    """One entry a driver, by name, each program asked for its version at the same time."""
    found: dict[str, DriverInfo] = {}

    async def find(driver: Driver) -> None:
        found[driver.name] = await _find(driver)

    async with anyio.create_task_group() as tasks:
        for driver in drivers.values():
            tasks.start_soon(find, driver)
    return [found[name] for name in sorted(found)]


async def _find(driver: Driver) -> DriverInfo:
    path = shutil.which(driver.program)
    if path is None:
        advice = f"install {driver.program}, or set `command` in the profiles that use it"
        return DriverInfo(name=driver.name, program=driver.program, found=False, advice=advice)
    argv = driver.version_argv()
    version = await _version(argv) if argv else None
    advice = None if version or not argv else f"{' '.join(argv)} did not answer: reinstall {driver.program}"
    return DriverInfo(
        name=driver.name, program=driver.program, found=True, path=path, version=version, advice=advice
    )


async def _version(argv: list[str]) -> str | None:
    try:
        with anyio.fail_after(_VERSION_SECONDS):
            done = await anyio.run_process(argv, stdin=subprocess.DEVNULL, check=False)
    except (OSError, TimeoutError):
        return None
    return done.stdout.decode("utf-8", "replace").strip().split("\n")[0] or None
