"""What people who operate a cluster ask a broker for, with what it wants of the broker filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kreplica.admin.http.api import Resource
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.plans.reading import PlansRead
from kreplica.admin.plans.replica_sizes import ReplicaSizes
from kreplica.admin.resources.figures import FiguresResource
from kreplica.admin.resources.plans import Plans
from kreplica.admin.resources.timeline import Timeline
from kreplica.admin.resources.why import Known, Sources, Why
from kreplica.admin.why.partition_facts import PartitionFactsRead, Rules
from kreplica.controller.history.audit_events import KINDS
from kreplica.service.admin.group_facts import LocalGroupFacts
from kreplica.service.metrics.live_metrics import LiveFigures

if TYPE_CHECKING:
    from kreplica.runtime.stalls import StallWatch
    from kreplica.service.broker.broker import Broker


def operating_resources(
    broker: Broker, stalls: StallWatch, registrations: Registrations, others: OtherBrokers
) -> Sequence[Resource]:
    """Plans, what happened and happens, why things are as they are, figures for charts."""
    runtime, broker_id = broker.runtime, broker.broker_id
    connections = broker.coordinators.connections
    return (
        Plans(runtime, broker.client, broker.metadata, registrations, connections),
        Timeline(runtime.reactor, broker_id, broker.controller.memory.chronicle, KINDS, others),
        _why(broker, stalls, registrations, others),
        FiguresResource(broker_id, runtime.wall_clock_ms, LiveFigures(broker, stalls), registrations, others),
    )


def _why(broker: Broker, stalls: StallWatch, registrations: Registrations, others: OtherBrokers) -> Why:
    client, connections, dynamic = broker.client, broker.coordinators.connections, broker.dynamic_settings
    memory = broker.controller.memory
    plans, sizes = PlansRead(client), ReplicaSizes(broker.runtime.reactor.seconds, connections)

    def rules(topic: str) -> Rules:
        return Rules(dynamic.min_insync_replicas(topic), dynamic.unclean_election_allowed(topic))

    partitions = PartitionFactsRead(client, broker.metadata, registrations, connections, sizes, plans, rules)
    known = Known(broker.broker_id, memory, memory.chronicle, LocalGroupFacts(broker), stalls)
    return Why(broker.runtime, known, Sources(client, registrations, connections, partitions, plans, sizes), others)
