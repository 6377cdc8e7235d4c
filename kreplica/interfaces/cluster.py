"""Replica placement and preferred leaders by plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zope.interface import Interface

from kreplica.model import TopicPartition


class PlacementBroker(NamedTuple):
    """A live broker that can receive new replicas.

    :param rack: its ``broker.rack``; if no broker has a rack and some brokers share a host, the host.
    """

    broker_id: int
    rack: str | None


class IReplicaPlacement(Interface):
    """Selects the brokers of new replicas (``kreplica.placement``)."""

    def place(
        topic: str, partitions: Sequence[int], replication_factor: int, brokers: Sequence[PlacementBroker]
    ) -> Mapping[int, Sequence[int]]:
        """Return the replicas of new partitions, the preferred leader first.

        Called by the broker that receives a request to create or extend a topic without an assignment.

        :param partitions: numbers of the new partitions; if a topic is extended, lower-numbered partitions exist.
        :param brokers: sorted by ID.
        :return: for each of the partitions, ``replication_factor`` different IDs of ``brokers``.
        :raise KafkaError: no placement is possible; the client receives the error, such as
            INVALID_REPLICATION_FACTOR. After any other exception or an invalid result, the built-in ``racks`` places
            the replicas.
        """


class ILeaderElection(Interface):
    """Ranks the replicas of a partition as leaders (``kreplica.leader.election``); it cannot make a replica eligible.

    All brokers must have the same plugin, because any of them can become the controller.
    """

    def preference(
        partition: TopicPartition, replicas: Sequence[int], racks: Mapping[int, str | None]
    ) -> Sequence[int]:
        """Return the replicas in order of preference.

        The controller calls this for each partition that needs a new leader and elects the first replica that is live
        and in sync. The result must depend only on the arguments.

        :param replicas: in the order of the assignment.
        :param racks: racks of the live brokers.
        :return: a permutation of ``replicas``. If it raises or returns anything else, the order of the assignment
            applies.
        """
