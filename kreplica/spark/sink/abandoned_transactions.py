"""Abandoned transactions of a sink: left open by failed tries and by task attempts other than the last.

Open transactions hold back read-committed consumers, forever if they have no timeout. The sink looks them up before it
decides a micro-batch and aborts them after the decision. The decision succeeds only if no newer run started before it;
a later run uses other producer epochs, so it is not affected.
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
"""Longer than brokers take to detect that another broker failed."""

_OF_A_LANE = re.compile(r"-[0-9a-f]+-\d+-\d+")


class Leftover(NamedTuple):
    """An open transaction of a lane, and the producer ID and epoch that end it."""

    transactional_id: str
    identity: ProducerIdentity


def find_leftovers(cluster: Cluster, sink_id: str, wanted: Container[str]) -> list[Leftover]:
    """Return the open transactions of a sink's lanes.

    :param wanted: transactional IDs to skip, because they will be committed.
    :raise ClientError: a broker or a coordinator does not respond.
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
    """Return the producer that has an open transaction with that transactional ID, or None.

    :raise ClientError: the coordinator does not respond.
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
    """Abort transactions; those that cannot be aborted are retried with the next micro-batch."""
    for name, identity in leftovers:
        try:
            end_transaction(cluster, name, identity, commit=False)
        except ClientError as error:
            log.warning("transaction %s of an earlier try is still open: %s", name, error)
