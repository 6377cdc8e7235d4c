"""Scrubber: slowly reads all stored data to find damage while other replicas still have intact copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from twisted.logger import Logger

from kreplica.model import TopicPartition
from kreplica.runtime.disk import is_temporary
from kreplica.runtime.offload import Offload
from kreplica.storage.log import checks
from kreplica.storage.log.log import Log
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.segment import Segment

INTERVAL_SECONDS = 1.0

PASS_STEPS_MIN = 30
"""Minimum number of steps from one pass to the next, so that a small amount of data is not read continuously."""

_FILES_MAX = 50
"""Maximum number of segments per step, because a broker may have many small ones."""

_log = Logger()


class _Position:
    """Position in the segment being checked."""

    def __init__(self, log: Log, segment: Segment) -> None:
        self.log = log
        self.segment = segment
        self._generation = log.generation
        self._position = 0
        self._next_offset: int | None = None

    @property
    def is_done(self) -> bool:
        """True if the segment is checked completely, or has changed."""
        return self._position >= self.segment.size or not self.is_current

    @property
    def is_current(self) -> bool:
        """True if the segment still belongs to its log, and the log was not truncated since."""
        log = self.log
        return log.owner is not None and log.generation == self._generation and self.segment in log.segments

    async def check(self, offload: Offload, size_max: int) -> int:
        """Check the next part of the segment.

        :return: number of bytes checked.
        :raise Damage: two reads found damage.
        """
        batches = checks.batches_to_check(self.log, self.segment, self._position, self._next_offset)
        try:
            position, next_offset = await offload.run(batches.check, size_max)
        except Damage as damage:
            if not self.is_current:
                return 0
            position, next_offset = await offload.run(batches.check, size_max)
            _log.warn("a second read did not find this damage again: {damage}", damage=str(damage))
        size = position - self._position
        if position >= self.segment.size and self.segment is not self.log.segments.active:
            await self._check_indexes(offload)
        self._position, self._next_offset = position, next_offset
        if self.is_done and self.is_current:
            self.log.damage.clear(self.segment.base_offset)
        return size

    async def _check_indexes(self, offload: Offload) -> None:
        if self.is_current:
            wrong = await offload.run(checks.indexes_to_check(self.log, self.segment).check)
            if wrong.reasons and self.is_current:
                for reason in wrong.reasons:
                    _log.error("{log}: index rebuilt: {reason}", log=str(self.log.topic_partition), reason=reason)
                self.log.derived_state.replace_indexes(self.segment, wrong)


class Scrubber:
    """Scrubber of a broker; the log directories call ``step`` every ``INTERVAL_SECONDS``.

    :param logs: returns the usable logs.
    :param bytes_max: maximum number of bytes per step, but at least one batch.
    :ivar passes_count: number of complete passes.
    """

    def __init__(self, offload: Offload, logs: Callable[[], Mapping[TopicPartition, Log]], bytes_max: int) -> None:
        self.passes_count = 0
        self._offload = offload
        self._logs = logs
        self._bytes_max = bytes_max
        self._positions: Iterator[_Position] = iter(())
        self._current: _Position | None = None
        self._steps_until_pass = 0

    async def step(self) -> None:
        """Continue at the last position; after the last segment, start again at the first."""
        self._steps_until_pass -= 1
        bytes_left = self._bytes_max
        for _ in range(_FILES_MAX):
            if self._current is None or self._current.is_done:
                self._current = next(self._positions, None)
            if self._current is None:
                if self._steps_until_pass <= 0:
                    self._steps_until_pass = PASS_STEPS_MIN
                    self.passes_count += 1
                    self._positions = self._all_positions()
                return
            if self._current.is_done:
                continue  # its log was truncated during this pass
            bytes_left -= await self._check(self._current, bytes_left)
            if bytes_left <= 0:
                return

    async def _check(self, position: _Position, size_max: int) -> int:
        try:
            return await position.check(self._offload, size_max)
        except Damage as damage:
            self._current = None
            if position.is_current:
                position.log.report_damage(damage)
        except FileNotFoundError:
            self._current = None  # removed in the meantime
        except OSError as error:
            if not is_temporary(error):
                raise
        return 0

    def _all_positions(self) -> Iterator[_Position]:
        for key in list(self._logs()):
            log = self._logs().get(key)
            if log is not None:
                for segment in log.segments:
                    yield _Position(log, segment)
