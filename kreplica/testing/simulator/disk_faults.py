"""Injected disk faults."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from kreplica.testing.simulator.namespace import os_error

Operation = Literal["open", "read", "write", "sync", "sync_directory", "rename", "remove"]


@dataclass(slots=True, eq=False)
class Fault:
    """An operation that fails on the paths that match a shell pattern; ``times`` counts the remaining failures."""

    operation: Operation
    pattern: str
    errno: int
    times: int | None


class Faults:
    """Faults of one disk; the oldest one that matches applies."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, operation: Operation, pattern: str, number: int, times: int | None) -> Fault:
        fault = Fault(operation, pattern, number, times)
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        self._faults.clear()

    def check(self, operation: Operation, path: str) -> None:
        """Raise the error of the first matching fault.

        :raise OSError: a fault matches.
        """
        for fault in self._faults:
            if fault.operation == operation and fnmatchcase(path, fault.pattern):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                raise os_error(fault.errno, path)
