"""Which replica may answer whom, and what a new leader does not know yet."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.replication.partition import Partition, Role
from kreplica.replication.partitions import Partitions


def held(partitions: Partitions, key: TopicPartition, current_leader_epoch: int = NO_EPOCH) -> Partition:
    """The partition, where this broker leads or follows it.

    :raise KafkaError: as ``Partitions.unknown`` and ``check_replica``.
    """
    partition = partitions.get(key)
    if partition is None:
        raise partitions.unknown(key)
    check_replica(partition, current_leader_epoch)
    return partition


def check_replica(partition: Partition, current_leader_epoch: int = NO_EPOCH) -> None:
    """Whether this broker may answer those who take any replica (KIP-392).

    :param current_leader_epoch: the epoch the client knows; -1 is not checked (KIP-320).
    :raise KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
    """
    if partition.role is not Role.FOLLOWER:
        partition.check_leader(current_leader_epoch)
        return
    known = partition.leadership.leader_epoch
    if current_leader_epoch not in (NO_EPOCH, known):
        code = ErrorCode.FENCED_LEADER_EPOCH if current_leader_epoch < known else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise KafkaError(code)


def has_caught_up_with_epoch(partition: Partition) -> bool:
    """Whether a leader's high watermark has reached the start of its epoch.

    Before that it lags behind the one of the leader before, and consumers have seen later offsets.
    """
    epochs = partition.log.leader_epochs.entries
    if not epochs or epochs[-1].epoch != partition.leadership.leader_epoch:
        return True
    return partition.high_watermark >= epochs[-1].start_offset
