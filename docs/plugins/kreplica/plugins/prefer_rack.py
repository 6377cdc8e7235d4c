"""An election that prefers leaders in one rack: the one that most clients stand in, or that costs least.

kreplica.leader.election=prefer-rack
kreplica.plugin.prefer-rack.rack=eu-1a
auto.leader.rebalance.enable=false

The rebalancing of leaders knows only the order of the assignment, and would undo it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zope.interface import implementer

from kreplica.interfaces import ILeaderElection, Plugin, PluginContext
from kreplica.model import TopicPartition

prefer_rack = Plugin(
    "prefer-rack",
    ILeaderElection,
    "kreplica.plugins.prefer_rack:PreferRack",
    "Has replicas in one rack lead rather than others.",
    {"rack": "Its name, as broker.rack."},
)


@implementer(ILeaderElection)
class PreferRack:
    """Those of the rack first; within and without it the order of the assignment."""

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: no rack is given."""
        self._rack = context.settings.get("rack", "")
        if not self._rack:
            raise ValueError("rack: name a rack")

    def preference(
        self, partition: TopicPartition, replicas: Sequence[int], racks: Mapping[int, str | None]
    ) -> Sequence[int]:
        return sorted(replicas, key=lambda replica: racks.get(replica) != self._rack)
