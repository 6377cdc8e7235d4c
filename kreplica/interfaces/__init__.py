"""Interfaces between the broker and its plugins; plugins import only this package (``docs/how-to/plugins.md``).

* ``plugin`` finding and creating plugins; ``context`` the argument of their factories
* ``cluster`` ``IReplicaPlacement``, ``ILeaderElection``
* ``authorization`` ``IAuthorizer``
* ``authentication`` ``ISaslMechanism``
* ``interception`` ``IProduceInterceptor``; ``records`` a record
* ``metrics`` ``IMetricsReporter`` and metric families
* ``listeners`` ``IExtraListener``
* ``formats`` ``IRecordFormat``

A distribution installs ``kreplica/plugins/NAME.py`` (without an ``__init__.py``) on the path, with a ``Plugin`` in
it. ``twisted.plugin`` finds it, and a broker's settings select it by name. Each broker creates its own plugin objects,
so the brokers of one process share nothing.

All methods are called on the reactor's thread and must return within about a millisecond. A plugin uses only the time,
randomness, files and sockets of its ``Runtime``, so it also runs deterministically in the simulator. If a plugin
raises, the error is logged and counted (``kreplica_plugin_errors``), and the broker uses the fallback that the
interface documents.
"""

import warnings
from typing import Any

from kreplica.interfaces.authentication import AuthenticationError, ISaslMechanism, ServerExchange
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
from kreplica.interfaces.formats import (
    Decoded,
    FormatContext,
    FormatError,
    IRecordFormat,
    Place,
    RegisteredSchema,
    SchemaNotLoaded,
    Schemas,
)
from kreplica.interfaces.interception import IProduceInterceptor, ProducedBatch, RejectBatch, ReplaceRecords
from kreplica.interfaces.listeners import IExtraListener
from kreplica.interfaces.metrics import (
    Buckets,
    Family,
    Histogram,
    IMetricsReporter,
    MetricKind,
    Sample,
)
from kreplica.interfaces.plugin import IPluginMaker, Plugin
from kreplica.interfaces.records import Headers, LogRecord

__all__ = [
    "CLUSTER",
    "AuthenticationError",
    "BrokerView",
    "Buckets",
    "Decoded",
    "Family",
    "FormatContext",
    "FormatError",
    "Headers",
    "Histogram",
    "IAuthorizer",
    "IExtraListener",
    "ILeaderElection",
    "IMetricsReporter",
    "IPluginMaker",
    "IProduceInterceptor",
    "IRecordFormat",
    "IReplicaPlacement",
    "ISaslMechanism",
    "LedPartitions",
    "LogBatch",
    "LogRecord",
    "MetricKind",
    "Operation",
    "Place",
    "PlacementBroker",
    "Plugin",
    "PluginContext",
    "Principal",
    "ProducedBatch",
    "RegisteredSchema",
    "RejectBatch",
    "ReplaceRecords",
    "Resource",
    "ResourceType",
    "Sample",
    "SchemaNotLoaded",
    "Schemas",
    "ServerExchange",
]

_RENAMED = {"Instead": ReplaceRecords, "Refuse": RejectBatch}
"""Classes by their deprecated names."""


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    current = _RENAMED[name]
    warnings.warn(f"{__name__}.{name} is deprecated; use {current.__name__}", DeprecationWarning, stacklevel=2)
    return current
