"""What a broker is told of one partition's state."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kreplica.model import NO_EPOCH, NO_LEADER, ZERO_UUID


class Leadership(NamedTuple):
    """What LeaderAndIsr says of one partition, or what its leader has written since.

    :param isr: the committed in-sync set: the one in the partition's state znode.
    :param partition_epoch: that znode's version.
    :param adding: replicas that a reassignment adds, and ``removing`` those that it takes away; all in ``replicas``.
    :param eligible: replicas outside the in-sync set that may still lead (KIP-966): while there are any, nothing more
        is committed.
    :param read_only: the partition is being removed: it takes no more records.
    :param is_new: this replica cannot have a log yet, wherever.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    topic_id: UUID = ZERO_UUID
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    read_only: bool = False
    is_new: bool = True


NOT_LED = Leadership(NO_LEADER, NO_EPOCH, (), (), 0, 0)
