"""Transactions of lanes that no later try takes over: those of a try that had more tasks.

Left alone they would hold back readers of committed records, for ever where they have no time-out.  They are looked up
before a micro-batch is decided and aborted after that: that the decision came about says that nobody began later, and
whoever has begun since has other numbers.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kreplica.blocking import Cluster
from kreplica.blocking.connection import Connection
from kreplica.blocking.transactions import end_transaction
from kreplica.sansio.errors import ClientError, check
from kreplica.sansio.lanes import ProducerIdentity
from kreplica.sansio.views import CoordinatorKind
from kreplica.wire.messages import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS

log = logging.getLogger(__name__)

ONGOING = "Ongoing"


class Leftover(NamedTuple):
    """A lane's open transaction, and by which numbers it is ended."""

    transactional_id: str
    identity: ProducerIdentity


def find_leftovers(cluster: Cluster, sink_id: str, count: int) -> list[Leftover]:
    """Open transactions of a sink's lanes from a number on.

    :param count: so many lanes the micro-batch has itself.
    :raise ClientError: a broker or a coordinator does not answer.
    """
    names: set[str] = set()
    for broker_id in sorted(cluster.retrying(cluster.refresh).brokers):
        body = {"state_filters": [ONGOING], "producer_id_filters": [], "duration_filter": -1}
        answer = cluster.connection(broker_id).request(LIST_TRANSACTIONS, body)
        check(answer, f"transactions of broker {broker_id}")
        names.update(row["transactional_id"] for row in answer["transaction_states"])
    found = []
    for name in sorted(names):
        prefix, _, number = name.rpartition("-")
        if prefix == sink_id and number.isdecimal() and int(number) >= count:
            leftover = _describe(cluster, name)
            if leftover is not None:
                found.append(leftover)
    return found


def _describe(cluster: Cluster, name: str) -> Leftover | None:
    def attempt(connection: Connection) -> Leftover | None:
        row = connection.request(DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]})["transaction_states"][0]
        check(row, f"transaction {name!r}")
        if row["transaction_state"] != ONGOING:
            return None
        return Leftover(name, ProducerIdentity(row["producer_id"], row["producer_epoch"]))

    return cluster.at_coordinator(CoordinatorKind.TRANSACTION, name, attempt)


def abort_leftovers(cluster: Cluster, leftovers: list[Leftover]) -> None:
    """Abort them; what cannot be aborted is left for the next time."""
    for name, identity in leftovers:
        try:
            end_transaction(cluster, name, identity, commit=False)
        except ClientError as error:
            log.warning("transaction %s of an earlier try is still open: %s", name, error)
