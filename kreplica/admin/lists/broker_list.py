"""The list of brokers: columns of the metadata and registrations, and of their live metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kreplica.admin.health.schemas import FAULT
from kreplica.admin.http.schemas import BOOLEAN, BROKER_ID, COUNT, RATE_OR_NULL, STRING, TIME_MS, listing, nullable
from kreplica.admin.lists.columns import Column, Columns
from kreplica.admin.lists.pages import ValueOf

LIVE_METRICS = "live-metrics"
"""Source of columns: the live metrics of each broker."""

HEALTH = "health"
"""Source of the column ``faults``: the health report, which waits up to a second for a broker that does not respond."""

_NULL_IF_DEAD = "Null if the broker is not alive, or if ZooKeeper does not respond."

MEMBERS = {
    "broker_id": BROKER_ID,
    "live": {**BOOLEAN, "description": "False for a broker that has replicas but is not registered."},
    "rack": nullable(STRING),
    "endpoints": {**listing(STRING), "description": "Listeners as LISTENER://HOST:PORT."},
    "broker_epoch": {**nullable(COUNT), "description": f"Changes at each start. {_NULL_IF_DEAD}"},
    "registered_at_ms": {**nullable(TIME_MS), "description": f"Milliseconds since 1970. {_NULL_IF_DEAD}"},
    "admin_url": {**nullable(STRING), "description": "URL of its admin API, if enabled."},
    "is_controller": BOOLEAN,
    "cordoned": {**BOOLEAN, "description": "True if the broker gets no new replicas; existing ones stay."},
    "leaders": {**COUNT, "description": "Partitions that it leads."},
    "replicas": {**COUNT, "description": "Replicas on the broker, including leaders."},
    "under_replicated_leaders": {**COUNT, "description": "Under-replicated partitions that it leads."},
}
"""Columns of every response."""

_SILENT = "Null if the broker does not respond."

LIVE = {
    "version": {**nullable(STRING), "description": f"Version of kreplica. {_SILENT}"},
    "python": {
        **nullable(STRING),
        "description": f"Version of Python; `optimized` if compiled with profile-guided optimization. {_SILENT}",
    },
    "connections": {**nullable(COUNT), "description": f"Open connections. {_SILENT}"},
    "log_bytes": {**nullable(COUNT), "description": f"Size of all its logs. {_SILENT}"},
    "usable_bytes": {**nullable(COUNT), "description": f"Free space of the log directory with the least. {_SILENT}"},
    "offline_log_dirs": {**nullable(COUNT), "description": f"Failed log directories. {_SILENT}"},
    "bytes_in_rate": {**RATE_OR_NULL, "description": f"Bytes of produce requests per second. {_SILENT}"},
    "bytes_out_rate": {**RATE_OR_NULL, "description": f"Bytes of fetch responses per second. {_SILENT}"},
    "messages_in_rate": {**RATE_OR_NULL, "description": f"Records appended per second. {_SILENT}"},
    "reactor_delay_p99_ms": {**RATE_OR_NULL, "description": f"99th percentile of the event loop's delay. {_SILENT}"},
}

FAULTS = {**listing(FAULT), "description": "Its faults, most important first."}

COLUMNS = Columns(
    "broker_id",
    [
        *(Column(name, schema, is_default=True) for name, schema in MEMBERS.items()),
        *(Column(name, schema, LIVE_METRICS) for name, schema in LIVE.items()),
        Column("faults", FAULTS, HEALTH),
    ],
)

Rows = Mapping[int, Mapping[str, Any]]

FaultsOf = Callable[[int], Sequence[Mapping[str, Any]]]
"""Returns the faults of a broker, by its ID."""


def values_of(rows: Rows, metrics: Rows, faults_of: FaultsOf) -> dict[str, ValueOf]:
    """Return the values of all columns by broker ID.

    :param metrics: the live metrics of the brokers that responded.
    """

    def member(name: str) -> Callable[[int], Any]:
        return lambda broker_id: rows[broker_id][name]

    def live(name: str) -> Callable[[int], Any]:
        return lambda broker_id: metrics.get(broker_id, {}).get(name)

    values = {**{name: member(name) for name in MEMBERS}, **{name: live(name) for name in LIVE}}
    return {**values, "faults": faults_of}
