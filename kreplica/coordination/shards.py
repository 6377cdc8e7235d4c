"""Shards: coordinator state, one shard for each partition of an internal topic that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.coordination.hashing import partition_of
from kreplica.coordination.loading import Loading
from kreplica.coordination.state_log import AtEndOfIteration, StateLog, StateLogConfig
from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication.partition import Partition
from kreplica.replication.partitions import Partitions
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.wire.batches import BatchHeader

log = Logger()

RETRY_SECONDS = 5.0
"""Delay before the load of a partition is retried."""


class Shard(Protocol):
    """Coordinator state of one partition."""

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """Apply a record of the log during loading.

        :raise KreplicaError: the record is malformed or its version unknown; the partition cannot be loaded.
        """

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a transaction marker, during loading or when it is committed later.

        The transaction may have no records here, or may have ended already.
        """

    def loaded(self) -> None:
        """Start serving requests and start timers; called once everything is replayed and committed."""

    def unload(self) -> None:
        """Stop all timers and respond to pending requests with NOT_COORDINATOR; this broker is no longer leader."""


S = TypeVar("S", bound=Shard)


@dataclass(slots=True)
class _LedPartition(Generic[S]):
    """A partition that this broker leads.

    :ivar loading: the load in progress; None once the partition is loaded.
    """

    partition: Partition
    state_log: StateLog
    shard: S
    loading: Deferred[None] | None = None
    is_loaded: bool = False
    has_failed: bool = False


class Shards(Generic[S]):
    """All shards of one internal topic; owned by a coordinator, which creates it before any partition is opened.

    :param topic: name of the internal topic.
    :param make: creates an empty shard for a partition.
    :param count: returns the partition count of the topic; None while it is unknown.
    """

    def __init__(
        self,
        runtime: Runtime,
        partitions: Partitions,
        topic: str,
        make: Callable[[StateLog], S],
        count: Callable[[], int | None],
        at_end_of_iteration: AtEndOfIteration,
        config: StateLogConfig,
    ) -> None:
        self._runtime = runtime
        self._make = make
        self._count = count
        self._at_end_of_iteration = at_end_of_iteration
        self._config = config
        self._led_partitions: dict[int, _LedPartition[S]] = {}
        self.topic = topic
        partitions.observe(topic, self._role_changed)

    def __iter__(self) -> Iterator[S]:
        return iter(self.loaded_shards())

    # --- finding -----------------------------------------------------------------------------------------------------

    def shard_of(self, name: str) -> S:
        """Return the shard that coordinates a group or a transactional ID.

        :raise KafkaError: COORDINATOR_NOT_AVAILABLE if the topic is unknown or its partition cannot be loaded;
            NOT_COORDINATOR if another broker leads the partition; COORDINATOR_LOAD_IN_PROGRESS.
        """
        entry = self._led_partition_of(name)
        if entry.is_loaded:
            return entry.shard
        if entry.has_failed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {self.topic} could not be loaded")
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def current_shard_of(self, name: str) -> S:
        """Return the shard like ``shard_of``, but only while this broker holds the leader lease.

        During the lease, no newer coordinator can have committed anything.

        :raise KafkaError: the errors of ``shard_of``; NOT_COORDINATOR without a connection to ZooKeeper.
        """
        shard = self.shard_of(name)
        leader_state = self._led_partition_of(name).partition.leader_state
        if leader_state is None or not leader_state.has_lease:
            text = "another broker may be the coordinator: ZooKeeper is unreachable"
            raise KafkaError(ErrorCode.NOT_COORDINATOR, text)
        return shard

    def _led_partition_of(self, name: str) -> _LedPartition[S]:
        count = self._count()
        if count is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this broker has no metadata of {self.topic} yet")
        entry = self._led_partitions.get(partition_of(name, count))
        if entry is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return entry

    def loaded_shards(self) -> list[S]:
        """Return the loaded shards, in partition order."""
        return [entry.shard for _, entry in sorted(self._led_partitions.items()) if entry.is_loaded]

    @property
    def is_loading(self) -> bool:
        """True if a partition led by this broker has not been loaded."""
        return any(not entry.is_loaded for entry in self._led_partitions.values())

    def marker_written(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction marker that was committed in a partition of the topic."""
        entry = self._led_partitions.get(partition)
        if entry is not None and entry.is_loaded:
            entry.shard.end_transaction(producer_id, committed)

    # --- roles -------------------------------------------------------------------------------------------------------

    def _role_changed(self, partition: Partition) -> None:
        """Load or unload a partition after a change of its role.

        A partition that this broker has led without interruption is not loaded again.
        """
        number = partition.topic_partition.partition
        entry = self._led_partitions.get(number)
        if entry is not None and (entry.state_log.is_lost or entry.partition is not partition):
            self._unload(number, entry)
            entry = None
        if entry is None and partition.is_leader:
            self._start_loading(number, partition)

    def _start_loading(self, number: int, partition: Partition) -> None:
        state_log = StateLog(self._runtime, partition, self._at_end_of_iteration, self._config)
        entry = self._led_partitions[number] = _LedPartition(partition, state_log, self._make(state_log))
        entry.loading = Deferred.fromCoroutine(self._load(entry))
        entry.loading.addErrback(_log_load_failure, partition)

    def _unload(self, number: int, entry: _LedPartition[S]) -> None:
        del self._led_partitions[number]
        if entry.loading is not None:
            entry.loading.cancel()
        entry.shard.unload()
        entry.state_log.close()

    async def _load(self, entry: _LedPartition[S]) -> None:
        partition = entry.partition
        await pause(self._runtime.reactor, 0)  # let the controller's command complete first
        while True:
            try:
                count = await self._read_all(entry)
                break
            except CancelledError:
                raise
            except Exception as error:
                log.failure("cannot load {partition}: {error}", partition=repr(partition), error=str(error))
                entry.has_failed = True
                await pause(self._runtime.reactor, RETRY_SECONDS)
                entry.shard = self._make(entry.state_log)
        log.debug("loaded {count} records of {partition}", partition=repr(partition), count=count)
        entry.loading = None
        entry.has_failed = False
        entry.is_loaded = True
        entry.shard.loaded()

    async def _read_all(self, entry: _LedPartition[S]) -> int:
        """Replay until everything in the log has been replayed and committed.

        Uncommitted records of an earlier leader may still be lost, so no response may depend on them.
        """
        partition = entry.partition
        loading = Loading(self._runtime, partition, entry.shard.replay, entry.shard.end_transaction)
        while True:
            await loading.read_to_end()
            if is_settled(partition, loading.offset) and loading.is_at_end:
                return loading.record_count
            await _CommitWaiter(partition, loading.offset).reached


def is_settled(partition: Partition, offset: int) -> bool:
    """Return True if all records below an offset are committed, so that responses may depend on them."""
    return partition.is_committed(offset)


class _CommitWaiter:
    """Partition watcher that fires ``reached`` once everything below an offset is committed."""

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self._offset = offset
        self.reached: Deferred[None] = Deferred(lambda _: self._leave())
        partition.add_watcher(self)
        self.changed(())

    def changed(self, partitions: object) -> None:
        if self._partition.is_committed(self._offset):
            self._leave()
            if not self.reached.called:
                self.reached.callback(None)

    def _leave(self) -> None:
        self._partition.watchers.pop(self, None)


def _log_load_failure(failure: Failure, partition: Partition) -> None:
    if failure.check(CancelledError) is None:
        log.failure("unexpected error while loading {partition}", failure, partition=repr(partition))
