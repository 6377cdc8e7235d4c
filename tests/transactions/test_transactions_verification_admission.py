"""Transactional writes wait until their partition is verified (KIP-890)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import OsDisk
from kreplica.storage import Log, LogConfig, Origin
from kreplica.transactions import admission
from kreplica.transactions.admission import Admission, Producer
from kreplica.transactions.verification import Answered, Question
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import parse_header
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = Producer("tx", 7, 0)


class Gate:
    """An admission with a scripted coordinator, in front of two logs."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[tuple[Question, Answered]] = []
        self.is_enabled = True
        self.admission = Admission(self, lambda: self.is_enabled)
        self.partitions: dict[TopicPartition, Any] = {
            key: SimpleNamespace(topic_partition=key, log=self._log(directory, key)) for key in (KEY, OTHER)
        }
        self.told: list[tuple[int, ErrorCode]] = []

    @staticmethod
    def _log(directory: Path, key: TopicPartition) -> Log:
        return Log.open(str(directory / str(key)), key, LogConfig(), OsDisk(), lambda: 5000)

    def ask(self, question: Question, answered: Answered) -> None:
        self.asked.append((question, answered))

    def write(
        self, sequence: int, key: TopicPartition = KEY, producer: Producer = PRODUCER, *, adds: bool = False
    ) -> None:
        """Append a batch once it is admitted, and record the result."""
        partition = self.partitions[key]

        def admitted(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                code = self._append(partition.log, sequence, producer)
            self.told.append((sequence, code))

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
            log.append_as_leader(records, 0, now_ms=1)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def answer(self, code: ErrorCode = ErrorCode.NONE, number: int = 0) -> None:
        question, answered = self.asked.pop(number)
        answered(dict.fromkeys(question.keys, code))

    def end(self, key: TopicPartition = KEY, *, epoch: int = 0, grows: bool = False) -> None:
        log = self.partitions[key].log
        marker = bytearray(build_end_marker(EndMarker(True, 0), 7, epoch, 1))
        log.append_as_leader(marker, 0, now_ms=1, origin=Origin.COORDINATOR)
        log.producers.verifications.marker_written(7, epoch, epoch_grows=grows)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


NONE = ErrorCode.NONE


def test_one_question_for_those_behind_each_other(gate: Gate) -> None:
    """Batches sent during a verification wait for it and keep their order."""
    for sequence in range(3):
        gate.write(sequence)
    assert gate.told == []
    assert [question for question, _ in gate.asked] == [Question("tx", 7, 0, (KEY,), False)]
    gate.answer()
    assert gate.told == [(0, NONE), (1, NONE), (2, NONE)]
    gate.write(3)
    assert (gate.told[-1], gate.asked) == ((3, NONE), []), "while the transaction is open nobody asks"


def test_a_refusal_is_that_of_all_who_waited(gate: Gate) -> None:
    """All waiting batches are refused; the next one starts a new verification."""
    gate.write(0)
    gate.write(1)
    gate.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert gate.told == [(0, ErrorCode.TRANSACTION_ABORTABLE), (1, ErrorCode.TRANSACTION_ABORTABLE)]
    assert len(gate.partitions[KEY].log.producers.verifications) == 0
    gate.write(2)
    assert len(gate.asked) == 1


def test_partitions_and_producers_do_not_wait_for_each_other(gate: Gate) -> None:
    """Each partition, producer and epoch has its own queue."""
    gate.write(0)
    gate.write(1, OTHER)
    gate.write(2, KEY, Producer("other", 8, 0))
    gate.write(3, KEY, Producer("tx", 7, 1))
    assert len(gate.asked) == 4
    gate.answer(number=1)
    assert gate.told == [(1, NONE)]


def test_several_partitions_are_one_question(gate: Gate) -> None:
    """A request to many partitions causes one question; open transactions proceed immediately."""
    gate.write(0, OTHER)
    gate.answer()
    told: list[tuple[TopicPartition, ErrorCode]] = []
    wanted = [(gate.partitions[key], lambda code, key=key: told.append((key, code))) for key in (KEY, OTHER)]
    gate.admission.admit(PRODUCER, wanted, adds=True)
    assert told == [(OTHER, NONE)]
    ((question, _),) = gate.asked
    assert (question.keys, question.adds) == ((KEY,), True)


def test_a_marker_that_comes_before_the_answer_closes_the_door(gate: Gate) -> None:
    """A batch is refused if the transaction ended after the verification."""
    gate.write(0)
    gate.end()
    gate.answer()
    assert gate.told == [(0, ErrorCode.INVALID_TXN_STATE)]


def test_the_marker_of_the_last_transaction_does_not(gate: Gate) -> None:
    """With growing epochs a batch may arrive before the marker of the previous transaction."""
    gate.write(0, adds=True)
    gate.answer()
    following = Producer("tx", 7, 1)
    gate.write(0, producer=following, adds=True)
    gate.end(epoch=1, grows=True)
    gate.answer()
    assert gate.told == [(0, NONE), (0, NONE)]
    assert gate.partitions[KEY].log.producers.is_in_transaction(7, 1)


def test_turned_off_nobody_asks(gate: Gate) -> None:
    """With the setting off only partitions that have to be added are verified."""
    gate.is_enabled = False
    gate.write(5)
    assert (gate.told, gate.asked) == ([(5, NONE)], [])
    gate.write(0, OTHER, adds=True)
    assert len(gate.asked) == 1


def test_turned_off_meanwhile_the_order_stays(gate: Gate) -> None:
    """Waiting batches are not overtaken after the setting was turned off."""
    gate.write(0)
    gate.is_enabled = False
    gate.write(1)
    assert gate.told == []
    gate.answer()
    assert gate.told == [(0, NONE), (1, NONE)]


def test_the_line_is_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit writes get a retriable error, until responses make room."""
    monkeypatch.setattr(admission, "WAITING_MAX", 2)
    for sequence in range(3):
        gate.write(sequence)
    assert gate.told == [(2, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    gate.answer()
    gate.end()
    gate.write(2)
    assert len(gate.asked) == 1


def test_one_that_fails_does_not_take_the_others_with_it(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing callback is logged and does not affect the ones behind it."""
    partition = gate.partitions[KEY]
    logged: list[str] = []
    noting = SimpleNamespace(failure=lambda text, **_: logged.append(text))
    monkeypatch.setattr(admission, "log", noting)

    def fails(code: ErrorCode) -> None:
        raise ZeroDivisionError

    gate.admission.admit(PRODUCER, [(partition, fails)], adds=False)
    gate.write(0)
    gate.answer()
    assert gate.told == [(0, NONE)]
    assert len(logged) == 1
