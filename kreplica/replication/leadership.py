"""Leadership of one partition as received from the controller."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kreplica.model import NO_EPOCH, NO_LEADER, ZERO_UUID


class Leadership(NamedTuple):
    """State of one partition, as received in LeaderAndIsr or as written by its leader afterwards.

    :param isr: the committed ISR, as stored in the partition's state znode.
    :param partition_epoch: version of that znode.
    :param adding: members of ``replicas`` that a reassignment adds.
    :param removing: members of ``replicas`` that a reassignment removes.
    :param eligible: replicas outside the ISR that are eligible to lead (KIP-966); while there are any, the high
        watermark does not advance.
    :param read_only: the partition is being removed and accepts no records.
    :param is_new: this replica cannot have a log in any log directory yet.
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


NO_LEADERSHIP = Leadership(NO_LEADER, NO_EPOCH, (), (), 0, 0)
