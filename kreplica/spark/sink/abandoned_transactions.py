"""Abandoned transactions of a sink: left open by failed attempts to write a micro-batch, or by failed task attempts.

Read-committed consumers wait until open transactions end, which is forever if these have no timeout. The sink looks up
abandoned transactions before it decides a micro-batch, and aborts them after the decision. The decision succeeds only
if no newer run has started; a run that starts later has other producer epochs, so its transactions are not aborted.
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
SEARCH_TIMEOUT_S = 15.0
"""Timeout of the lookup; brokers detect the failure of another broker in less time."""

_LANE_SUFFIX = re.compile(r"-[0-9a-f]+-\d+-\d+")


class AbandonedTransaction(NamedTuple):
    """An open transaction of a lane, and the producer ID and epoch for ending it."""

    transactional_id: str
    identity: ProducerIdentity


def find_abandoned(cluster: Cluster, sink_id: str, to_commit: Container[str]) -> list[AbandonedTransaction]:
    """Return the open transactions of a sink's lanes.

    :param to_commit: transactional IDs whose transactions are not abandoned.
    :raise ClientError: a broker or a coordinator does not respond.
    """
    found = []
    for name in sorted(cluster.retrying(lambda: _open_transactional_ids(cluster), SEARCH_TIMEOUT_S)):
        is_lane = name.startswith(sink_id) and _LANE_SUFFIX.fullmatch(name, len(sink_id))
        identity = open_producer(cluster, name) if is_lane and name not in to_commit else None
        if identity is not None:
            found.append(AbandonedTransaction(name, identity))
    return found


def _open_transactional_ids(cluster: Cluster) -> set[str]:
    names: set[str] = set()
    for broker_id in sorted(cluster.refresh().brokers):
        body = {"state_filters": [ONGOING], "producer_id_filters": [], "duration_filter": -1}
        response = cluster.connection(broker_id).request(LIST_TRANSACTIONS, body)
        check(response, f"transactions of broker {broker_id}")
        names.update(row["transactional_id"] for row in response["transaction_states"])
    return names


def open_producer(cluster: Cluster, transactional_id: str) -> ProducerIdentity | None:
    """Return the producer of a transactional ID's open transaction, or None.

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


def abort_abandoned(cluster: Cluster, abandoned: list[AbandonedTransaction]) -> None:
    """Abort transactions; those that cannot be aborted are retried with the next micro-batch."""
    for name, identity in abandoned:
        try:
            end_transaction(cluster, name, identity, commit=False)
        except ClientError as error:
            log.warning("transaction %s of an earlier attempt is still open: %s", name, error)
