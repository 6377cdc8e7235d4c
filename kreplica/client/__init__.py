"""Speaking to brokers on Twisted: what fetchers, the controller and client programs stand on.

* ``cluster``: where a client begins: brokers, leaders, coordinators, and trying again
* ``admin``: all that can be asked of a cluster besides records
* ``connections``: one connection to each broker, opened again after a loss
* ``connection``: one pipelined connection to one broker
* ``negotiation``: which version of an API to speak with it
* ``surroundings``: reactor, clock, randomness and network, which a client is given
* ``errors``: what can go wrong on the way
"""

from kreplica.client import errors
from kreplica.client.admin import Admin
from kreplica.client.cluster import Cluster
from kreplica.client.surroundings import Surroundings, real_surroundings, surroundings_of, tls_endpoints
from kreplica.model import TopicPartition
from kreplica.sansio.options import ClientOptions

__all__ = [
    "Admin",
    "ClientOptions",
    "Cluster",
    "Surroundings",
    "TopicPartition",
    "errors",
    "real_surroundings",
    "surroundings_of",
    "tls_endpoints",
]
