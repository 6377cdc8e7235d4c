"""One incarnation of a partition of a side topic: its producer, its consumer and their history.

A topic that is deleted and created again has another ID.  A partition that is removed and added again starts above the
last leader epoch of the removed one (docs/decisions/0007).  Records of one incarnation must never be read in another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred

from kreplica.model import NO_EPOCH, TopicAssignment, TopicPartition
from kreplica.testing.anomalies import Expectations, report
from kreplica.testing.anomalies.history import Outcome
from kreplica.testing.clients.idempotent_producer import IdempotentProducer, Load
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.testing.cluster.committed_log import CommittedLog
from kreplica.testing.histories.record_history import History, check_nothing_lost, number_of
from kreplica.testing.storms.clients.incarnation_clients import IncarnationClient, IncarnationConsumer
from kreplica.testing.storms.cluster_run import ClusterRun
from kreplica.wire.records import Record

INTERVAL_S = 0.7
RECORDS_MAX = 3
VALUE_SIZE_MAX = 300
LATE = "late request"
"""Producer name in the history for records that arrive in a later incarnation than the one they were sent to."""


class Incarnation(NamedTuple):
    """Identity of a partition among all partitions with the same topic name and number.

    :param removed_epoch: last leader epoch of the previously removed partition; -1 if there was none.
    """

    key: TopicPartition
    topic_id: UUID
    removed_epoch: int


def incarnations_of(assignment: TopicAssignment) -> list[Incarnation]:
    return [
        Incarnation(
            TopicPartition(assignment.topic, number),
            assignment.topic_id,
            assignment.removed[number].leader_epoch if number in assignment.removed else NO_EPOCH,
        )
        for number in sorted(assignment.partitions)
    ]


class SideHistory(History):
    """History of the clients of one incarnation.

    Values are ``LABEL:PARTITION/NUMBER``, with the label of the incarnation.

    :param exists: returns True while the incarnation exists; later acknowledgements belong to another incarnation.
    :param may_be_late: returns True if a value of another incarnation may be read here: a produce request without a
        response may arrive at any time, and is appended to the current incarnation.
    """

    def __init__(
        self,
        label: int,
        partition: int,
        clock: Callable[[], float],
        exists: Callable[[], bool],
        may_be_late: Callable[[bytes], bool],
    ) -> None:
        super().__init__(partition + 1, clock)
        self.send_numbers: dict[bytes, int] = {}
        self._prefix = b"%d:" % label
        self._exists = exists
        self._may_be_late = may_be_late

    def is_own(self, value: bytes) -> bool:
        return value.startswith(self._prefix)

    def next_value(self, partition: int, size: int) -> bytes:
        return self._prefix + super().next_value(partition, size)

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        number = super().sending(producer, partition, values)
        self.send_numbers.update(dict.fromkeys(values, number))
        return number

    def acknowledged(
        self, partition: int, base_offset: int, values: Sequence[bytes], number: int | None = None
    ) -> None:
        if self._exists():
            super().acknowledged(partition, base_offset, values, number)

    def read(self, partition: int, records: Sequence[Record], consumer: str = "consumer") -> None:
        values = [record.value or b"" for record in records]
        for value in values:
            if not self.is_own(value) and value not in self.send_numbers and self._may_be_late(value):
                self.sending(LATE, partition, [value])
        super().read(partition, records, consumer)


class SidePartition:
    """Clients of one incarnation; they stop when it is deleted.

    :param label: number of the incarnation.
    :param exists: returns True while the incarnation exists.
    :param may_be_late: see ``SideHistory``.
    :ivar trimmed: True if the topic ever had settings that delete old records.
    :ivar committed: committed records, filled by the run's invariants.
    """

    def __init__(
        self,
        run: ClusterRun,
        incarnation: Incarnation,
        label: int,
        exists: Callable[[Incarnation], bool],
        may_be_late: Callable[[bytes], bool],
    ) -> None:
        self.incarnation = incarnation
        self.trimmed = False
        self.committed = CommittedLog()
        self._run = run
        self._host = run.cluster.simulation.host(incarnation.key.topic)
        self._exists = lambda: exists(incarnation)
        self._partition = incarnation.key.partition
        self._producers: list[IdempotentProducer] = []
        self._consumer: IncarnationConsumer | None = None
        self._abandoned = False
        simulation = run.cluster.simulation
        self.history = SideHistory(label, self._partition, lambda: simulation.now_s, self._exists, may_be_late)

    def __str__(self) -> str:
        incarnation = self.incarnation
        above = f" above epoch {incarnation.removed_epoch}" if incarnation.removed_epoch != NO_EPOCH else ""
        return f"{incarnation.key} of {incarnation.topic_id}{above}"

    @property
    def committed_end(self) -> int:
        """End of the records that clients know to be committed."""
        return max(self.history.ends(self._partition))

    def may_be_late(self, value: bytes) -> bool:
        """Return True if a produce request with this value may arrive after the deletion of the partition."""
        number = self.history.send_numbers.get(value)
        if number is None:
            return False
        unanswered = self.history.observations.sends[number].outcome is not Outcome.OK
        return unanswered or any(number in producer.resent for producer in self._producers)

    def start(self) -> None:
        key, runtime = self.incarnation.key, self._host.runtime
        load = Load(
            key.topic,
            [key.partition],
            interval_s=INTERVAL_S,
            records_max=RECORDS_MAX,
            value_size_max=VALUE_SIZE_MAX,
        )
        producer = IdempotentProducer(runtime, self._client("producer"), load, self.history)
        self._producers.append(producer)
        position = self._consumer.position if self._consumer else 0
        self._consumer = IncarnationConsumer(
            self._client("consumer"), self.incarnation.topic_id, *key, self.history, lambda: self.trimmed
        )
        self._consumer.position = position
        producer.start()
        self._consumer.start()

    def _client(self, kind: str) -> IncarnationClient:
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self._run.cluster.brokers]
        name = f"{self.incarnation.key}-{kind}"
        client = IncarnationClient(self._host.reactor, brokers, *self.incarnation.key, client_id=name)
        client.exists = self._exists
        return client

    def abandon(self) -> None:
        """Stop the clients of a deleted partition."""
        assert self._consumer is not None
        self._abandoned = True
        for ending in (self._producers[-1].abandon(), self._consumer.abandon()):
            Deferred.fromCoroutine(ending).addErrback(self._run.record_failure)

    # --- end of the run ----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Run until all sent records are acknowledged and all acknowledged records are read.

        The partition may be deleted in the meantime, by a request whose response was lost.
        """
        cluster, consumer = self._run.cluster, self._consumer
        assert consumer is not None
        try:
            if not self._abandoned:
                cluster.run_until(self._producers[-1].finish(), timeout_s=300.0)
            end = self.history.ends(self._partition)[0]
            cluster.run_until(lambda: self._abandoned or consumer.position >= end, timeout_s=120.0)
            if not self._abandoned:
                cluster.run_until(consumer.finish(), timeout_s=120.0)
        except CancelledError:
            if not self._abandoned:
                raise

    def check(self, *, caught_up: bool) -> None:
        """Check the history of the clients.

        :param caught_up: True if the consumer has read all records.
        """
        assert not self.history.contradictions, f"{self}: {'; '.join(self.history.contradictions)}"
        kept_from = self.committed.start_offset if self.trimmed else 0
        anomalies = report(self.history.observations, Expectations(caught_up=caught_up, kept_from=kept_from))
        assert not anomalies.errors, "\n".join([f"{self}:", *anomalies.lines()])
        resets = [producer.resets for producer in self._producers]
        assert not any(resets), f"{self}: brokers had lost the state of producers: {resets}"

    def check_log(self) -> None:
        """Check the log against the history, and check that all replicas are complete."""
        cluster, key = self._run.cluster, self.incarnation.key
        client = cluster.leader_client(*key, name="reader")
        records = cluster.run_until(client.read_all(*key), timeout_s=120.0)
        end = cluster.run_until(client.find_offset(*key, -1))
        cluster.run_until(client.close())
        start = records[0].offset if records else end
        assert start <= (self.committed.start_offset if self.trimmed else 0), f"{self} starts at {start}"
        assert [record.offset for record in records] == list(range(start, end)), f"{self} has gaps"
        for offsets, verb in ((self.history.acked, "acknowledged"), (self.history.seen, "read")):
            retained = {offset: value for offset, value in offsets[key.partition].items() if offset >= start}
            check_nothing_lost(records, retained, f"{verb} in {self}")
        self._check_order([record.value or b"" for record in records if self.history.is_own(record.value or b"")])
        cluster.wait_log_end_offsets(key, end)

    def _check_order(self, values: list[bytes]) -> None:
        if len(self._producers) > 1:
            return  # a later producer numbers its records without those of an earlier one
        numbers = [number_of(value.partition(b":")[2], self._partition) for value in values]
        sent = list(range(self.history.sent[self._partition]))
        expected = sent[len(sent) - len(numbers) :] if self.trimmed else sent
        assert numbers == expected, f"{self}: {len(sent)} records were sent, the log has the numbers {numbers}"
