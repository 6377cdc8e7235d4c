"""Kafka client on Twisted, for applications and for requests between brokers.

* ``cluster``: ``Cluster``, the entry point, which runs the client core on a reactor
* ``consumer``: consumes records; ``group``: membership in a consumer group
* ``producer``: writes records, optionally in transactions
* ``admin``: administration
* ``connections``: one connection per broker; ``connection``: a pipelined connection
* ``client_runtime``: reactor, clock, randomness and endpoints
* ``errors``: exceptions
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kreplica.client import errors

if TYPE_CHECKING:
    from kreplica.client.admin import Admin
    from kreplica.client.client_runtime import ClientRuntime, default_runtime, runtime_of, tls_endpoints
    from kreplica.client.cluster import Cluster
    from kreplica.client.consumer import (
        Concurrency,
        ConsumedBatch,
        ConsumedRecord,
        Consumer,
        ConsumerOptions,
        OffsetReset,
    )
    from kreplica.client.group import GroupIdentity, GroupOptions, GroupProtocol
    from kreplica.client.producer import OutgoingRecord, Producer, ProducerOptions, Written
    from kreplica.client.security import secured_endpoints
    from kreplica.client_core.fetched_batches import Isolation
    from kreplica.client_core.offsets import EARLIEST, LATEST, CommittedOffset, TimedOffset
    from kreplica.client_core.options import ClientOptions
    from kreplica.client_core.partitioning import (
        ConsistentPartitioner,
        DefaultPartitioner,
        Partitioner,
        RoundRobinPartitioner,
    )
    from kreplica.model import TopicPartition
    from kreplica.wire.compression import Codec

# Imported on first use, so that brokers, which only need connections, start faster.
_MODULES = {
    "Admin": "kreplica.client.admin",
    "Cluster": "kreplica.client.cluster",
    "Concurrency": "kreplica.client.consumer",
    "ConsumedBatch": "kreplica.client.consumer",
    "ConsumedRecord": "kreplica.client.consumer",
    "Consumer": "kreplica.client.consumer",
    "ConsumerOptions": "kreplica.client.consumer",
    "OffsetReset": "kreplica.client.consumer",
    "GroupIdentity": "kreplica.client.group",
    "GroupOptions": "kreplica.client.group",
    "GroupProtocol": "kreplica.client.group",
    "OutgoingRecord": "kreplica.client.producer",
    "Producer": "kreplica.client.producer",
    "ProducerOptions": "kreplica.client.producer",
    "Written": "kreplica.client.producer",
    "ClientRuntime": "kreplica.client.client_runtime",
    "default_runtime": "kreplica.client.client_runtime",
    "runtime_of": "kreplica.client.client_runtime",
    "secured_endpoints": "kreplica.client.security",
    "tls_endpoints": "kreplica.client.client_runtime",
    "TopicPartition": "kreplica.model",
    "Isolation": "kreplica.client_core.fetched_batches",
    "EARLIEST": "kreplica.client_core.offsets",
    "LATEST": "kreplica.client_core.offsets",
    "CommittedOffset": "kreplica.client_core.offsets",
    "TimedOffset": "kreplica.client_core.offsets",
    "ClientOptions": "kreplica.client_core.options",
    "ConsistentPartitioner": "kreplica.client_core.partitioning",
    "DefaultPartitioner": "kreplica.client_core.partitioning",
    "Partitioner": "kreplica.client_core.partitioning",
    "RoundRobinPartitioner": "kreplica.client_core.partitioning",
    "Codec": "kreplica.wire.compression",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "ClientOptions",
    "ClientRuntime",
    "Cluster",
    "Codec",
    "CommittedOffset",
    "Concurrency",
    "ConsistentPartitioner",
    "ConsumedBatch",
    "ConsumedRecord",
    "Consumer",
    "ConsumerOptions",
    "DefaultPartitioner",
    "GroupIdentity",
    "GroupOptions",
    "GroupProtocol",
    "Isolation",
    "OffsetReset",
    "OutgoingRecord",
    "Partitioner",
    "Producer",
    "ProducerOptions",
    "RoundRobinPartitioner",
    "TimedOffset",
    "TopicPartition",
    "Written",
    "default_runtime",
    "errors",
    "runtime_of",
    "secured_endpoints",
    "tls_endpoints",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
