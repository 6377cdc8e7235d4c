"""Appends to a log: a leader validates batches and assigns their offsets, a follower copies its leader's batches."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.errors import KafkaError
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.log import Log
from kreplica.storage.log.results import AppendResult, AppendRun, Outcome, only_result
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.segments.batch_validation import (
    Checked,
    check_as_follower,
    check_as_leader,
    read_markers,
    split_runs,
)
from kreplica.wire import kernels
from kreplica.wire.batches import CONTROL_BIT, LENGTH_END, SEQUENCE_MASK, TRANSACTIONAL_BIT, BatchHeader, stamp_checked
from kreplica.wire.control_records import EndMarker

_ALWAYS_CHECKED = TRANSACTIONAL_BIT | CONTROL_BIT
_new_tuple = tuple.__new__


def append_as_leader(
    log: Log, records: Buffer, leader_epoch: int, *, now_ms: int, origin: Origin = Origin.CLIENT
) -> AppendResult:
    """Append one batch as ``append_all_as_leader`` does.

    :raise KafkaError: the batch is rejected and the log is unchanged; KAFKA_STORAGE_ERROR if the write failed.
    """
    return only_result(append_all_as_leader(log, (records,), leader_epoch, now_ms=now_ms, origin=origin))


def append_all_as_leader(
    log: Log, batches: Sequence[Buffer], leader_epoch: int, *, now_ms: int, origin: Origin = Origin.CLIENT
) -> list[Outcome]:
    """Validate batches, assign the next offsets, and write consecutive batches with one system call.

    :param batches: one batch in each buffer; offset, epoch and (LogAppendTime) timestamp are set in place, or in a
        copy if the memory is read-only.
    :return: result or error of each batch, in order. If a write fails, none of its batches is appended.
    """
    outcomes: list[Outcome] = []
    if origin is Origin.CLIENT and kernels.place_batches is not None and batches:
        outcomes += _append_plain(log, batches, leader_epoch, now_ms)
        if len(outcomes) == len(batches):
            return outcomes
        batches = batches[len(outcomes) :]
    pending: list[Checked] = []
    size = 0
    for records in batches:
        try:
            if not pending:
                log.check_writable()  # before the producer state is read, which may be stale after a truncation
            checked = check_as_leader(records, log.config, origin, now_ms)
            header = checked[1]
            batch_size = header.length + LENGTH_END
            if pending and (
                size + batch_size > log.config.segment_bytes or not _continues_previous(header, pending[-1][1])
            ):
                outcomes += _write_batches(log, pending, leader_epoch, now_ms)
                pending = []
                log.check_writable()
            if header.producer_id >= 0 and not pending:
                duplicate = _find_duplicate(log, header, checked[2], origin)
                if duplicate is not None:
                    outcomes.append(duplicate)
                    continue
        except KafkaError as error:
            if pending:
                outcomes += _write_batches(log, pending, leader_epoch, now_ms)
                pending = []
            log.producers.note_rejection(records, error, now_ms)
            outcomes.append(error)
            continue
        if pending:
            pending.append(checked)
            size += batch_size
        else:
            pending, size = [checked], batch_size
    if pending:
        outcomes += _write_batches(log, pending, leader_epoch, now_ms)
    return outcomes


def _append_plain(log: Log, batches: Sequence[Buffer], leader_epoch: int, now_ms: int) -> Sequence[Outcome]:
    """Append the first batches with a compiled kernel, if their records need not be read.

    :return: outcomes of the first batches, possibly none; the other batches must still be appended.
    """
    config = log.config
    if config.checks_contents:
        return ()
    headers: list[BatchHeader]
    results: list[AppendResult]
    try:
        log.check_writable()
        headers, results, size = kernels.place_batches(
            BatchHeader, AppendResult, batches, log.log_end_offset, leader_epoch, config.append_size_max,
            config.segment_bytes,
        )  # fmt: skip
        if not headers:
            return ()
        if headers[0].producer_id >= 0:
            duplicate = _find_duplicate(log, headers[0], None, Origin.CLIENT)
            if duplicate is not None:
                return (duplicate,)
    except KafkaError as error:
        log.producers.note_rejection(batches[0], error, now_ms)
        return (error,)
    count = len(headers)
    pieces = batches if count == len(batches) else batches[:count]
    try:
        log.write(_new_tuple(AppendRun, (pieces, size, headers, [None] * count)), now_ms)
    except KafkaError as error:
        return reject(log, pieces, error, now_ms)
    return results


def _continues_previous(header: BatchHeader, last: BatchHeader) -> bool:
    """True if a batch needs no check against its producer's state if it is written directly after ``last``.

    It either has no producer ID or continues the sequence of ``last``, which was checked already.
    """
    producer_id = header.producer_id
    return producer_id < 0 or (
        producer_id == last.producer_id
        and header.producer_epoch == last.producer_epoch
        and not (header.attributes | last.attributes) & _ALWAYS_CHECKED
        and header.base_sequence == (last.last_sequence + 1) & SEQUENCE_MASK
    )


def _write_batches(log: Log, batches: Sequence[Checked], leader_epoch: int, now_ms: int) -> Sequence[Outcome]:
    """Assign offsets to valid batches and write them with one system call."""
    append_time_ms = now_ms if log.config.log_append_time else -1
    run, results = _assign_offsets(batches, log.log_end_offset, leader_epoch, append_time_ms)
    try:
        log.write(run, now_ms)
    except KafkaError as error:
        return reject(log, [data for data, _, _ in batches], error, now_ms)
    return results


def _assign_offsets(
    batches: Sequence[Checked], offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[AppendRun, list[AppendResult]]:
    """Assign consecutive offsets to batches, in place, and return them with the results to report after the write."""
    pieces, checked, markers = zip(*batches, strict=True)
    size = 0
    headers: list[BatchHeader] = []
    results: list[AppendResult] = []
    for data, header in zip(pieces, checked, strict=True):
        headers.append(stamp_checked(data, header, offset, leader_epoch))
        next_offset = offset + header.last_offset_delta + 1
        batch_size = header.length + LENGTH_END
        results.append(_new_tuple(AppendResult, (offset, next_offset - 1, append_time_ms, False, batch_size)))
        size += batch_size
        offset = next_offset
    return _new_tuple(AppendRun, (pieces, size, headers, markers)), results


def reject(log: Log, batches: Sequence[Buffer], error: KafkaError, now_ms: int) -> Sequence[Outcome]:
    """Return the error for each batch; until a batch is sent again, later ones of the same producer are rejected."""
    for records in batches:
        log.producers.note_rejection(records, error, now_ms)
    return [error] * len(batches)


def _find_duplicate(log: Log, header: BatchHeader, marker: EndMarker | None, origin: Origin) -> AppendResult | None:
    """Return the result of the original append if an idempotent producer sent the batch again.

    :raise KafkaError: the batch does not continue its producer's sequence.
    """
    duplicate = log.producers.check(header, marker, origin)
    if duplicate is None:
        return None
    append_time_ms = duplicate.timestamp_ms if log.config.log_append_time else -1
    return AppendResult(duplicate.first_offset, duplicate.last_offset, append_time_ms, True, 0)


def append_as_follower(
    log: Log, records: bytes | bytearray | memoryview, *, now_ms: int, leader_epoch: int | None = None
) -> AppendResult:
    """Append batches from the leader unchanged, up to the first one that is incomplete or invalid.

    If the disk becomes full, the batches that were already written stay in the log.

    :param leader_epoch: batches of later epochs are ignored.
    :return: the offsets; size 0 if there was no whole batch.
    :raise KafkaError: CORRUPT_MESSAGE (the first batch is invalid) or OFFSET_OUT_OF_RANGE (a batch starts below the
        log end offset), with the log unchanged; KAFKA_STORAGE_ERROR if the write failed.
    """
    data = memoryview(records)
    headers = check_as_follower(data, log.log_end_offset, leader_epoch, gaps_expected=log.config.compacted)
    base_offset = headers[0].base_offset if headers else log.log_end_offset
    markers = read_markers(data, headers)
    log.producers.note_replicated(headers)
    position = 0
    for first, last, size in split_runs(headers, log.config.segment_bytes):
        log.check_writable()
        piece = data[position : position + size]
        log.write(AppendRun((piece,), size, headers[first:last], markers[first:last]), now_ms)
        position += size
    return AppendResult(base_offset, log.log_end_offset - 1, -1, False, position)
