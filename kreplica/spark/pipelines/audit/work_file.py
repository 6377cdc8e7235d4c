"""The work file of an audit: what is done of one that did not come to its end, partition by partition.

The first line says of which audit; each other one is a partition.  A line that a crash cut short is the last, and
counts for nothing.  An audit that comes to its end removes the file: whoever starts it again means a new one.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from kreplica.model import TopicPartition
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Coverage, Difference, Kind

VERSION = 1


class WorkFile:
    """Written as a context manager.

    :param path: None: nothing is kept.
    :param identity: of the audit, as JSON has it.
    """

    def __init__(self, path: Path | None, identity: dict[str, object]) -> None:
        self._path = path
        self._head = {"version": VERSION, "audit": identity}
        self._file: IO[str] | None = None

    def read(self) -> dict[TopicPartition, Comparison]:
        """What is done; nothing where there is no file.

        :raise ValueError: it is of another audit, or no such file at all.
        """
        if self._path is None or not self._path.exists():
            return {}
        head, *lines = self._path.read_text().split("\n")
        try:
            is_ours = json.loads(head) == json.loads(json.dumps(self._head))
        except ValueError:
            is_ours = False
        if not is_ours:
            raise ValueError(f"{self._path} is not of this audit: remove it, or let --resume name another")
        found = [_comparison(json.loads(line)) for line in lines[:-1]]  # behind the last end of line, what was cut off
        return {TopicPartition(each.topic, each.partition): each for each in found}

    def __enter__(self) -> Self:
        if self._path is not None:
            kept = self.read().values()
            # Anew, so that a line that was cut off is not gone on with.
            self._file = self._path.open("w")
            self._write(self._head)
            for each in kept:
                self.add(each)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, comparison: Comparison) -> None:
        """A partition is done."""
        self._write(asdict(comparison))

    def _write(self, value: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(value) + "\n")
            self._file.flush()

    def remove(self) -> None:
        """The audit is at its end."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _comparison(told: dict[str, Any]) -> Comparison:
    coverages = [Coverage(**each) for each in told.pop("coverages")]
    differences = [Difference(**{**each, "kind": Kind(each["kind"])}) for each in told.pop("differences")]
    return Comparison(**told, coverages=coverages, differences=differences)
