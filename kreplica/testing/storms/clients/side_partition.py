"""One partition of a side topic in one of its lives: its producer, its consumer, and what they were told.

A topic that is deleted and made again has another id.  A partition that is removed and added again begins above the
leader epoch that was noted of it (docs/decisions/0007).  What was written in one life must never be read in another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from twisted.internet.defer import Deferred

from kreplica.model import NO_EPOCH, TopicAssignment, TopicPartition
from kreplica.testing.anomalies import Expectations, report
from kreplica.testing.anomalies.history import Outcome
from kreplica.testing.clients.idempotent_producer import IdempotentProducer, Load
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.testing.cluster.committed_log import CommittedLog
from kreplica.testing.histories.record_history import History, check_nothing_lost, number_of
from kreplica.testing.storms.clients.side_clients import SideClient, SideConsumer
from kreplica.wire.records import Record

if TYPE_CHECKING:
    from kreplica.testing.storms.replicated_run import ReplicatedRun

INTERVAL_S = 0.7
RECORDS_MAX = 3
VALUE_SIZE_MAX = 300
LATE = "an attempt that came late"


class Life(NamedTuple):
    """What tells a partition from others of its topic's name and its number.

    :param above: the last leader epoch of the one that was removed before it; -1 where there was none.
    """

    key: TopicPartition
    topic_id: UUID
    above: int


def lives_of(assignment: TopicAssignment) -> list[Life]:
    """The partitions of a topic as it is now."""
    return [
        Life(
            TopicPartition(assignment.topic, number),
            assignment.topic_id,
            assignment.removed[number].leader_epoch if number in assignment.removed else NO_EPOCH,
        )
        for number in sorted(assignment.partitions)
    ]


class SideHistory(History):
    """What the clients of one life were told.  Values are ``LABEL:PARTITION/NUMBER``, so each says whose it is.

    :param lives: whether the partition is still there: what is acknowledged later was written to another.
    :param is_late: whether a value of another life may be read here: when no answer came, an attempt to write it may
        arrive at any time, and finds what bears the name by then.
    """

    def __init__(
        self,
        label: int,
        partition: int,
        clock: Callable[[], float],
        lives: Callable[[], bool],
        is_late: Callable[[bytes], bool],
    ) -> None:
        super().__init__(partition + 1, clock)
        self.of_value: dict[bytes, int] = {}
        self._prefix = b"%d:" % label
        self._lives = lives
        self._is_late = is_late

    def is_own(self, value: bytes) -> bool:
        return value.startswith(self._prefix)

    def next_value(self, partition: int, size: int) -> bytes:
        return self._prefix + super().next_value(partition, size)

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        number = super().sending(producer, partition, values)
        self.of_value.update(dict.fromkeys(values, number))
        return number

    def acknowledged(
        self, partition: int, base_offset: int, values: Sequence[bytes], number: int | None = None
    ) -> None:
        if self._lives():
            super().acknowledged(partition, base_offset, values, number)

    def read(self, partition: int, records: Sequence[Record], consumer: str = "consumer") -> None:
        values = [record.value or b"" for record in records]
        for value in values:
            if not self.is_own(value) and value not in self.of_value and self._is_late(value):
                self.sending(LATE, partition, [value])
        super().read(partition, records, consumer)


class SidePartition:
    """Its clients live as long as it does.

    :param label: which life of all there are.
    :param lives: whether the partition is still there.
    :param is_late: as ``SideHistory`` has it.
    :ivar trimmed: whether its settings ever had old records deleted.
    :ivar committed: what the run's invariants know of it.
    """

    def __init__(
        self,
        run: ReplicatedRun,
        life: Life,
        label: int,
        lives: Callable[[Life], bool],
        is_late: Callable[[bytes], bool],
    ) -> None:
        self.life = life
        self.trimmed = False
        self.committed = CommittedLog()
        self._run = run
        self._host = run.cluster.simulation.host(life.key.topic)
        self._lives = lambda: lives(life)
        self._partition = life.key.partition
        self._producers: list[IdempotentProducer] = []
        self._consumer: SideConsumer | None = None
        simulation = run.cluster.simulation
        self.history = SideHistory(label, self._partition, lambda: simulation.now_s, self._lives, is_late)

    def __str__(self) -> str:
        above = f" above epoch {self.life.above}" if self.life.above != NO_EPOCH else ""
        return f"{self.life.key} of {self.life.topic_id}{above}"

    @property
    def committed_end(self) -> int:
        """The first offset beyond what any client knows to be committed."""
        return max(self.history.ends(self._partition))

    def may_come_late(self, value: bytes) -> bool:
        """Whether an attempt to write one of its values may still be on its way when the partition is gone."""
        number = self.history.of_value.get(value)
        if number is None:
            return False
        unanswered = self.history.told.sends[number].outcome is not Outcome.OK
        return unanswered or any(number in producer.resent for producer in self._producers)

    def begin(self) -> None:
        """Let clients of it start."""
        key, runtime = self.life.key, self._host.runtime
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
        self._consumer = SideConsumer(
            self._client("consumer"), self.life.topic_id, *key, self.history, lambda: self.trimmed
        )
        self._consumer.position = position
        producer.start()
        self._consumer.start()

    def _client(self, kind: str) -> SideClient:
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self._run.cluster.brokers]
        name = f"{self.life.key}-{kind}"
        client = SideClient(self._host.reactor, brokers, *self.life.key, client_id=name)
        client.lives = self._lives
        return client

    def abandon(self) -> None:
        """It is gone: stop its clients."""
        assert self._consumer is not None
        for ending in (self._producers[-1].abandon(), self._consumer.abandon()):
            Deferred.fromCoroutine(ending).addErrback(self._run.failed)

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Until all that was sent is acknowledged, and all that was acknowledged is read."""
        cluster, consumer = self._run.cluster, self._consumer
        assert consumer is not None
        cluster.run_until(self._producers[-1].finish(), timeout_s=300.0)
        end = self.history.ends(self._partition)[0]
        cluster.run_until(lambda: consumer.position >= end, timeout_s=120.0)
        cluster.run_until(consumer.finish(), timeout_s=120.0)

    def check(self, *, caught_up: bool) -> None:
        """Whether clients were told nothing that cannot be.

        :param caught_up: whether the consumer had the time to read everything.
        :raise AssertionError: they were.
        """
        assert not self.history.contradictions, f"{self}: {'; '.join(self.history.contradictions)}"
        kept_from = self.committed.start_offset if self.trimmed else 0
        found = report(self.history.told, Expectations(caught_up=caught_up, kept_from=kept_from))
        assert not found.errors, "\n".join([f"{self}:", *found.lines()])
        resets = [producer.resets for producer in self._producers]
        assert not any(resets), f"{self}: producers were told that their records are gone: {resets}"

    def check_log(self) -> None:
        """Whether its log holds what clients were told, and every replica does.

        :raise AssertionError: it does not.
        """
        cluster, key = self._run.cluster, self.life.key
        client = cluster.leader_client(*key, name="reader")
        records = cluster.run_until(client.read_all(*key), timeout_s=120.0)
        end = cluster.run_until(client.find_offset(*key, -1))
        cluster.run_until(client.close())
        start = records[0].offset if records else end
        assert start <= (self.committed.start_offset if self.trimmed else 0), f"{self} begins at {start}"
        assert [record.offset for record in records] == list(range(start, end)), f"{self} has holes"
        for told, what in ((self.history.acked, "acknowledged"), (self.history.seen, "read")):
            left = {offset: value for offset, value in told[key.partition].items() if offset >= start}
            check_nothing_lost(records, left, f"{what} in {self}")
        self._check_order([record.value or b"" for record in records if self.history.is_own(record.value or b"")])
        cluster.wait_replicas_end(key, end)

    def _check_order(self, values: list[bytes]) -> None:
        if len(self._producers) > 1:
            return  # of what one began to write another knows nothing
        numbers = [number_of(value.partition(b":")[2], self._partition) for value in values]
        sent = list(range(self.history.sent[self._partition]))
        expected = sent[len(sent) - len(numbers) :] if self.trimmed else sent
        assert numbers == expected, f"{self}: {len(sent)} records were sent, these numbers are there: {numbers}"
