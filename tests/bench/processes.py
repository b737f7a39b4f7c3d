"""What the kernel knows about a process of somebody else's: its CPU time, its memory, its children. Linux."""

import time
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """All CPU time its threads have used, ended ones included, to the nanosecond.

    By its own clock: `/proc` counts in steps of 10 ms, too coarse for a process that hardly runs.
    """
    return time.clock_gettime((~pid << 3) | 2)


def pss_megabytes(pid: int) -> float:
    """Its memory, with what it shares counted in proportion."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024


class Forks:
    """Whether processes were forked since this was made, without watching all the time.

    A child that still lives is seen by its id. One that has ended was waited for by its parent, and the
    kernel has then added the child's page faults, of which every process has some, to those of the
    parent's ended children.
    """

    def __init__(self, *pids: int) -> None:
        self._before = {pid: (_children(pid), _faults_of_ended_children(pid)) for pid in pids}

    def seen(self) -> int:
        """How many at least."""
        count = 0
        for pid, (children, faults) in self._before.items():
            count += len(_children(pid) - children) + (_faults_of_ended_children(pid) > faults)
        return count


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found |= {int(child) for child in (task / "children").read_text().split()}
    return found


def _faults_of_ended_children(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[8]) + int(fields[10])
