"""A log is compared with a model: after any operations in any order, its contents equal those of a plain list."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from storage_world import KEY, batch, flush, read_bytes, records_of

from kreplica.runtime.os_disk import OsDisk
from kreplica.storage import Log, LogConfig
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.retention import delete_expired
from kreplica.storage.log.timestamp_search import offset_for_timestamp
from kreplica.wire.batches import iter_headers, parse_header
from kreplica.wire.compression import Codec

CONFIG = LogConfig(segment_bytes=800, index_interval_bytes=100, retention_ms=-1)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp()
        self.batches: list[tuple[int, list[str], int]] = []
        """Base offset, values and first timestamp of each batch."""
        self.start = self.end = self.epoch = 0
        self.epochs: dict[int, int] = {}
        self.log = self.open()

    def open(self, **state: object) -> Log:
        return LogToOpen(self.path, KEY, CONFIG, OsDisk(), lambda: 1, **state).open()[0]

    def teardown(self) -> None:
        shutil.rmtree(self.path)

    @rule(count=st.integers(1, 5), size=st.integers(0, 120), codec=st.sampled_from(Codec), stamp=st.integers(0, 500))
    def append(self, count, size, codec, stamp):
        values = [f"{self.end + index}".ljust(size, ".") for index in range(count)]
        result = append_as_leader(self.log, batch(*values, timestamp_ms=stamp, codec=codec), self.epoch, now_ms=1)
        assert (result.base_offset, result.last_offset) == (self.end, self.end + count - 1)
        if self.epoch not in self.epochs:
            self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < self.end}
            self.epochs[self.epoch] = self.end
        self.batches.append((self.end, values, stamp))
        self.end += count

    @rule()
    def next_epoch(self):
        self.epoch += 1

    @rule()
    def roll(self):
        self.log.roll(1)

    @rule()
    def flush(self):
        flush(self.log)
        assert self.log.durability.recovery_point == self.end

    @rule(back=st.integers(0, 12))
    def truncate(self, back):
        offset = max(self.end - back, self.start)
        inside = [base for base, values, _ in self.batches if base <= offset < base + len(values)]
        self.end = inside[0] if inside else offset
        assert self.log.truncate_to(offset) == self.end
        self.batches = [one for one in self.batches if one[0] < self.end]
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < self.end}
        self.start = min(self.start, self.end)

    @precondition(lambda self: self.end > self.start)
    @rule(forward=st.integers(1, 6))
    def advance_start(self, forward):
        self.start = min(self.start + forward, self.end)
        self.log.advance_log_start_offset(self.start)
        delete_expired(self.log, 1, self.end)

    @rule(gap=st.integers(0, 30))
    def restart_at(self, gap):
        self.start = self.end = self.end + gap
        self.log.truncate_fully_and_start_at(self.end)
        self.batches, self.epochs = [], {}

    @rule(clean=st.booleans())
    def reopen(self, clean):
        if clean:
            self.log.close()
        point = self.log.durability.recovery_point
        self.log = self.open(clean_shutdown=clean, log_start_offset=self.start, recovery_point=point)

    @rule(data=st.data())
    def read_from_anywhere(self, data):
        if self.start == self.end:
            return
        offset = data.draw(st.integers(self.start, self.end - 1))
        size_max = data.draw(st.integers(1, 2000))
        part = self.log.read(offset, size_max=size_max, offset_max=self.end)
        read = part.ranges[0].read()
        header = parse_header(read)
        assert header.base_offset <= offset <= header.last_offset
        assert len(read) == part.size <= max(size_max, header.size)

    @rule(wanted=st.integers(0, 510))
    def find_timestamp(self, wanted):
        expected = min(
            (
                base + index
                for base, values, stamp in self.batches
                for index in range(len(values))
                if stamp + index >= wanted and base + index >= self.start
            ),
            default=None,
        )
        found = offset_for_timestamp(self.log, wanted, self.end)
        assert (found and found.offset) == expected

    @invariant()
    def reads_back(self):
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        expected = [
            (base + index, value)
            for base, values, _ in self.batches
            for index, value in enumerate(values)
            if base + len(values) > self.start
        ]
        found = [(record.offset, record.value.decode()) for record in records_of(read_bytes(self.log))]
        assert found == expected

    @invariant()
    def epochs_agree(self):
        assert self.log.durability.recovery_point <= self.end
        for epoch, start in self.log.leader_epochs.entries:
            assert max(self.epochs.get(epoch, start), self.start) == start
        for _, header in iter_headers(read_bytes(self.log)):
            if header.base_offset >= self.start:
                assert self.log.leader_epochs.epoch_of(header.base_offset) == header.partition_leader_epoch


LogMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
TestLogAgainstAModel = LogMachine.TestCase
