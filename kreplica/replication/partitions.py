"""All partitions that this broker holds, and how the controller's commands change them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import NO_EPOCH, ZERO_UUID, TopicPartition
from kreplica.replication import damaged_replicas, fencing
from kreplica.replication.leader.leader_state import Led, Surroundings
from kreplica.replication.leader.lease import Lease
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import Partition
from kreplica.replication.partition_dependencies import NOT_FETCHING, Fetching, PartitionSettings
from kreplica.replication.purgatory import Wakeups
from kreplica.replication.writable_replica import Role
from kreplica.runtime import Reactor
from kreplica.runtime.disk import Buffer, is_passing
from kreplica.runtime.turns import Turns
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.log.log import Log
from kreplica.storage.producers.refused_batches import RefusalsWithoutLog
from kreplica.storage.segments.damage import Damage

log = Logger()

DELETE_WHATEVER_EPOCH = -2


class Partitions:
    """Owned by the broker; the only place that makes, stops and deletes partitions.

    :param settings_of: a topic's settings as they are now.
    :param is_known: whether the cluster has that partition, as far as this broker has been told; decides between
        "not mine" and "no such partition".
    :param fetching: starts when a partition follows in a new leader epoch, stops before it does anything else.
    :param propose: see ``Surroundings``; ``IsrWrites.propose``.
    :param may_acknowledge: whether no other broker can have been told yet to lead what this one leads.
    :param lag_s_max: ``replica.lag.time.max.ms``.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        directories: LogDirectories,
        settings_of: Callable[[str], PartitionSettings],
        is_known: Callable[[TopicPartition], bool],
        wakeups: Wakeups,
        *,
        fetching: Fetching = NOT_FETCHING,
        propose: Callable[[Led], None] = lambda _: None,
        may_acknowledge: Callable[[], bool] = lambda: True,
        lag_s_max: float = 30.0,
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._fetching = fetching
        self._lease = Lease(reactor, may_acknowledge)
        self._surroundings = Surroundings(broker_id, wakeups, self._lease, reactor.seconds, propose, lag_s_max)
        self._settings_of = settings_of
        self._is_known = is_known
        self._partitions: dict[TopicPartition, Partition] = {}
        self._of_topic: dict[str, dict[int, Partition]] = defaultdict(dict)
        self._names: dict[UUID, str] = {}
        self._without_room: dict[TopicPartition, Leadership] = {}
        """Roles that could not be taken for want of room or descriptors; tried again when somebody asks for it."""
        self._refused_without_log = RefusalsWithoutLog()
        self._damaged_since: dict[TopicPartition, int] = {}
        """By partition whose log could not be opened at all: the first leader epoch that this process heard of."""
        self._sessions_lost = 0
        self._observers: dict[str, Callable[[Partition], None]] = {}
        self._topics_changed: dict[str, None] = {}
        self._taking_over = False
        self.directories = directories
        self.wakeups = wakeups
        directories.on_offline(self._directory_failed)
        directories.on_synced(self._synced)
        directories.on_damage(self._damaged)

    def observe(self, topic: str, role_changed: Callable[[Partition], None]) -> None:
        """Be told when a partition of a topic is led here, in a new epoch perhaps, or ceases to be.

        Asked for before any partition is opened.
        """
        self._observers[topic] = role_changed

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def get(self, key: TopicPartition) -> Partition | None:
        return self._partitions.get(key)

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of a topic of which this broker has a partition; None for other ids."""
        return self._names.get(topic_id)

    def led(self, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> Partition:
        """The partition, where this broker leads it.

        :raise KafkaError: as ``unknown`` and ``Partition.check_leader``.
        """
        partition = self._partitions.get(key)
        if partition is None:
            raise self.unknown(key)
        partition.check_leader(current_leader_epoch)
        return partition

    def unknown(self, key: TopicPartition) -> KafkaError:
        """What to tell a client that asks for a partition that is not here."""
        if self.directories.failure(key) is not None:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {key} is damaged")
        if key in self._without_room:
            self._try_again(key)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"there was no room, or no descriptor, for {key}")
        if self._is_known(key):
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def refuse(self, key: TopicPartition, records: Buffer | None, now_ms: int) -> KafkaError:
        """``unknown`` for a batch: what its producer sends behind it has to wait until it comes again."""
        error = self.unknown(key)
        log_ = self.directories.logs.get(key)
        if records is not None and log_ is not None:
            log_.producers.note_refusal(records, error, now_ms)
        elif records is not None and (header := header_at(records, 0)) is not None and header.producer_id >= 0:
            self._refused_without_log.note(key, header, error.code, now_ms)
        return error

    # --- the controller's commands -----------------------------------------------------------------------------------

    async def lead_and_follow(self, wanted: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, ErrorCode]:
        """Take the roles that LeaderAndIsr gives; one partition's failure leaves the others alone.

        Where the session ends meanwhile the rest is refused (STALE_BROKER_EPOCH): it was meant for that session.
        """
        errors = {}
        sessions_lost = self._sessions_lost
        await self._bring_back(wanted)
        new = [
            (key, leadership.topic_id)
            for key, leadership in wanted.items()
            if key not in self._partitions
            and self._broker_id in leadership.replicas
            and not self._may_be_offline(leadership)
        ]
        if new:
            await self.directories.make(new)
        following: list[Partition] = []
        turns = Turns(self._reactor)
        try:
            for key, leadership in wanted.items():
                if self._sessions_lost == sessions_lost:
                    errors[key] = self._try_role(key, leadership, following)
                else:
                    errors[key] = ErrorCode.STALE_BROKER_EPOCH
                if turns.is_over:
                    await turns.next()
        finally:
            # Also where the command is given up, its connection lost: sent again it changes nothing of what it gave.
            fetching = Deferred.fromCoroutine(self._fetch(following))
            fetching.addErrback(lambda failure: log.failure("replicas are not fetched", failure))
        return errors

    async def _bring_back(self, wanted: Mapping[TopicPartition, Leadership]) -> None:
        """Begin damaged replicas anew that nobody counts on, and use those as they are that are the last.

        The controller, told that one cannot be used, begins another leader epoch without it.
        """
        for key in self.directories.failed_logs():
            leadership, partition = wanted.get(key), self._partitions.get(key)
            if leadership is None or self._broker_id not in leadership.replicas:
                continue
            known_epoch = self._known_epoch(key, leadership)
            if not fencing.is_current_epoch(leadership.leader_epoch, known_epoch):
                continue
            is_back = False
            if damaged_replicas.may_begin_anew(leadership, self._broker_id, known_epoch):
                is_back = await self.directories.begin_anew(key)
            elif damaged_replicas.is_last_copy(leadership, self._broker_id):
                is_back = await self.directories.put_back(key)
            if is_back:
                self._damaged_since.pop(key, None)
            if is_back and partition is not None and self._partitions.get(key) is partition:
                self._forget(key)

    def _known_epoch(self, key: TopicPartition, leadership: Leadership) -> int:
        """The leader epoch in which a replica that cannot be used was last, or of which it heard first."""
        partition = self._partitions.get(key)
        if partition is not None:
            return partition.leadership.leader_epoch
        return self._damaged_since.setdefault(key, leadership.leader_epoch)

    def _try_role(self, key: TopicPartition, leadership: Leadership, following: list[Partition]) -> ErrorCode:
        self._without_room.pop(key, None)
        try:
            self._take_role(key, leadership, following)
        except KafkaError as error:
            return error.code
        except (OSError, StorageError) as error:
            log.error("{partition} cannot be opened: {error}", partition=str(key), error=str(error))
            if is_passing(error):
                self._without_room[key] = leadership
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    async def _fetch(self, following: Iterable[Partition]) -> None:
        """Begin to fetch once all roles are taken.

        Fetches between the turns of a long command would find leaders that are in the middle of the same command.
        """
        turns = Turns(self._reactor)
        for partition in following:
            if partition.role is Role.FOLLOWER:
                try:
                    self._fetching.start(partition)
                except Exception:
                    log.failure("{partition} is not fetched", partition=str(partition.topic_partition))
            if turns.is_over:
                await turns.next()

    async def stop_replica(self, key: TopicPartition, *, leader_epoch: int, delete: bool) -> ErrorCode:
        """Stop a partition, and delete its files where asked; one that is not here is deleted already."""
        self._without_room.pop(key, None)
        self._damaged_since.pop(key, None)
        partition = self._partitions.get(key)
        if partition is None:
            is_here = key in self.directories.logs or self.directories.failure(key) is not None
            return await self._delete(key) if delete and is_here else ErrorCode.NONE
        if leader_epoch != DELETE_WHATEVER_EPOCH and leader_epoch < partition.leadership.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition.role is Role.OFFLINE and self.directories.failure(key) is None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._fetching.stop(partition)
        partition.stop()
        return await self._delete(key) if delete else ErrorCode.NONE

    async def _delete(self, key: TopicPartition) -> ErrorCode:
        try:
            await self.directories.delete(key)
        except OSError as error:
            log.error("{partition} cannot be deleted: {error}", partition=str(key), error=str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        if key in self._partitions:
            self._forget(key)
        return ErrorCode.NONE

    def _try_again(self, key: TopicPartition) -> None:
        leadership = self._without_room.pop(key)
        following: list[Partition] = []
        try:
            self._take_role(key, leadership, following)
            for partition in following:
                self._fetching.start(partition)
        except (KafkaError, StorageError, OSError) as error:
            if is_passing(error):
                self._without_room[key] = leadership
            else:
                log.error("{partition} cannot be opened: {error}", partition=str(key), error=str(error))

    def _take_role(self, key: TopicPartition, leadership: Leadership, following: list[Partition]) -> None:
        """:param following: what is to be fetched from now on is put there."""
        if self._broker_id not in leadership.replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{key} is not assigned to this broker")
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._open(key, leadership)
        elif partition.role is Role.OFFLINE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the directory of {key} is offline")
        if leadership.topic_id != partition.topic_id:
            _check_topic_id(key, partition, leadership.topic_id)
        known_epoch = partition.leadership.leader_epoch
        if not fencing.is_current_epoch(leadership.leader_epoch, known_epoch):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, f"{key} is in epoch {known_epoch} already")
        if partition.role is not Role.STOPPED and not fencing.is_new_epoch(leadership.leader_epoch, known_epoch):
            partition.told_again(leadership)
            return
        self._fetching.stop(partition)
        if leadership.leader == self._broker_id:
            partition.lead(leadership)
        else:
            partition.follow(leadership)
            following.append(partition)
        self._see_that_it_counts(partition)

    def _open(self, key: TopicPartition, leadership: Leadership) -> Partition:
        settings = self._settings_of(key.topic)
        opened = self.directories.logs.get(key)
        if opened is None:
            if self._may_be_offline(leadership):
                raise StorageError(f"{key} may be in a log directory that is offline since the start of the broker")
            opened = self.directories.create(key, leadership.topic_id, settings.log)
        opened.config = settings.log
        self._refused_without_log.move_to(opened.producers.refusals, key)
        partition = Partition(
            key,
            self.directories.topic_id(key) or leadership.topic_id,
            opened,
            self._surroundings,
            high_watermark=self.directories.high_watermark(key),
            min_insync_replicas=settings.min_insync_replicas,
            role_changed=self._observers.get(key.topic),
        )
        self._partitions[key] = self._of_topic[key.topic][key.partition] = partition
        if partition.topic_id != ZERO_UUID:
            self._names[partition.topic_id] = key.topic
        return partition

    def _may_be_offline(self, leadership: Leadership) -> bool:
        """Whether a replica that is not found may be in a directory that nobody could read at the start (KIP-112).

        Made anew in another, it would be in two of them once that one is back.
        """
        return self.directories.may_hold_more and not leadership.is_new

    def _forget(self, key: TopicPartition) -> None:
        topic_id = self._partitions.pop(key).topic_id
        of_topic = self._of_topic[key.topic]
        del of_topic[key.partition]
        if not of_topic:
            del self._of_topic[key.topic]
            self._names.pop(topic_id, None)

    def settings_changed(self, topic: str) -> None:
        """The topic's settings are others now: its partitions and logs take them over, many of them in turns."""
        self._topics_changed[topic] = None
        if not self._taking_over:
            self._taking_over = True
            taken_over = Deferred.fromCoroutine(self._take_over_settings())
            taken_over.addErrback(lambda failure: log.failure("taking over changed settings", failure))

    async def _take_over_settings(self) -> None:
        # A change of the broker's settings is one of all topics.
        turns = Turns(self._reactor)
        await turns.next()
        try:
            while self._topics_changed:
                topic = next(iter(self._topics_changed))
                del self._topics_changed[topic]
                for partition in list(self._of_topic.get(topic, {}).values()):
                    settings = self._settings_of(topic)  # those of now, where they have changed again meanwhile
                    partition.log.config = settings.log
                    partition.settings_changed(settings.min_insync_replicas)
                    self._see_that_it_counts(partition)
                    if turns.is_over:
                        await turns.next()
        finally:
            self._taking_over = False

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What the checkpoint of high watermarks has to hold."""
        return {key: partition.high_watermark for key, partition in self._partitions.items()}

    def session_lost(self) -> None:
        """The session with ZooKeeper has ended: another may lead what this broker led, whatever the next session says.

        Until the controller has spoken again only partitions without other replicas are led on.
        """
        self._sessions_lost += 1
        self._without_room.clear()
        for partition in self._partitions.values():
            if partition.is_leader and len(partition.leadership.replicas) > 1:
                partition.stop()

    def stop(self) -> None:
        """Serve nothing any more; whoever waits is told."""
        self._lease.stop()
        for partition in self._partitions.values():
            self._fetching.stop(partition)
            partition.stop()

    def _see_that_it_counts(self, partition: Partition) -> None:
        """Have synced what only counts once it is: what a killed broker left, or what older settings let pass."""
        if not partition.is_kept(partition.log.log_end_offset):
            self.directories.flush(partition.topic_partition)

    def _synced(self, keys: list[TopicPartition]) -> None:
        for key in keys:
            partition = self._partitions.get(key)
            if partition is not None:
                partition.end_moved()

    def _damaged(self, log_: Log, found: Damage) -> None:
        partition = self._partitions.get(log_.topic_partition)
        if partition is not None and damaged_replicas.others_have_it(partition.leadership, self._broker_id):
            self.directories.take_out(log_.topic_partition, found)
        else:
            log_.keep_damage(found)

    def _directory_failed(self, keys: list[TopicPartition]) -> None:
        for key in keys:
            partition = self._partitions.get(key)
            if partition is not None:
                self._fetching.stop(partition)
                partition.go_offline()


def _check_topic_id(key: TopicPartition, partition: Partition, topic_id: UUID) -> None:
    if ZERO_UUID in (topic_id, partition.topic_id) or topic_id == partition.topic_id:
        return
    raise KafkaError(
        ErrorCode.INCONSISTENT_TOPIC_ID,
        f"{key} on disk belongs to the topic id {partition.topic_id}, the controller means {topic_id}",
    )
