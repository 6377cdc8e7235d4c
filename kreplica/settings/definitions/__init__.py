"""Definitions of all broker and topic settings: those of Apache Kafka 3.9 and those that begin with ``kreplica.``.

``helpers`` contains constants and functions for these tables, ``unsupported`` the settings of unsupported features.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kreplica.settings.definitions import (
    cluster,
    coordinators,
    limits,
    listeners,
    logs,
    own_settings,
    records,
    replication,
    security,
    unsupported,
)
from kreplica.settings.definitions.topics import TOPIC
from kreplica.settings.setting import Setting

BROKER_GROUPS: Mapping[str, tuple[Setting, ...]] = MappingProxyType(
    {
        "Identity": cluster.IDENTITY,
        "Listeners": listeners.LISTENERS,
        "ZooKeeper": cluster.ZOOKEEPER,
        "Topics": cluster.TOPICS,
        "Storage": logs.STORAGE,
        "Retention and compaction": logs.RETENTION,
        "Replication": replication.REPLICATION,
        "Controller": cluster.CONTROLLER,
        "Connections and requests": listeners.CONNECTIONS,
        "Idempotent producers": coordinators.PRODUCERS,
        "Groups": coordinators.GROUPS,
        "Transactions": coordinators.TRANSACTIONS,
        "kreplica's own": own_settings.OWN_SETTINGS,
        "Formats of records": records.RECORDS,
        "Memory limits": limits.LIMITS,
        "Security": security.SECURITY,
        "Settings without effect": unsupported.UNSUPPORTED,
    }
)
"""The broker settings by heading of the reference page, in the order of the page."""

BROKER_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {setting.name: setting for group in BROKER_GROUPS.values() for setting in group}
)
"""Broker settings by name."""

TOPIC_SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in TOPIC})
"""Topic settings by name."""
