"""Where new replicas are placed, and who should lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zope.interface import Interface

from kreplica.model import TopicPartition


class PlacementBroker(NamedTuple):
    """A live broker that may take new replicas; ``rack`` is its ``broker.rack``."""

    broker_id: int
    rack: str | None


class IReplicaPlacement(Interface):
    """Says which brokers hold the replicas of new partitions (``kreplica.placement``)."""

    def place(
        topic: str, partitions: Sequence[int], replication_factor: int, brokers: Sequence[PlacementBroker]
    ) -> Mapping[int, Sequence[int]]:
        """Replicas for each of these new partitions, the preferred leader first.

        Called by the broker that is asked to make or grow a topic without an assignment.

        :param partitions: their numbers; those before them exist where a topic grows.
        :param brokers: by number.
        :return: exactly these partitions; so many different brokers each, all of them among ``brokers``.
        :raise KafkaError: nothing fits: the client gets that, say INVALID_REPLICATION_FACTOR.
            Anything else, or an answer that is none: the built-in ``racks`` places them.
        """


class ILeaderElection(Interface):
    """Says who should lead rather than another (``kreplica.leader.election``); never who may.

    Every broker that may become the controller needs the same one.
    """

    def preference(
        partition: TopicPartition, replicas: Sequence[int], racks: Mapping[int, str | None]
    ) -> Sequence[int]:
        """The replicas, those that should lead first.

        Called by the controller while it handles an event, for each partition that gets another leader; the first of
        the answer that lives and is in sync leads.  The same arguments must have the same answer.

        :param replicas: in the order of the assignment.
        :param racks: of the brokers that live.
        :return: the same numbers.  Where it raises, or they are not the same: the order of the assignment.
        """
