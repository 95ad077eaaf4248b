"""What our own programs ask of the libraries below them: settings that those read once, when they are loaded.

The command line and the processes that it starts make these settings. Importing fedkge makes none of them, so
that another program that uses torch stays as it is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

SETTINGS = {
    "OMP_WAIT_POLICY": "passive",  # idle threads sleep: spinning, they take cores from other programs
    "KMP_BLOCKTIME": "0",  # the same for Intel's and LLVM's OpenMP
    "THP_MEM_ALLOC_ENABLE": "1",  # torch makes large tables of large pages, which Linux gives out faster
}
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS")  #: variables that say how many threads there are
CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def prepare() -> None:
    """Make these settings, before torch and numba are imported. What the user has set stays."""
    for name, value in {**SETTINGS, **dict.fromkeys(THREADS, str(threads()))}.items():
        os.environ.setdefault(name, value)


def use_threads(count: int) -> None:
    """Let torch and numba, which are not imported yet, use so many threads."""
    os.environ.update(dict.fromkeys(THREADS, str(count)))


def environment(count: int) -> dict[str, str]:
    """The environment of a process that we start, with so many threads."""
    return {**SETTINGS, **os.environ, **dict.fromkeys(THREADS, str(count))}


def threads() -> int:
    """How many threads this process may use: what the user has set, or else the cores that it may run on."""
    set_by_user = os.environ.get(THREADS[0], "")
    return int(set_by_user) if set_by_user.isdigit() and int(set_by_user) else cores()


def cores() -> int:
    """Cores that this process may run on, at least one; a container's share of the machine counts."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS and Windows have none
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(count, math.ceil(min(_quotas(), default=count))))


def _quotas() -> Iterator[float]:
    """The cores that each control group above this process allows, in both versions of Linux's groups."""
    try:
        lines = OWN_GROUP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / controllers if controllers else CGROUPS
        own = root / path.strip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(root):
                quota, period = (
                    _numbers(folder / "cpu.max")
                    or _numbers(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")
                    or (0, 0)
                )
                if quota > 0 < period:
                    yield quota / period


def _numbers(*files: Path) -> tuple[int, int] | None:
    """Two numbers that stand in one file or in two; none if there are no files, or no limit."""
    try:
        quota, period = " ".join(file.read_text() for file in files).split()
        return int(quota), int(period)
    except (OSError, ValueError):  # "max" is no limit
        return None
