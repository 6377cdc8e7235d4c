"""What the leader of a classic group does besides: it shares partitions out, and looks whether there are others."""

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
"""Topics, each with its partitions' numbers."""


class Leading:
    """Of one member, also while it does not lead.

    :param interval_s: so often it looks.
    :param changed: is told why the partitions have to be shared out anew.
    """

    def __init__(
        self, cluster: Cluster, assignors: Sequence[Assignor], interval_s: float, changed: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._assignors = {each.name: each for each in assignors}
        self._interval_s = interval_s
        self._changed = changed
        self._topics: tuple[str, ...] = ()
        self._shared_out: Numbers | None = None

    async def begin(self, joined: dict[str, Any]) -> list[dict[str, Any]]:
        """Share out the partitions of all topics that members are subscribed to.

        :param joined: the leader's answer to JoinGroup.
        :return: what each member gets, for SyncGroup; nothing where all stays as it is (KIP-814).
        :raise ClientError: nobody says what partitions there are.
        """
        members = parse_members(joined["members"])
        self._topics = tuple(sorted({topic for member in members for topic in member.topics}))
        view = await self._cluster.refresh(self._topics)
        self._shared_out = numbers(view, self._topics)
        if joined.get("skip_assignment"):
            return []
        shares = self._assignors[joined["protocol_name"]].assign(topics_of(view, self._topics), members)
        return [
            {"member_id": member_id, "assignment": build_assignment(share)}
            for member_id, share in sorted(shares.items())
        ]

    def end(self) -> None:
        """It leads no more."""
        self._shared_out = None

    async def watch(self) -> None:
        """Look, now and then, until this is cancelled."""
        while True:
            await pause(self._cluster.runtime.reactor, self._interval_s)
            shared_out = self._shared_out
            if shared_out is None:
                continue
            if any(self._cluster.known_topic(topic) is None for topic in self._topics):
                try:
                    await self._cluster.refresh(self._topics)
                except ClientError:
                    continue
            if shared_out is self._shared_out and differ(self._cluster.view, shared_out, self._topics):
                self._shared_out = None
                self._changed("topics have other partitions than before")


def topics_of(view: ClusterView, topics: Iterable[str]) -> Topics:
    """Those that there are, as assignors want them."""
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
    """The partitions that there are."""
    found = {name: view.topics[name] for name in topics if name in view.topics}
    return {name: tuple(each.partition for each in topic.partitions) for name, topic in found.items()}


def differ(view: ClusterView, before: Numbers, topics: Iterable[str]) -> bool:
    """Whether there are other partitions than before; a topic of which nobody could tell is as it was."""
    now = numbers(view, topics)
    gone = [name for name in before if name not in now]
    return any(view.problems.get(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in gone) or any(
        before.get(name) != found for name, found in now.items()
    )
