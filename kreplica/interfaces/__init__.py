"""What plugins may provide, and what they are given: all that a plugin needs to import (``docs/how-to/plugins.md``).

* ``making`` how a plugin is found and made; ``context`` what its factory is given
* ``cluster`` ``IReplicaPlacement``, ``ILeaderElection``
* ``authorization`` ``IAuthorizer``
* ``interception`` ``IProduceInterceptor``; ``records`` a record
* ``metrics`` ``IMetricsReporter``, and the figures themselves
* ``listeners`` ``IExtraListener``

A distribution drops ``kreplica/plugins/NAME.py`` (no ``__init__.py`` beside it) on the path, with a ``Plugin`` in it;
``twisted.plugin`` finds it there, and a broker's settings choose it by name.  One object is made for each broker that
chose it, so nothing is shared between the brokers of one process.

Everything is called on the reactor's thread, must return within a millisecond or so, and takes time, randomness, files
and sockets from the ``Runtime`` alone: then it also runs in the simulator, the same way each time.  A plugin that
raises is logged and counted (``kreplica_plugin_errors``), and what its interface says is done instead.
"""

from kreplica.interfaces.authorization import (
    CLUSTER,
    IAuthorizer,
    Operation,
    Principal,
    Resource,
    ResourceType,
)
from kreplica.interfaces.cluster import ILeaderElection, IReplicaPlacement, PlacementBroker
from kreplica.interfaces.context import BrokerView, LedPartitions, LogBatch, PluginContext
from kreplica.interfaces.interception import Instead, IProduceInterceptor, ProducedBatch, Refuse
from kreplica.interfaces.listeners import IExtraListener
from kreplica.interfaces.making import IPluginMaker, Plugin
from kreplica.interfaces.metrics import (
    Buckets,
    Family,
    Histogram,
    IMetricsReporter,
    MetricKind,
    Sample,
)
from kreplica.interfaces.records import Headers, LogRecord

__all__ = [
    "CLUSTER",
    "BrokerView",
    "Buckets",
    "Family",
    "Headers",
    "Histogram",
    "IAuthorizer",
    "IExtraListener",
    "ILeaderElection",
    "IMetricsReporter",
    "IPluginMaker",
    "IProduceInterceptor",
    "IReplicaPlacement",
    "Instead",
    "LedPartitions",
    "LogBatch",
    "LogRecord",
    "MetricKind",
    "Operation",
    "PlacementBroker",
    "Plugin",
    "PluginContext",
    "Principal",
    "ProducedBatch",
    "Refuse",
    "Resource",
    "ResourceType",
    "Sample",
]
