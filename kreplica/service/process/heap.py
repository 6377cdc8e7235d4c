"""Returns freed memory to the operating system."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_BYTES = 16 * 1024 * 1024
_MMAP_BYTES = 4 * 1024 * 1024

_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only


def return_freed_memory() -> None:
    """Fix the thresholds of glibc's allocator, which otherwise grow with the largest block that was freed.

    After a freed block of 32 MiB glibc keeps up to 64 MiB of free memory (mallopt(3), ``M_TRIM_THRESHOLD``).
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        _mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
