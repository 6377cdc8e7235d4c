"""Verifies a log directory or the directory of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from kreplica.errors import StorageError
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    parse_checkpoint,
    read_topic_id,
)
from kreplica.storage.formats.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kreplica.storage.formats.leader_epochs import EpochEntry, read_epochs
from kreplica.storage.formats.names import parse_directory_name
from kreplica.storage.inspection.files import segment_bases
from kreplica.storage.inspection.segment_checks import PROBLEMS_MAX, CheckOptions, LogState, Problem, SegmentCheck
from kreplica.storage.producers.snapshots import SNAPSHOT_SUFFIX, decode_snapshot

CHECKS_MAX = 4
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANER_OFFSETS)


class NoLogsFound(StorageError):
    """The directory contains no logs to verify."""


@dataclass(slots=True)
class Tally:
    """Counts of verified objects."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    problems: int = 0


class Verification:
    """Read-only verification of a log directory, or of one partition's directory.

    A broker may write to it meanwhile: segments grow, are removed and are compacted. A problem is therefore reported
    only if a second check finds it too.

    :param pause: waits between the two checks.
    """

    def __init__(self, disk: Disk, options: CheckOptions, pause: Callable[[], None]) -> None:
        self._disk = disk
        self._options = options
        self._pause = pause
        self.tally = Tally()

    def run(self, directory: str) -> Iterator[Problem]:
        """Yield all problems, file by file.

        :raise NoLogsFound: the directory contains no logs.
        """
        for problem in self._check_all(directory.rstrip("/") or "/"):
            self.tally.problems += 1
            yield problem

    def _check_all(self, directory: str) -> Iterator[Problem]:
        names = self._disk.list_directory(directory)
        if segment_bases(names) or PARTITION_METADATA in names:
            yield from self._partition(directory)
            return
        partitions = [name for name in names if parse_directory_name(name) is not None
                      and self._disk.is_directory(f"{directory}/{name}")]  # fmt: skip
        if not partitions:
            raise NoLogsFound(
                f"{directory} contains no logs: it has neither a .log file nor a directory named TOPIC-PARTITION"
            )
        for name in CHECKPOINTS:
            if name in names:
                yield from self._confirmed_problem(lambda path: self._checkpoint(path, fields=3), f"{directory}/{name}")
        for name in partitions:
            try:
                yield from self._partition(f"{directory}/{name}")
            except FileNotFoundError:
                continue  # the topic was deleted meanwhile

    def _partition(self, directory: str) -> Iterator[Problem]:
        self.tally.partitions += 1
        names = self._disk.list_directory(directory)
        yield from self._confirmed_problem(self._metadata, f"{directory}/{PARTITION_METADATA}")
        yield from self._confirmed_problem(self._epochs_file, f"{directory}/{LEADER_EPOCHS}")
        for name in names:
            if name.endswith(SNAPSHOT_SUFFIX):
                yield from self._confirmed_problem(self._snapshot, f"{directory}/{name}")
        bases = segment_bases(names)
        state = LogState()
        for base in bases:
            problems, state = self._segment(directory, base, state, is_active=base == bases[-1])
            yield from problems

    def _segment(
        self, directory: str, base: int, state: LogState, *, is_active: bool
    ) -> tuple[list[Problem], LogState]:
        """Check a segment, up to ``CHECKS_MAX`` times, until a check finds no problem or two checks agree."""
        confirmed: list[Problem] = []
        for attempt in range(CHECKS_MAX):
            epochs = self._epochs(directory)
            check = SegmentCheck(self._disk, directory, base, state.copy(), epochs, is_active=is_active,
                                 options=self._options)  # fmt: skip
            try:
                with closing(check.problems()) as problems:
                    current = list(islice(problems, PROBLEMS_MAX))
            except FileNotFoundError:
                return [], state
            if attempt and current:
                earlier_problems = set(confirmed)
                confirmed = [problem for problem in current if problem in earlier_problems]
            else:
                confirmed = current
            if not current or (attempt and confirmed == current):
                break
            self._pause()
        self.tally.segments += 1
        self.tally.batches += check.batches
        self.tally.bytes += check.size
        return confirmed, check.state

    def _confirmed_problem(self, check: Callable[[str], str | None], path: str) -> Iterator[Problem]:
        """Yield the problem of a small file if two checks find one."""
        if self._problem_text(check, path) is not None:
            self._pause()
            text = self._problem_text(check, path)
            if text is not None:
                yield Problem(path, None, text)

    def _problem_text(self, check: Callable[[str], str | None], path: str) -> str | None:
        try:
            return check(path)
        except FileNotFoundError:
            return None
        except StorageError as error:
            return str(error).removeprefix(f"{path}: ")

    def _checkpoint(self, path: str, *, fields: int) -> None:
        for _ in parse_checkpoint(path, self._disk.read_file(path), fields=fields):
            pass

    def _metadata(self, path: str) -> None:
        read_topic_id(self._disk, path)

    def _epochs_file(self, path: str) -> None:
        read_epochs(path, self._disk)

    def _snapshot(self, path: str) -> None:
        decode_snapshot(path, self._disk.read_file(path))

    def _epochs(self, directory: str) -> tuple[EpochEntry, ...]:
        try:
            return read_epochs(f"{directory}/{LEADER_EPOCHS}", self._disk)
        except StorageError:
            return ()
