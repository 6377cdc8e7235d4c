"""Work file of an audit: results by partition, from which an interrupted audit resumes.

The first line identifies the audit; each following line has the result of one partition. An incomplete last line is
ignored. A finished audit deletes the file, so the next one starts from the beginning.
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
    """A work file, used as a context manager.

    :param path: None: nothing is stored.
    :param identity: JSON values that identify the audit.
    """

    def __init__(self, path: Path | None, identity: dict[str, object]) -> None:
        self._path = path
        self._head = {"version": VERSION, "audit": identity}
        self._file: IO[str] | None = None

    def read(self) -> dict[TopicPartition, Comparison]:
        """Read the stored results; empty if there is no file.

        :raise ValueError: the file belongs to another audit, or is not a work file.
        """
        if self._path is None or not self._path.exists():
            return {}
        head, *lines = self._path.read_text().split("\n")
        try:
            is_ours = json.loads(head) == json.loads(json.dumps(self._head))
        except ValueError:
            is_ours = False
        if not is_ours:
            raise ValueError(f"{self._path} is not a work file of this audit: delete it, or use another --resume file")
        found = [_comparison(json.loads(line)) for line in lines[:-1]]  # the last line may be incomplete
        return {TopicPartition(each.topic, each.partition): each for each in found}

    def __enter__(self) -> Self:
        if self._path is not None:
            entries = self.read().values()
            # Rewrite the file, so that nothing is appended to an incomplete line.
            self._file = self._path.open("w")
            self._write(self._head)
            for each in entries:
                self.add(each)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, comparison: Comparison) -> None:
        """Append the result of a partition."""
        self._write(asdict(comparison))

    def _write(self, value: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(value) + "\n")
            self._file.flush()

    def remove(self) -> None:
        """Delete the file after the audit has finished."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _comparison(fields: dict[str, Any]) -> Comparison:
    coverages = [Coverage(**each) for each in fields.pop("coverages")]
    differences = [Difference(**{**each, "kind": Kind(each["kind"])}) for each in fields.pop("differences")]
    return Comparison(**fields, coverages=coverages, differences=differences)
