"""Transactional writes wait until their partition is verified (KIP-890)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage import Log, LogConfig, Origin
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.appending import append_as_leader
from kreplica.transactions import admission
from kreplica.transactions.admission import Admission, Producer
from kreplica.transactions.verification import OnVerified, VerificationRequest
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import parse_header
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = Producer("tx", 7, 0)


class Gate:
    """An admission with a scripted coordinator and two logs."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[tuple[VerificationRequest, OnVerified]] = []
        self.is_enabled = True
        self.admission = Admission(self, lambda: self.is_enabled)
        self.partitions: dict[TopicPartition, Any] = {
            key: SimpleNamespace(topic_partition=key, log=self._log(directory, key)) for key in (KEY, OTHER)
        }
        self.admitted_batches: list[tuple[int, ErrorCode]] = []

    @staticmethod
    def _log(directory: Path, key: TopicPartition) -> Log:
        return LogToOpen(str(directory / str(key)), key, LogConfig(), OsDisk(), lambda: 5000).open()[0]

    def verify(self, question: VerificationRequest, answered: OnVerified) -> None:
        self.asked.append((question, answered))

    def write(
        self, sequence: int, key: TopicPartition = KEY, producer: Producer = PRODUCER, *, adds: bool = False
    ) -> None:
        """Append a batch once it is admitted, and record the result."""
        partition = self.partitions[key]

        def admitted(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                code = self._append(partition.log, sequence, producer)
            self.admitted_batches.append((sequence, code))

        self.admission.admit(producer, [(partition, admitted)], adds=adds)

    def _append(self, log: Log, sequence: int, producer: Producer) -> ErrorCode:
        records = bytearray(
            build_batch(
                [Record(NEXT_OFFSET, 1, None, b"v")],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        try:
            log.producers.check_transaction(parse_header(records))
            append_as_leader(log, records, 0, now_ms=1)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def answer(self, code: ErrorCode = ErrorCode.NONE, number: int = 0) -> None:
        question, answered = self.asked.pop(number)
        answered(dict.fromkeys(question.keys, code))

    def end(self, key: TopicPartition = KEY, *, epoch: int = 0, grows: bool = False) -> None:
        log = self.partitions[key].log
        marker = bytearray(build_end_marker(EndMarker(True, 0), 7, epoch, 1))
        append_as_leader(log, marker, 0, now_ms=1, origin=Origin.COORDINATOR)
        log.producers.verifications.marker_written(7, epoch, bumps_epoch=grows)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


NONE = ErrorCode.NONE


def test_batches_share_a_verification(gate: Gate) -> None:
    """Batches sent during a verification wait for it and keep their order."""
    for sequence in range(3):
        gate.write(sequence)
    assert gate.admitted_batches == []
    assert [question for question, _ in gate.asked] == [VerificationRequest("tx", 7, 0, (KEY,), False)]
    gate.answer()
    assert gate.admitted_batches == [(0, NONE), (1, NONE), (2, NONE)]
    gate.write(3)
    assert (gate.admitted_batches[-1], gate.asked) == ((3, NONE), []), "an open transaction needs no verification"


def test_refusal_applies_to_all_waiting_batches(gate: Gate) -> None:
    """All waiting batches are rejected; the next one starts a new verification."""
    gate.write(0)
    gate.write(1)
    gate.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert gate.admitted_batches == [(0, ErrorCode.TRANSACTION_ABORTABLE), (1, ErrorCode.TRANSACTION_ABORTABLE)]
    assert len(gate.partitions[KEY].log.producers.verifications) == 0
    gate.write(2)
    assert len(gate.asked) == 1


def test_partitions_and_producers_are_independent(gate: Gate) -> None:
    """Each partition, producer and epoch has its own queue."""
    gate.write(0)
    gate.write(1, OTHER)
    gate.write(2, KEY, Producer("other", 8, 0))
    gate.write(3, KEY, Producer("tx", 7, 1))
    assert len(gate.asked) == 4
    gate.answer(number=1)
    assert gate.admitted_batches == [(1, NONE)]


def test_several_partitions_share_one_request(gate: Gate) -> None:
    """Partitions with open transactions proceed immediately."""
    gate.write(0, OTHER)
    gate.answer()
    admitted: list[tuple[TopicPartition, ErrorCode]] = []
    wanted = [(gate.partitions[key], lambda code, key=key: admitted.append((key, code))) for key in (KEY, OTHER)]
    gate.admission.admit(PRODUCER, wanted, adds=True)
    assert admitted == [(OTHER, NONE)]
    ((question, _),) = gate.asked
    assert (question.keys, question.adds) == ((KEY,), True)


def test_marker_before_the_response_refuses_the_batch(gate: Gate) -> None:
    """The transaction ended after it was verified."""
    gate.write(0)
    gate.end()
    gate.answer()
    assert gate.admitted_batches == [(0, ErrorCode.INVALID_TXN_STATE)]


def test_marker_of_the_previous_transaction_is_harmless(gate: Gate) -> None:
    """If epochs are bumped, a batch may arrive before the marker of the previous transaction."""
    gate.write(0, adds=True)
    gate.answer()
    following = Producer("tx", 7, 1)
    gate.write(0, producer=following, adds=True)
    gate.end(epoch=1, grows=True)
    gate.answer()
    assert gate.admitted_batches == [(0, NONE), (0, NONE)]
    assert gate.partitions[KEY].log.producers.is_in_transaction(7, 1)


def test_verification_turned_off(gate: Gate) -> None:
    """Only partitions that must be added are verified."""
    gate.is_enabled = False
    gate.write(5)
    assert (gate.admitted_batches, gate.asked) == ([(5, NONE)], [])
    gate.write(0, OTHER, adds=True)
    assert len(gate.asked) == 1


def test_verification_turned_off_keeps_the_order(gate: Gate) -> None:
    """Waiting batches are not overtaken after the setting has been turned off."""
    gate.write(0)
    gate.is_enabled = False
    gate.write(1)
    assert gate.admitted_batches == []
    gate.answer()
    assert gate.admitted_batches == [(0, NONE), (1, NONE)]


def test_queue_is_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, writes get a retriable error until responses have arrived."""
    monkeypatch.setattr(admission, "WAITING_MAX", 2)
    for sequence in range(3):
        gate.write(sequence)
    assert gate.admitted_batches == [(2, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    gate.answer()
    gate.end()
    gate.write(2)
    assert len(gate.asked) == 1


def test_failing_callback_does_not_affect_others(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing callback is logged and does not affect later ones."""
    partition = gate.partitions[KEY]
    logged: list[str] = []
    noting = SimpleNamespace(failure=lambda text, **_: logged.append(text))
    monkeypatch.setattr(admission, "log", noting)

    def fails(code: ErrorCode) -> None:
        raise ZeroDivisionError

    gate.admission.admit(PRODUCER, [(partition, fails)], adds=False)
    gate.write(0)
    gate.answer()
    assert gate.admitted_batches == [(0, NONE)]
    assert len(logged) == 1
