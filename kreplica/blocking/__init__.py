"""A blocking client on plain sockets, for scripts, the command line and Spark's workers.

It does not use Twisted or threads, and works with any Kafka-compatible cluster.  Objects are not thread-safe: each
thread needs its own ``Cluster``.  Requests are sent and responses are processed only during calls.

* ``cluster``: ``Cluster``, the entry point; ``coroutines``: runs the client core without an event loop
* ``connection``: a connection to one broker; ``connections``: a set of connections
* ``blocking_runtime``: clocks, sleep, randomness and sockets
* ``secured_runtime``: TLS and SASL; ``token_login``, ``http_exchange``: bearer tokens
* ``producer``: ``Producer``; ``producer_options``: its options; ``sender``: Produce requests
* ``transactions``: transactions that only commit offsets, and the end of prepared transactions
* ``reader``: ``Reader``, which consumes partitions without a group
* ``offsets``: offsets by time, and committed offsets
* ``admin``: topics, configurations, replica sizes and delegation tokens

Routing, retries, transaction phases and the effect of responses are in ``kreplica.client_core``.
"""

from kreplica.blocking.blocking_runtime import BlockingRuntime, default_runtime
from kreplica.blocking.cluster import Cluster
from kreplica.blocking.producer import Producer
from kreplica.blocking.producer_options import ProducerOptions
from kreplica.blocking.reader import Reader, ReaderOptions
from kreplica.client_core.delivery import Delivery
from kreplica.client_core.errors import BrokerRefused, ClientError, DeliveryFailed
from kreplica.client_core.fetched_batches import Isolation, ReadBatch
from kreplica.client_core.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.wire.compression import Codec

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "BlockingRuntime",
    "BrokerRefused",
    "ClientError",
    "ClientOptions",
    "Cluster",
    "Codec",
    "Delivery",
    "DeliveryFailed",
    "Isolation",
    "Producer",
    "ProducerOptions",
    "ReadBatch",
    "Reader",
    "ReaderOptions",
    "TopicPartition",
    "default_runtime",
]
