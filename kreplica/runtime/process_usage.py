"""Resource usage of this process, as the kernel reports it."""

from __future__ import annotations

import os
import resource
from typing import NamedTuple


class ProcessUsage(NamedTuple):
    """CPU time, resident memory and number of open files of this process.

    :param resident_bytes: the maximum since the start if there is no ``/proc``.
    :param open_files: None if there is no ``/proc``.
    """

    cpu_s: float
    resident_bytes: int
    open_files: int | None


def process_usage() -> ProcessUsage:
    """Read the current values, which takes microseconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        open_files: int | None = len(os.listdir("/proc/self/fd"))
    except OSError:
        resident, open_files = usage.ru_maxrss * 1024, None
    return ProcessUsage(usage.ru_utime + usage.ru_stime, resident, open_files)
