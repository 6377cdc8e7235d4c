"""Transactions of lanes that nobody commits: those of tries that died, of attempts that were not the last.

Left alone they would hold back readers of committed records, for ever where they have no time-out.  They are looked up
before a micro-batch is decided and aborted after that: that the decision came about says that nobody began later, and
whoever has begun since has other numbers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container
from typing import NamedTuple

from kreplica.blocking import Cluster
from kreplica.blocking.connection import Connection
from kreplica.blocking.transactions import end_transaction
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.errors import ErrorCode
from kreplica.wire.messages import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS

log = logging.getLogger(__name__)

ONGOING = "Ongoing"
LOOK_TIMEOUT_S = 15.0
"""Longer than brokers take to notice that one of them is gone."""

_OF_A_LANE = re.compile(r"-[0-9a-f]+-\d+-\d+")


class Leftover(NamedTuple):
    """A lane's open transaction, and by which numbers it is ended."""

    transactional_id: str
    identity: ProducerIdentity


def find_leftovers(cluster: Cluster, sink_id: str, wanted: Container[str]) -> list[Leftover]:
    """Open transactions of a sink's lanes.

    :param wanted: transactional ids of those that are to be committed.
    :raise ClientError: a broker or a coordinator does not answer.
    """
    found = []
    for name in sorted(cluster.retrying(lambda: _open_names(cluster), LOOK_TIMEOUT_S)):
        is_lane = name.startswith(sink_id) and _OF_A_LANE.fullmatch(name, len(sink_id))
        identity = open_identity(cluster, name) if is_lane and name not in wanted else None
        if identity is not None:
            found.append(Leftover(name, identity))
    return found


def _open_names(cluster: Cluster) -> set[str]:
    names: set[str] = set()
    for broker_id in sorted(cluster.refresh().brokers):
        body = {"state_filters": [ONGOING], "producer_id_filters": [], "duration_filter": -1}
        answer = cluster.connection(broker_id).request(LIST_TRANSACTIONS, body)
        check(answer, f"transactions of broker {broker_id}")
        names.update(row["transactional_id"] for row in answer["transaction_states"])
    return names


def open_identity(cluster: Cluster, transactional_id: str) -> ProducerIdentity | None:
    """Who has a transaction open by that id; None where nobody has.

    :raise ClientError: the coordinator does not say.
    """

    def attempt(connection: Connection) -> ProducerIdentity | None:
        body = {"transactional_ids": [transactional_id]}
        row = connection.request(DESCRIBE_TRANSACTIONS, body)["transaction_states"][0]
        check(row, f"transaction {transactional_id!r}")
        if row["transaction_state"] != ONGOING:
            return None
        return ProducerIdentity(row["producer_id"], row["producer_epoch"])

    try:
        return cluster.at_coordinator(CoordinatorKind.TRANSACTION, transactional_id, attempt)
    except BrokerRefused as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None


def abort_leftovers(cluster: Cluster, leftovers: list[Leftover]) -> None:
    """Abort them; what cannot be aborted is left for the next time."""
    for name, identity in leftovers:
        try:
            end_transaction(cluster, name, identity, commit=False)
        except ClientError as error:
            log.warning("transaction %s of an earlier try is still open: %s", name, error)
