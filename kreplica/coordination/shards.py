"""The partitions of an internal topic that this broker leads, and the coordinator's state of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.coordination.hashing import partition_of
from kreplica.coordination.loading import Loading
from kreplica.coordination.state_log import AtEndOfTurn, StateLog, StateLogConfig
from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication.partition import Partition
from kreplica.replication.partitions import Partitions
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.wire.batches import BatchHeader

log = Logger()

RETRY_SECONDS = 5.0
"""A partition that could not be loaded is tried again after so long."""


class Shard(Protocol):
    """What a coordinator knows of the groups, or transactional ids, that one partition keeps."""

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """A record of the log, while it is loaded.

        :raise KreplicaError: it is malformed, or of a version that is not known: the partition cannot be loaded.
        """

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A marker has ended a producer's transaction: in the log that is loaded, or committed later.

        Of a transaction that wrote nothing here, or that has ended already, it says nothing.
        """

    def loaded(self) -> None:
        """Everything is replayed, and committed: from now on requests come, and timers may run."""

    def unload(self) -> None:
        """This broker leads no more: stop all timers, and answer whoever waits with NOT_COORDINATOR."""


S = TypeVar("S", bound=Shard)


@dataclass(slots=True)
class _Led(Generic[S]):
    """One partition that this broker leads.

    :ivar loading: until it is loaded, or could not be.
    """

    partition: Partition
    state_log: StateLog
    shard: S
    loading: Deferred[None] | None = None
    is_loaded: bool = False
    has_failed: bool = False


class Shards(Generic[S]):
    """Owned by a coordinator, made before any partition is opened; follows the roles that this broker is given.

    :param topic: the internal topic's name.
    :param make: a shard, empty, for a partition that begins to be led.
    :param count: how many partitions the topic has; None where this broker does not know of it yet.
    """

    def __init__(
        self,
        runtime: Runtime,
        partitions: Partitions,
        topic: str,
        make: Callable[[StateLog], S],
        count: Callable[[], int | None],
        at_end_of_turn: AtEndOfTurn,
        config: StateLogConfig,
    ) -> None:
        self._runtime = runtime
        self._make = make
        self._count = count
        self._at_end_of_turn = at_end_of_turn
        self._config = config
        self._led: dict[int, _Led[S]] = {}
        self.topic = topic
        partitions.observe(topic, self._role_changed)

    def __iter__(self) -> Iterator[S]:
        return iter(self.loaded())

    # --- finding -----------------------------------------------------------------------------------------------------

    def shard_of(self, name: str) -> S:
        """The shard that coordinates a group or a transactional id.

        :raise KafkaError: COORDINATOR_NOT_AVAILABLE, the topic is not known yet or its partition cannot be loaded;
            NOT_COORDINATOR, another broker leads it; COORDINATOR_LOAD_IN_PROGRESS.
        """
        led = self._led_of(name)
        if led.is_loaded:
            return led.shard
        if led.has_failed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} could not be loaded")
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def current_shard_of(self, name: str) -> S:
        """The same, where no other broker can have taken over without this one's knowledge.

        What is answered from it is what was committed last: no newer coordinator can have committed anything.

        :raise KafkaError: as ``shard_of``; NOT_COORDINATOR also while ZooKeeper is out of reach.
        """
        shard = self.shard_of(name)
        led = self._led_of(name).partition.led
        if led is None or not led.has_lease:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "another may coordinate: ZooKeeper is out of reach")
        return shard

    def _led_of(self, name: str) -> _Led[S]:
        count = self._count()
        if count is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} is not known here yet")
        led = self._led.get(partition_of(name, count))
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return led

    def loaded(self) -> list[S]:
        """The shards that are loaded, in the order of their partitions."""
        return [led.shard for _, led in sorted(self._led.items()) if led.is_loaded]

    @property
    def is_loading(self) -> bool:
        """Whether some partition that this broker leads is not loaded."""
        return any(not led.is_loaded for led in self._led.values())

    def marker_written(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """A transaction's end marker in a partition of the topic is committed now."""
        led = self._led.get(partition)
        if led is not None and led.is_loaded:
            led.shard.end_transaction(producer_id, committed)

    # --- roles -------------------------------------------------------------------------------------------------------

    def _role_changed(self, partition: Partition) -> None:
        """This broker leads, in a new epoch perhaps, or leads no more.

        Where it leads on without a break, what it knows is what the log holds: nothing is loaded anew.
        """
        number = partition.topic_partition.partition
        led = self._led.get(number)
        if led is not None and (led.state_log.is_lost or led.partition is not partition):
            self._unload(number, led)
            led = None
        if led is None and partition.is_leader:
            self._begin(number, partition)

    def _begin(self, number: int, partition: Partition) -> None:
        state_log = StateLog(self._runtime, partition, self._at_end_of_turn, self._config)
        led = self._led[number] = _Led(partition, state_log, self._make(state_log))
        led.loading = Deferred.fromCoroutine(self._load(led))
        led.loading.addErrback(_loading_ended)

    def _unload(self, number: int, led: _Led[S]) -> None:
        del self._led[number]
        if led.loading is not None:
            led.loading.cancel()
        led.shard.unload()
        led.state_log.close()

    async def _load(self, led: _Led[S]) -> None:
        partition = led.partition
        await pause(self._runtime.reactor, 0)  # the command that gave the role goes on first
        while True:
            try:
                count = await self._read_all(led)
                break
            except CancelledError:
                raise
            except Exception as error:
                log.failure("{partition} cannot be loaded: {error}", partition=repr(partition), error=str(error))
                led.has_failed = True
                await pause(self._runtime.reactor, RETRY_SECONDS)
                led.shard = self._make(led.state_log)
        log.debug("{partition} is loaded: {count} records", partition=repr(partition), count=count)
        led.loading = None
        led.has_failed = False
        led.is_loaded = True
        led.shard.loaded()

    async def _read_all(self, led: _Led[S]) -> int:
        """Read until everything that is in the log was replayed, and is committed.

        What an earlier leader wrote may be lost again until then, and nobody may have been told of it.
        """
        partition = led.partition
        loading = Loading(self._runtime, partition, led.shard.replay, led.shard.end_transaction)
        while True:
            await loading.read_to_end()
            if is_settled(partition, loading.offset) and loading.is_at_end:
                return loading.record_count
            await _Commitment(partition, loading.offset).reached


def is_settled(partition: Partition, offset: int) -> bool:
    """Whether what was replayed up to there stays, whoever leads next, so that requests may be answered from it."""
    return partition.is_committed(offset)


class _Commitment:
    """Stands in a partition's ``waiting`` until all below an offset is committed."""

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self._offset = offset
        self.reached: Deferred[None] = Deferred(lambda _: self._leave())
        partition.waiting[self] = None
        self.changed(())

    def changed(self, partitions: object) -> None:
        if self._partition.is_committed(self._offset):
            self._leave()
            if not self.reached.called:
                self.reached.callback(None)

    def _leave(self) -> None:
        self._partition.waiting.pop(self, None)


def _loading_ended(failure: Failure) -> None:
    """It was given up, this broker leads no more; or the coordinator's own code failed, which is told."""
    if failure.check(CancelledError) is None:
        log.failure("loading a coordinator's partition", failure)
