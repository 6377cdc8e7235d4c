"""A blocking client over ``kreplica.wire`` on plain sockets, for scripts, the command line and Spark's workers.

It imports no Twisted, starts no thread, and works against any Kafka-compatible cluster.  Nothing here is safe for use
by several threads at once: give each thread its own ``Cluster`` and what is made of it.  Nothing happens between calls.

* ``cluster``: ``Cluster``, where all begins: brokers, leaders and coordinators, and what is tried again
* ``views`` what a cluster looks like, as frozen values; ``addresses`` where to begin
* ``connection`` one connection to one broker; ``connections`` those of one owner
* ``patience`` how long one operation goes on trying
* ``surroundings`` the seams: clocks, sleep, randomness, sockets
* ``errors`` what can go wrong, and whether another try makes sense
* ``producer``: ``Producer``, records in; ``lanes`` what is on its way to each partition; ``delivery`` what became of a
  record; ``partitioning`` where records without a key go; ``transactions`` a transaction's talk with its coordinator
* ``reader``: ``Reader``, records out; ``fetching`` its requests; ``batches`` what of an answer a reader may see
* ``offsets`` offsets by time, and those that groups committed
* ``admin`` topics, settings, sizes
"""

from kreplica.blocking.batches import Isolation, ReadBatch
from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import ClientOptions
from kreplica.blocking.delivery import Delivery
from kreplica.blocking.errors import BrokerRefused, ClientError, DeliveryFailed
from kreplica.blocking.producer import Producer, ProducerOptions
from kreplica.blocking.reader import Reader, ReaderOptions
from kreplica.blocking.surroundings import Surroundings, real_surroundings
from kreplica.model import TopicPartition
from kreplica.wire.compression import Codec

__all__ = [
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
    "Surroundings",
    "TopicPartition",
    "real_surroundings",
]
