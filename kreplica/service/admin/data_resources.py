"""What users of a cluster ask a broker for, with what it wants of the broker filled in: records and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kreplica.admin.groups.asking import GroupCoordinators
from kreplica.admin.http.api import Resource
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.leaders import Leaders
from kreplica.admin.resources.groups import Groups
from kreplica.admin.resources.messages import Messages
from kreplica.admin.resources.standalone import StandaloneResource
from kreplica.service.admin.group_documents import GroupDocuments

if TYPE_CHECKING:
    from kreplica.service.broker.broker import Broker


def data_resources(broker: Broker, others: OtherBrokers) -> Sequence[Resource]:
    """Records of topics, groups; and the brokers of the process, where there are several."""
    runtime, connections = broker.runtime, broker.coordinators.data_connections
    leaders = Leaders(broker.metadata, connections)
    documents = GroupDocuments(broker.coordinators)
    coordinators = GroupCoordinators(runtime.reactor, broker.broker_id, documents, connections)
    return (
        Messages(runtime, leaders),
        Groups(runtime, leaders, coordinators, documents.lag_of, others),
        StandaloneResource(broker.standalone),
    )
