"""All partitions of this broker, and the controller commands that change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.replication import controller_fence, damaged_replicas
from kreplica.replication.leader.leader_state import LeaderContext, LeaderState
from kreplica.replication.leader.lease import Lease
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import Partition
from kreplica.replication.partition_dependencies import NOT_FETCHING, Fetching, PartitionSettings
from kreplica.replication.purgatory import Purgatory
from kreplica.replication.replicas import Replicas, check_topic_id
from kreplica.runtime import Reactor
from kreplica.runtime.disk import Buffer, is_temporary
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.log.log import Log
from kreplica.storage.segments.damage import Damage

log = Logger()

DELETE_ANY_EPOCH = -2


class HighWatermarks(Mapping[TopicPartition, int]):
    """The current high watermarks; a view, because a copy of 10,000 takes several milliseconds."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def __getitem__(self, key: TopicPartition) -> int:
        partition = self._replicas.get(key)
        if partition is None:
            raise KeyError(key)
        return partition.high_watermark

    def __iter__(self) -> Iterator[TopicPartition]:
        return (partition.topic_partition for partition in self._replicas)

    def __len__(self) -> int:
        return sum(1 for _ in self._replicas)


class Partitions:
    """Creates, stops and deletes the partitions of a broker; owned by the broker.

    :param settings_of: returns a topic's current settings.
    :param is_known: returns True if the partition exists in the cluster, as far as this broker knows; selects between
        the errors NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION.
    :param fetching: fetchers, started when a partition follows in a new leader epoch and stopped before any other
        change of its role.
    :param propose: see ``LeaderContext``; ``IsrWrites.propose``.
    :param may_acknowledge: returns True while no other broker can have become leader of this broker's partitions.
    :param lag_s_max: ``replica.lag.time.max.ms`` in seconds.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        directories: LogDirectories,
        settings_of: Callable[[str], PartitionSettings],
        is_known: Callable[[TopicPartition], bool],
        purgatory: Purgatory,
        *,
        fetching: Fetching = NOT_FETCHING,
        propose: Callable[[LeaderState], None] = lambda _: None,
        may_acknowledge: Callable[[], bool] = lambda: True,
        lag_s_max: float = 30.0,
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._fetching = fetching
        self._lease = Lease(reactor, may_acknowledge)
        self._context = LeaderContext(broker_id, purgatory, self._lease, reactor.seconds, propose, lag_s_max)
        self._settings_of = settings_of
        self._is_known = is_known
        self._replicas = Replicas(directories, self._context, settings_of)
        self.get = self._replicas.get
        self.observe = self._replicas.observe
        self.name_of = self._replicas.name_of
        self._without_resources: dict[TopicPartition, Leadership] = {}
        """Roles not applied for lack of disk space or descriptors; retried when a client requests the partition."""
        self._damaged_since: dict[TopicPartition, int] = {}
        """First leader epoch received by this process for each partition whose log cannot be opened."""
        self._sessions_lost = 0
        self._topics_changed: dict[str, None] = {}
        self._applying_settings = False
        self.directories = directories
        self.purgatory = purgatory
        directories.on_offline(self._directory_failed)
        directories.on_synced(self._synced)
        directories.on_damage(self._damaged)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._replicas)

    @property
    def without_resources(self) -> list[TopicPartition]:
        """The partitions that could not be opened for lack of space or descriptors."""
        return list(self._without_resources)

    def led_partition(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> Partition:
        """Return the partition if this broker leads it.

        :raise KafkaError: the errors of ``unknown_partition_error`` and of ``Partition.check_leader``.
        """
        partition = self.get(key)
        if partition is None:
            raise self.unknown_partition_error(key)
        partition.check_leader(current_leader_epoch)
        return partition

    def unknown_partition_error(self, key: TopicPartition) -> KafkaError:
        """Return the error for a request for a partition that this broker does not have."""
        if self.directories.failure(key) is not None:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {key} is damaged")
        if key in self._without_resources:
            self._retry_role(key)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no disk space or file descriptor for {key}")
        if self._is_known(key):
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def reject(self, key: TopicPartition, records: Buffer | None, now_ms: int) -> KafkaError:
        """Return the error for a batch of a partition that this broker does not have.

        Later batches of its producer are rejected until this batch is sent again.
        """
        error = self.unknown_partition_error(key)
        log_ = self.directories.logs.get(key)
        if records is not None and log_ is not None:
            log_.producers.note_rejection(records, error, now_ms)
        elif records is not None and (header := header_at(records, 0)) is not None and header.producer_id >= 0:
            self._replicas.rejected_without_log.note(key, header, error.code, now_ms)
        return error

    # --- the controller's commands -----------------------------------------------------------------------------------

    async def lead_and_follow(
        self, leaderships: Mapping[TopicPartition, Leadership]
    ) -> dict[TopicPartition, ErrorCode]:
        """Apply the roles of a LeaderAndIsr request; a failed partition does not affect the others.

        If the ZooKeeper session ends meanwhile, the remaining partitions get STALE_BROKER_EPOCH.
        """
        errors = {}
        sessions_lost = self._sessions_lost
        await self._restore_damaged(leaderships)
        new = [
            (key, leadership.topic_id)
            for key, leadership in leaderships.items()
            if self.get(key) is None
            and self._broker_id in leadership.replicas
            and not self._replicas.may_be_offline(leadership)
        ]
        if new:
            await self.directories.create_directories(new)
        following: list[Partition] = []
        time_slice = TimeSlice(self._reactor)
        try:
            for key, leadership in leaderships.items():
                if self._sessions_lost == sessions_lost:
                    errors[key] = self._try_role(key, leadership, following)
                else:
                    errors[key] = ErrorCode.STALE_BROKER_EPOCH
                if time_slice.is_over:
                    await time_slice.next()
        finally:
            # Runs even if the command is cancelled because its connection was lost: a repeated command would not
            # start these fetchers.
            fetching = Deferred.fromCoroutine(self._fetch(following))
            fetching.addErrback(lambda failure: log.failure("starting the fetchers failed", failure))
        return errors

    async def _restore_damaged(self, leaderships: Mapping[TopicPartition, Leadership]) -> None:
        """Recreate damaged replicas that no broker relies on, and use damaged last copies as they are.

        For the other damaged replicas the controller starts a leader epoch without this broker.
        """
        for key in self.directories.failed_logs():
            leadership, partition = leaderships.get(key), self.get(key)
            if leadership is None or self._broker_id not in leadership.replicas:
                continue
            known_epoch = self._known_epoch(key, leadership)
            if not controller_fence.is_current_epoch(leadership.leader_epoch, known_epoch):
                continue
            is_restored = False
            if damaged_replicas.may_discard_damaged_replica(leadership, self._broker_id, known_epoch):
                is_restored = await self.directories.set_damage_aside(key)
            elif damaged_replicas.is_last_copy(leadership, self._broker_id):
                is_restored = await self.directories.bring_online(key)
            if is_restored:
                self._damaged_since.pop(key, None)
            if is_restored and partition is not None and self.get(key) is partition:
                self._replicas.remove(key)

    def _known_epoch(self, key: TopicPartition, leadership: Leadership) -> int:
        """Return the partition's leader epoch, or the first one received if its log cannot be opened."""
        partition = self.get(key)
        if partition is not None:
            return partition.leadership.leader_epoch
        return self._damaged_since.setdefault(key, leadership.leader_epoch)

    def _try_role(self, key: TopicPartition, leadership: Leadership, following: list[Partition]) -> ErrorCode:
        self._without_resources.pop(key, None)
        try:
            self._apply_role(key, leadership, following)
        except KafkaError as error:
            return error.code
        except (OSError, StorageError) as error:
            log.error("{partition} cannot be opened: {error}", partition=str(key), error=str(error))
            if is_temporary(error):
                self._without_resources[key] = leadership
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    async def _fetch(self, following: Iterable[Partition]) -> None:
        """Start fetching after all roles are applied.

        Earlier fetches could reach leaders that are still processing the same command.
        """
        time_slice = TimeSlice(self._reactor)
        for partition in following:
            if partition.role.is_follower:
                try:
                    self._fetching.start(partition)
                except Exception:
                    log.failure("cannot start fetching {partition}", partition=str(partition.topic_partition))
            if time_slice.is_over:
                await time_slice.next()

    async def stop_replica(self, key: TopicPartition, *, leader_epoch: int, delete: bool) -> ErrorCode:
        """Stop a partition and optionally delete its files; an absent partition counts as deleted.

        A power loss may undo the deletion until ``directories.sync_deletions``.
        """
        self._without_resources.pop(key, None)
        self._damaged_since.pop(key, None)
        partition = self.get(key)
        if partition is None:
            has_files = key in self.directories.logs or self.directories.failure(key) is not None
            return await self._delete(key) if delete and has_files else ErrorCode.NONE
        if leader_epoch != DELETE_ANY_EPOCH and leader_epoch < partition.leadership.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition.role.is_offline and self.directories.failure(key) is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._fetching.stop(partition)
        partition.stop()
        return await self._delete(key) if delete else ErrorCode.NONE

    async def _delete(self, key: TopicPartition) -> ErrorCode:
        try:
            await self.directories.delete(key)
        except OSError as error:
            log.error("deleting {partition} failed: {error}", partition=str(key), error=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.get(key) is not None:
            self._replicas.remove(key)
        return ErrorCode.NONE

    def _retry_role(self, key: TopicPartition) -> None:
        leadership = self._without_resources.pop(key)
        following: list[Partition] = []
        try:
            self._apply_role(key, leadership, following)
            for partition in following:
                self._fetching.start(partition)
        except (KafkaError, StorageError, OSError) as error:
            if is_temporary(error):
                self._without_resources[key] = leadership
            else:
                log.error("{partition} cannot be opened: {error}", partition=str(key), error=str(error))

    def _apply_role(self, key: TopicPartition, leadership: Leadership, following: list[Partition]) -> None:
        """Apply one partition's role.

        :param following: receives the partition if it must be fetched.
        """
        if self._broker_id not in leadership.replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{key} is not assigned to this broker")
        partition = self.get(key)
        if partition is None:
            partition = self._replicas.open(key, leadership)
        elif partition.role.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the directory of {key} is offline")
        if leadership.topic_id != partition.topic_id:
            check_topic_id(partition, leadership.topic_id)
        known_epoch = partition.leadership.leader_epoch
        if not controller_fence.is_current_epoch(leadership.leader_epoch, known_epoch):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, f"{key} is already in epoch {known_epoch}")
        if partition.role.is_active and not controller_fence.is_new_epoch(leadership.leader_epoch, known_epoch):
            partition.update_within_epoch(leadership)
            return
        self._fetching.stop(partition)
        if leadership.leader == self._broker_id:
            partition.lead(leadership)
        else:
            partition.follow(leadership)
            following.append(partition)
        self._sync_if_required(partition)

    def settings_changed(self, topic: str) -> None:
        """Apply changed topic settings to its partitions, in several reactor iterations."""
        self._topics_changed[topic] = None
        if not self._applying_settings:
            self._applying_settings = True
            applied = Deferred.fromCoroutine(self._apply_settings())
            applied.addErrback(lambda failure: log.failure("applying changed topic settings failed", failure))

    async def _apply_settings(self) -> None:
        # Changing a broker default changes all topics.
        time_slice = TimeSlice(self._reactor)
        await time_slice.next()
        try:
            while self._topics_changed:
                topic = next(iter(self._topics_changed))
                del self._topics_changed[topic]
                for partition in self._replicas.of_topic(topic):
                    settings = self._settings_of(topic)  # read now, as they may have changed again
                    partition.log.config = settings.log
                    partition.settings_changed(settings.min_insync_replicas)
                    self._sync_if_required(partition)
                    if time_slice.is_over:
                        await time_slice.next()
        finally:
            self._applying_settings = False

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """Return a view of the current high watermarks."""
        return HighWatermarks(self._replicas)

    def session_lost(self) -> None:
        """Stop leading partitions that have other replicas, because the ZooKeeper session ended.

        Another broker may lead them by now. In the next session the controller assigns roles again.
        """
        self._sessions_lost += 1
        self._without_resources.clear()
        for partition in self:
            if partition.is_leader and len(partition.leadership.replicas) > 1:
                partition.stop()

    def stop(self) -> None:
        """Stop all partitions; watchers are notified."""
        self._lease.stop()
        for partition in self:
            self._fetching.stop(partition)
            partition.stop()

    def _sync_if_required(self, partition: Partition) -> None:
        """Request a sync if some records, such as those of a killed process, may be acknowledged only after it."""
        if not partition.is_durable(partition.log.log_end_offset):
            self.directories.flush(partition.topic_partition)

    def _synced(self, keys: list[TopicPartition]) -> None:
        for key in keys:
            partition = self.get(key)
            if partition is not None:
                partition.log_synced()

    def _damaged(self, log_: Log, damage: Damage) -> None:
        partition = self.get(log_.topic_partition)
        if partition is not None and damaged_replicas.has_other_copy(partition.leadership, self._broker_id):
            self.directories.take_offline(log_.topic_partition, damage)
        else:
            log_.damage.exclude(damage)

    def _directory_failed(self, keys: list[TopicPartition]) -> None:
        for key in keys:
            partition = self.get(key)
            if partition is not None:
                self._fetching.stop(partition)
                partition.go_offline()
