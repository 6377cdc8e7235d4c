"""Builds the handlers of the transaction APIs."""

from __future__ import annotations

from typing import Protocol

from kreplica.membership.producer_ids import ProducerIds
from kreplica.replication import Partitions
from kreplica.runtime import Runtime
from kreplica.server.handlers.transactions.add_offsets_to_txn import AddOffsetsToTxn
from kreplica.server.handlers.transactions.add_partitions_to_txn import AddPartitionsToTxn
from kreplica.server.handlers.transactions.describe_producers import DescribeProducers
from kreplica.server.handlers.transactions.describe_transactions import DescribeTransactions
from kreplica.server.handlers.transactions.end_txn import EndTxn
from kreplica.server.handlers.transactions.init_producer_id import InitProducerId
from kreplica.server.handlers.transactions.list_transactions import ListTransactions
from kreplica.server.handlers.transactions.txn_offset_commit import TxnOffsetCommit
from kreplica.server.handlers.transactions.write_txn_markers import WriteTxnMarkers
from kreplica.server.metadata.internal_topics import InternalTopics
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Handler
from kreplica.service.broker.coordinators import Coordinators
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.wire import messages
from kreplica.wire.messages import Api


class TransactionApiDependencies(Protocol):
    """Parts of a broker that the handlers of the transaction APIs need."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def coordinators(self) -> Coordinators: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def producer_ids(self) -> ProducerIds: ...


def transaction_handlers(
    broker: TransactionApiDependencies, internal_topics: InternalTopics
) -> list[tuple[Api, Handler]]:
    """Return the handlers of all transaction APIs."""
    coordinators, partitions, metadata = broker.coordinators, broker.partitions, broker.metadata
    transactions, groups, view = coordinators.transactions, coordinators.groups, coordinators.view
    reactor, wall_clock_ms = broker.runtime.reactor, broker.runtime.wall_clock_ms
    metadata_max = broker.settings["offset.metadata.max.bytes"]
    return [
        (messages.INIT_PRODUCER_ID, InitProducerId(broker.producer_ids, transactions)),
        (messages.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxn(transactions, view)),
        (messages.ADD_OFFSETS_TO_TXN, AddOffsetsToTxn(transactions, view, internal_topics)),
        (messages.END_TXN, EndTxn(transactions)),
        (messages.WRITE_TXN_MARKERS, WriteTxnMarkers(reactor, partitions, metadata, groups.shards, wall_clock_ms)),
        (
            messages.TXN_OFFSET_COMMIT,
            TxnOffsetCommit(groups, partitions, coordinators.admission, view, wall_clock_ms, metadata_max),
        ),
        (messages.DESCRIBE_PRODUCERS, DescribeProducers(reactor, partitions)),
        (messages.DESCRIBE_TRANSACTIONS, DescribeTransactions(transactions)),
        (messages.LIST_TRANSACTIONS, ListTransactions(reactor, transactions, wall_clock_ms)),
    ]
