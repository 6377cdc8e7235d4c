"""Speaking to brokers on Twisted: what fetchers, the controller and client programs stand on.

* ``cluster``: where a client begins: brokers, leaders, coordinators, and trying again
* ``consumer``: records out; ``group``: a consumer's place in its group
* ``admin``: all that can be asked of a cluster besides records
* ``producer``: writes records, in transactions or not
* ``connections``: one connection to each broker, opened again after a loss
* ``connection``: one pipelined connection to one broker
* ``negotiation``: which version of an API to speak with it
* ``surroundings``: reactor, clock, randomness and network, which a client is given
* ``errors``: what can go wrong on the way
"""

from kreplica.client import errors
from kreplica.client.admin import Admin
from kreplica.client.cluster import Cluster
from kreplica.client.consumer import Concurrency, ConsumedBatch, ConsumedRecord, Consumer, ConsumerOptions, OffsetReset
from kreplica.client.group import GroupIdentity, GroupOptions, GroupProtocol
from kreplica.client.producer import OutgoingRecord, Producer, ProducerOptions, Written
from kreplica.client.surroundings import Surroundings, real_surroundings, surroundings_of, tls_endpoints
from kreplica.model import TopicPartition
from kreplica.sansio.batches import Isolation
from kreplica.sansio.offsets import EARLIEST, LATEST, CommittedOffset, TimedOffset
from kreplica.sansio.options import ClientOptions
from kreplica.sansio.partitioning import (
    ConsistentPartitioner,
    DefaultPartitioner,
    Partitioner,
    RoundRobinPartitioner,
)
from kreplica.wire.compression import Codec

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "ClientOptions",
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
    "Surroundings",
    "TimedOffset",
    "TopicPartition",
    "Written",
    "errors",
    "real_surroundings",
    "surroundings_of",
    "tls_endpoints",
]
