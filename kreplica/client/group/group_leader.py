"""Tasks of a classic group's leader: assigns partitions and detects changes in the topics' partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kreplica.client.cluster import Cluster
from kreplica.client.group.assignors import Assignor, Topics
from kreplica.client.group.subscription import build_assignment, parse_members
from kreplica.client_core.errors import ClientError
from kreplica.client_core.metadata import ClusterView
from kreplica.errors import ErrorCode
from kreplica.runtime.pause import pause

Numbers: TypeAlias = Mapping[str, tuple[int, ...]]
"""Topic -> its partition numbers."""


class GroupLeader:
    """Leader tasks of one member; idle while the member is not the leader.

    :param interval_s: interval between checks of the topics.
    :param on_changed: called with the reason when a rebalance is needed.
    """

    def __init__(
        self, cluster: Cluster, assignors: Sequence[Assignor], interval_s: float, on_changed: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._assignors = {each.name: each for each in assignors}
        self._interval_s = interval_s
        self._on_changed = on_changed
        self._topics: tuple[str, ...] = ()
        self._assigned: Numbers | None = None

    async def begin(self, joined: dict[str, Any]) -> list[dict[str, Any]]:
        """Assign the partitions of all subscribed topics.

        :param joined: the leader's JoinGroup response.
        :return: assignments for SyncGroup; empty if the coordinator keeps the current assignments (KIP-814).
        :raise ClientError: the metadata could not be requested.
        """
        members = parse_members(joined["members"])
        self._topics = tuple(sorted({topic for member in members for topic in member.topics}))
        view = await self._cluster.refresh(self._topics)
        self._assigned = numbers(view, self._topics)
        if joined.get("skip_assignment"):
            return []
        shares = self._assignors[joined["protocol_name"]].assign(topics_of(view, self._topics), members)
        return [
            {"member_id": member_id, "assignment": build_assignment(share)}
            for member_id, share in sorted(shares.items())
        ]

    def end(self) -> None:
        """Stop checking the topics, because this member is no longer the leader."""
        self._assigned = None

    async def watch(self) -> None:
        """Check the topics periodically until cancelled."""
        while True:
            await pause(self._cluster.runtime.reactor, self._interval_s)
            assigned = self._assigned
            if assigned is None:
                continue
            if any(self._cluster.known_topic(topic) is None for topic in self._topics):
                try:
                    await self._cluster.refresh(self._topics)
                except ClientError:
                    continue
            if assigned is self._assigned and partitions_changed(self._cluster.view, assigned, self._topics):
                self._assigned = None
                self._on_changed("the partitions of subscribed topics changed")


def topics_of(view: ClusterView, topics: Iterable[str]) -> Topics:
    """Return the existing topics in the form that assignors expect."""
    racks = {broker_id: broker.rack for broker_id, broker in view.brokers.items()}
    return {
        name: {
            each.partition: frozenset(rack for broker in each.replicas if (rack := racks.get(broker)) is not None)
            for each in view.topics[name].partitions
        }
        for name in topics
        if name in view.topics
    }


def numbers(view: ClusterView, topics: Iterable[str]) -> Numbers:
    """Return the partition numbers of the existing topics."""
    found = {name: view.topics[name] for name in topics if name in view.topics}
    return {name: tuple(each.partition for each in topic.partitions) for name, topic in found.items()}


def partitions_changed(view: ClusterView, before: Numbers, topics: Iterable[str]) -> bool:
    """Return True if the partitions changed; topics without metadata are considered unchanged."""
    current = numbers(view, topics)
    missing = [name for name in before if name not in current]
    return any(view.problems.get(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in missing) or any(
        before.get(name) != found for name, found in current.items()
    )
