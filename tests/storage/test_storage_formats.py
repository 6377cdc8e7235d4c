"""Written files are read by other readers: kafka-python's record reader, and parsers of the specified formats."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

from crc32c import crc32c
from kafka.record import MemoryRecords
from storage_world import SMALL, batch, fill, idempotent, marker, open_log, read_bytes, records_of

from kreplica.storage import Origin
from kreplica.storage.log.appending import append_as_leader
from kreplica.wire.compression import Codec


def read_with_kafka_python(path):
    """Return (offset, timestamp, key, value) of every record of a .log file."""
    reader = MemoryRecords(path.read_bytes())
    while (one := reader.next_batch()) is not None:
        assert one.validate_crc()
        for record in one:
            yield record.offset, record.timestamp, record.key, record.value


def read_batches(data):
    """Return (position, base offset, last offset, max timestamp) from the 61-byte headers, using only ``struct``."""
    position = 0
    while position < len(data):
        base, length, _, magic, crc, _, last_delta, _, max_timestamp = struct.unpack_from(">qiibIhiqq", data, position)
        assert magic == 2
        assert crc32c(data[position + 21 : position + 12 + length]) == crc
        yield position, base, base + last_delta, max_timestamp
        position += 12 + length


def written(tmp_path):
    log = open_log(tmp_path / "t-0", replace(SMALL, index_interval_bytes=100))
    for number, codec in enumerate(list(Codec) * 6):
        stamp = 1000 + (number * 37) % 100
        append_as_leader(log, batch((f"k{number}", f"v{number}" * 5), codec=codec, timestamp_ms=stamp), 2, now_ms=1)
    for sequence in range(3):
        append_as_leader(log, idempotent(sequence, producer_id=77, epoch=3), 2, now_ms=1)
    append_as_leader(log, idempotent(0, 2, producer_id=9, transactional=True), 4, now_ms=1)
    append_as_leader(log, marker(9, committed=False, coordinator_epoch=6), 4, now_ms=1, origin=Origin.COORDINATOR)
    fill(log, 1, epoch=4)
    log.close()
    return log, tmp_path / "t-0"


def test_kafka_python_reads_segments(tmp_path):
    _, path = written(tmp_path)
    theirs = [record for file in sorted(path.glob("*.log")) for record in read_with_kafka_python(file)]
    again = open_log(path, clean_shutdown=True)
    ours = [(r.offset, r.timestamp_ms, r.key, r.value) for r in records_of(read_bytes(again))]
    assert theirs == ours
    assert len(theirs) == 37


def test_offset_indexes_follow_their_format(tmp_path):
    """Each 8-byte entry contains the relative last offset of a batch and the batch's position; both increase."""
    _, path = written(tmp_path)
    total = 0
    for file in sorted(path.glob("*.log")):
        data, base = file.read_bytes(), int(file.stem)
        last_at = {position: last for position, _, last, _ in read_batches(data)}
        entries = list(struct.iter_unpack(">ii", file.with_suffix(".index").read_bytes()))
        assert entries == sorted(set(entries))
        for relative, position in entries:
            assert last_at[position] == base + relative
        total += len(entries)
    assert total > 15


def test_time_indexes_follow_their_format(tmp_path):
    """Each 12-byte entry contains a timestamp and the offset up to which no record is later; the last timestamp is the
    highest."""
    _, path = written(tmp_path)
    for file in sorted(path.glob("*.log")):
        base = int(file.stem)
        batches = list(read_batches(file.read_bytes()))
        entries = list(struct.iter_unpack(">qi", file.with_suffix(".timeindex").read_bytes()))
        assert entries
        assert entries[-1][0] == max(stamp for *_, stamp in batches)
        assert [stamp for stamp, _ in entries] == sorted({stamp for stamp, _ in entries})
        for stamp, relative in entries:
            assert max(each for _, _, last, each in batches if last <= base + relative) == stamp
            assert stamp in [each for _, first, last, each in batches if first <= base + relative <= last]


def test_producer_snapshots_follow_their_format(tmp_path):
    """The file has version 1, a CRC of the rest, and 48 bytes per batch; Kafka uses the last row of each producer."""
    log, path = written(tmp_path)
    data = (path / f"{log.log_end_offset:020d}.snapshot").read_bytes()
    version, crc, count = struct.unpack_from(">hIi", data)
    rows = list(struct.iter_unpack(">qhiqiqiq", data[10:]))
    assert (version, crc, count) == (1, crc32c(data[6:]), len(rows))
    assert [row[0] for row in rows] == [9, 77, 77, 77]
    last = {row[0]: row for row in rows}
    assert list(last.values()) == [(9, 0, 1, 34, 1, 1000, 6, -1), (77, 3, 2, 32, 0, 1000, -1, -1)]


def test_aborted_transactions_follow_their_format(tmp_path):
    """Each transaction has 34 bytes: version 0, producer, first and last offset, last stable offset."""
    _, path = written(tmp_path)
    data = b"".join(file.read_bytes() for file in sorted(path.glob("*.txnindex")))
    assert list(struct.iter_unpack(">hqqqq", data)) == [(0, 9, 33, 35, 36)]


def test_leader_epochs_follow_their_format(tmp_path):
    """The file has a version, the number of rows, and an epoch with its first offset in each row."""
    _, path = written(tmp_path)
    assert (path / "leader-epoch-checkpoint").read_text() == "0\n2\n2 0\n4 33\n"


def test_clean_shutdown_marker_follows_its_format(tmp_path):
    """The file is JSON, from which Kafka 3.7 and later reads the broker epoch."""
    from kreplica.runtime.os_disk import OsDisk
    from kreplica.storage.formats.checkpoints import write_clean_shutdown

    write_clean_shutdown(OsDisk(), str(tmp_path / "m"), 12)
    assert json.loads((tmp_path / "m").read_text()) == {"version": 0, "brokerEpoch": 12}
