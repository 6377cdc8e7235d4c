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


class AdmissionScene:
    """Admission of writes to two logs, with a scripted coordinator."""

    def __init__(self, directory: Path) -> None:
        self.pending: list[tuple[VerificationRequest, OnVerified]] = []
        self.is_enabled = True
        self.admission = Admission(self, lambda: self.is_enabled)
        self.partitions: dict[TopicPartition, Any] = {
            key: SimpleNamespace(topic_partition=key, log=self._log(directory, key)) for key in (KEY, OTHER)
        }
        self.admitted_batches: list[tuple[int, ErrorCode]] = []

    @staticmethod
    def _log(directory: Path, key: TopicPartition) -> Log:
        return LogToOpen(str(directory / str(key)), key, LogConfig(), OsDisk(), lambda: 5000).open()[0]

    def verify(self, request: VerificationRequest, on_verified: OnVerified) -> None:
        self.pending.append((request, on_verified))

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
        request, on_verified = self.pending.pop(number)
        on_verified(dict.fromkeys(request.keys, code))

    def end(self, key: TopicPartition = KEY, *, epoch: int = 0, grows: bool = False) -> None:
        log = self.partitions[key].log
        marker = bytearray(build_end_marker(EndMarker(True, 0), 7, epoch, 1))
        append_as_leader(log, marker, 0, now_ms=1, origin=Origin.COORDINATOR)
        log.producers.verifications.marker_written(7, epoch, bumps_epoch=grows)


@pytest.fixture
def scene(tmp_path: Path) -> AdmissionScene:
    return AdmissionScene(tmp_path)


NONE = ErrorCode.NONE


def test_batches_share_a_verification(scene: AdmissionScene) -> None:
    """Batches sent during a verification wait for it and keep their order."""
    for sequence in range(3):
        scene.write(sequence)
    assert scene.admitted_batches == []
    assert [request for request, _ in scene.pending] == [VerificationRequest("tx", 7, 0, (KEY,), False)]
    scene.answer()
    assert scene.admitted_batches == [(0, NONE), (1, NONE), (2, NONE)]
    scene.write(3)
    assert (scene.admitted_batches[-1], scene.pending) == ((3, NONE), []), "an open transaction needs no verification"


def test_refusal_applies_to_all_waiting_batches(scene: AdmissionScene) -> None:
    """All waiting batches are refused; the next one starts a new verification."""
    scene.write(0)
    scene.write(1)
    scene.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert scene.admitted_batches == [(0, ErrorCode.TRANSACTION_ABORTABLE), (1, ErrorCode.TRANSACTION_ABORTABLE)]
    assert len(scene.partitions[KEY].log.producers.verifications) == 0
    scene.write(2)
    assert len(scene.pending) == 1


def test_partitions_and_producers_are_independent(scene: AdmissionScene) -> None:
    """Each partition, producer and epoch has its own queue."""
    scene.write(0)
    scene.write(1, OTHER)
    scene.write(2, KEY, Producer("other", 8, 0))
    scene.write(3, KEY, Producer("tx", 7, 1))
    assert len(scene.pending) == 4
    scene.answer(number=1)
    assert scene.admitted_batches == [(1, NONE)]


def test_several_partitions_share_one_request(scene: AdmissionScene) -> None:
    """Partitions to be verified share one request; those in an open transaction proceed immediately."""
    scene.write(0, OTHER)
    scene.answer()
    admitted: list[tuple[TopicPartition, ErrorCode]] = []
    writes = [(scene.partitions[key], lambda code, key=key: admitted.append((key, code))) for key in (KEY, OTHER)]
    scene.admission.admit(PRODUCER, writes, adds=True)
    assert admitted == [(OTHER, NONE)]
    ((request, _),) = scene.pending
    assert (request.keys, request.adds) == ((KEY,), True)


def test_marker_before_the_response_refuses_the_batch(scene: AdmissionScene) -> None:
    """A batch is refused if its transaction ends before the verification response arrives."""
    scene.write(0)
    scene.end()
    scene.answer()
    assert scene.admitted_batches == [(0, ErrorCode.INVALID_TXN_STATE)]


def test_marker_of_the_previous_transaction_is_harmless(scene: AdmissionScene) -> None:
    """With growing epochs a batch may arrive before the marker of the previous transaction."""
    scene.write(0, adds=True)
    scene.answer()
    following = Producer("tx", 7, 1)
    scene.write(0, producer=following, adds=True)
    scene.end(epoch=1, grows=True)
    scene.answer()
    assert scene.admitted_batches == [(0, NONE), (0, NONE)]
    assert scene.partitions[KEY].log.producers.is_in_transaction(7, 1)


def test_disabled_verification(scene: AdmissionScene) -> None:
    """If verification is disabled, only partitions that must be added are verified."""
    scene.is_enabled = False
    scene.write(5)
    assert (scene.admitted_batches, scene.pending) == ([(5, NONE)], [])
    scene.write(0, OTHER, adds=True)
    assert len(scene.pending) == 1


def test_disabled_verification_keeps_the_order(scene: AdmissionScene) -> None:
    """When verification is disabled, batches that already wait are not overtaken."""
    scene.write(0)
    scene.is_enabled = False
    scene.write(1)
    assert scene.admitted_batches == []
    scene.answer()
    assert scene.admitted_batches == [(0, NONE), (1, NONE)]


def test_queue_is_bounded(scene: AdmissionScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, writes get a retriable error until verifications complete."""
    monkeypatch.setattr(admission, "WAITING_MAX", 2)
    for sequence in range(3):
        scene.write(sequence)
    assert scene.admitted_batches == [(2, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    scene.answer()
    scene.end()
    scene.write(2)
    assert len(scene.pending) == 1


def test_failing_callback_does_not_affect_others(scene: AdmissionScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing callback is logged and does not affect the following ones."""
    partition = scene.partitions[KEY]
    logged: list[str] = []
    recording_log = SimpleNamespace(failure=lambda text, **_: logged.append(text))
    monkeypatch.setattr(admission, "log", recording_log)

    def raise_error(code: ErrorCode) -> None:
        raise ZeroDivisionError

    scene.admission.admit(PRODUCER, [(partition, raise_error)], adds=False)
    scene.write(0)
    scene.answer()
    assert scene.admitted_batches == [(0, NONE)]
    assert len(logged) == 1
