"""Operations of the disk that are to fail."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from kreplica.testing.simulator.namespace import os_error

Operation = Literal["open", "read", "write", "sync", "sync_directory", "rename", "remove"]


@dataclass(slots=True, eq=False)
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

    def __bool__(self) -> bool:
        """Whether any operation would fail."""
        return bool(self._planted)

    def plant(self, operation: Operation, pattern: str, number: int, times: int | None) -> Fault:
        """Let matching operations fail from now on."""
        fault = Fault(operation, pattern, number, times)
        self._planted.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """End that one; nothing where it has ended by itself."""
        if fault in self._planted:
            self._planted.remove(fault)

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
