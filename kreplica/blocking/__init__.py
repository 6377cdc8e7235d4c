"""A blocking client over ``kreplica.wire`` on plain sockets, for scripts, the command line and Spark's workers.

It imports no Twisted, starts no thread, and works against any Kafka-compatible cluster.  Nothing here is safe for use
by several threads at once: give each thread its own ``Cluster`` and what is made of it.  Nothing happens between calls.

* ``cluster``: ``Cluster``, where all begins: brokers, leaders and coordinators, and what is tried again
* ``connection`` one connection to one broker; ``connections`` those of one owner
* ``patience`` how long one operation goes on trying
* ``runtime`` the seams: clocks, sleep, randomness, sockets
* ``producer``: ``Producer``, records in; ``producer_options`` how; ``sending`` its requests; ``transactions`` a
  transaction's talk with its coordinator
* ``reader``: ``Reader``, records out
* ``offsets`` offsets by time, and those that groups committed
* ``admin`` topics, settings, sizes

What needs no socket is in ``kreplica.client_core``: errors, views, batches, and what is on its way to a partition.
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
