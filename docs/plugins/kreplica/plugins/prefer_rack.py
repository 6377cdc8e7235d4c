"""Leader election that prefers replicas in one rack, for example the rack of most clients.

kreplica.leader.election=prefer-rack
kreplica.plugin.prefer-rack.rack=eu-1a
auto.leader.rebalance.enable=false

Automatic leader rebalancing considers only the order of the replica assignment and would revert these elections.
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
    "Prefers leaders in one rack.",
    {"rack": "The name of the rack, as in broker.rack."},
)


@implementer(ILeaderElection)
class PreferRack:
    """Prefers replicas in the rack; otherwise keeps the order of the replica assignment."""

    def __init__(self, context: PluginContext) -> None:
        """:raise ValueError: no rack is given."""
        self._rack = context.settings.get("rack", "")
        if not self._rack:
            raise ValueError("rack: a rack is required")

    def preference(
        self, partition: TopicPartition, replicas: Sequence[int], racks: Mapping[int, str | None]
    ) -> Sequence[int]:
        return sorted(replicas, key=lambda replica: racks.get(replica) != self._rack)
