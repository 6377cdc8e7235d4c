"""Operations of the disk that are to fail."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from kreplica.testing.namespace import os_error

Operation = Literal["open", "read", "write", "sync", "sync_directory", "rename", "remove"]


@dataclass(slots=True)
class Fault:
    """Operations that fail: which, on which paths (a shell pattern), with which errno, how many times more."""

    operation: Operation
    pattern: str
    errno: int
    times: int | None


class Faults:
    """The faults planted in one disk; the oldest that matches is the one that shows."""

    def __init__(self) -> None:
        self._planted: list[Fault] = []

    def plant(self, operation: Operation, pattern: str, number: int, times: int | None) -> None:
        """Let matching operations fail from now on."""
        self._planted.append(Fault(operation, pattern, number, times))

    def clear(self) -> None:
        """Let everything work again."""
        self._planted.clear()

    def check(self, operation: Operation, path: str) -> None:
        """:raise OSError: where a fault was planted for it."""
        for fault in self._planted:
            if fault.operation == operation and fnmatchcase(path, fault.pattern):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._planted.remove(fault)
                raise os_error(fault.errno, path)
