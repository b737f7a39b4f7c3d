"""The end of a process that is not our child, without polling where the kernel can tell."""

import os
import sys

import anyio

_POLL_SECONDS = 0.5
"""Where there is no pidfd (macOS), a signal 0 twice a second is what is left."""


async def gone(pid: int) -> None:
    """Returns once the process has ended; at once if there is none."""
    if sys.platform == "linux":
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            await anyio.wait_readable(fd)
        finally:
            os.close(fd)
        return
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await anyio.sleep(_POLL_SECONDS)
