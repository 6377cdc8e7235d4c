"""The REST API's write requests and their znodes as data; ``test_system_rest.py`` runs them on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Write:
    """A request, and the znodes that it writes.

    In strings, ``{topic}`` is the name of an existing topic, ``{new}`` an unused name, ``{plan}`` the next plan's ID.

    :param znodes: paths of the znodes; a final ``*`` is a number that ZooKeeper chooses.
    :param before: requests that must be sent first, as (method, path, body); ``after`` clean up in the same form.
    :param is_taken: True if the controller deletes the znode when it processes it: the controller is paused meanwhile.
    :param until: (path, field, value): the request is sent when a GET of the path returns this value in the field.
    :param is_changed: True if the controller also writes the znodes: the controller is paused meanwhile.
    :param variable_fields: fields of the znodes' data that differ between requests.
    """

    name: str
    method: str
    path: str
    znodes: Sequence[str]
    body: Any = None
    before: Sequence[tuple[str, str, Any]] = ()
    after: Sequence[tuple[str, str, Any]] = ()
    is_taken: bool = False
    until: tuple[str, str, str] | None = None
    is_changed: bool = False
    variable_fields: Mapping[str, Any] = field(default_factory=dict)


LONG_PLAN = (
    ("PATCH", "/v1/topics/{topic}", {"partitions": 2}),
    ("POST", "/v1/plans", {"kind": "remove_partitions", "topic": "{topic}", "partitions": 1, "wait_ms": 600_000}),
)
"""A plan that takes ten minutes; the partition remains readable."""

WRITES = (
    Write(
        "make a topic",
        "POST",
        "/v1/topics",
        ("/config/topics/{new}", "/brokers/topics/{new}"),
        {"name": "{new}", "partitions": 2, "replication_factor": 2, "configs": {"retention.ms": 1000}},
        variable_fields={"topic_id": None, "partitions": None},
    ),
    Write(
        "make a topic, its replicas chosen",
        "POST",
        "/v1/topics",
        ("/brokers/topics/{new}",),
        {"name": "{new}", "assignment": {"0": [1], "1": [2]}},
        variable_fields={"topic_id": None},
    ),
    Write("grow a topic", "PATCH", "/v1/topics/{topic}", ("/brokers/topics/{topic}",), {"partitions": 3}),
    Write("delete a topic", "DELETE", "/v1/topics/{topic}", ("/admin/delete_topics/{topic}",), is_taken=True),
    Write(
        "set a topic's setting for the first time",
        "PATCH",
        "/v1/configs/topics/{topic}",
        ("/config/topics/{topic}", "/config/changes/config_change_*"),
        {"set": {"cleanup.policy": "compact"}},
    ),
    Write(
        "change a topic's settings",
        "PATCH",
        "/v1/configs/topics/{topic}",
        ("/config/topics/{topic}", "/config/changes/config_change_*"),
        {"set": {"retention.bytes": 4096}, "remove": ["cleanup.policy"]},
        before=[("PATCH", "/v1/configs/topics/{topic}", {"set": {"cleanup.policy": "compact"}})],
    ),
    Write(
        "change a broker's settings",
        "PATCH",
        "/v1/configs/brokers/2",
        ("/config/brokers/2", "/config/changes/config_change_*"),
        {"set": {"log.retention.ms": 7200000}},
    ),
    Write(
        "change all brokers' settings",
        "PATCH",
        "/v1/configs/brokers/default",
        ("/config/brokers/<default>", "/config/changes/config_change_*"),
        {"set": {"log.retention.ms": 3600000}},
    ),
    Write(
        "cordon a broker",
        "PUT",
        "/v1/brokers/2/cordon",
        ("/kreplica/cordoned/2",),
        {"reason": "its disk is old"},
        after=[("DELETE", "/v1/brokers/2/cordon", None)],
        variable_fields={"since_ms": None},
    ),
    Write(
        "uncordon a broker",
        "DELETE",
        "/v1/brokers/2/cordon",
        ("/kreplica/cordoned/2",),
        before=[("PUT", "/v1/brokers/2/cordon", {})],
    ),
    Write(
        "have preferred leaders elected",
        "POST",
        "/v1/elections",
        ("/admin/preferred_replica_election",),
        {"type": "preferred", "partitions": [{"topic": "{topic}", "partition": 0}]},
        is_taken=True,
    ),
    Write(
        "make a plan",
        "POST",
        "/v1/plans",
        (
            "/kreplica/plans",
            "/kreplica/plans/{plan}",
            "/kreplica/plans/{plan}/steps",
            "/kreplica/plans/{plan}/progress",
            "/kreplica/plans/{plan}/steps/00000000",
        ),
        {"kind": "add_partitions", "topic": "{topic}", "partitions": 3, "comment": "more readers"},
        is_changed=True,
        variable_fields={"created_at_ms": None},
    ),
    Write(
        "change a plan",
        "PATCH",
        "/v1/plans/{plan}",
        ("/kreplica/plans/{plan}",),
        {"throttle_bytes_per_second": 1000, "moves_at_once": 2},
        before=LONG_PLAN,
        after=[("POST", "/v1/plans/{plan}/cancel", {})],
        until=("/v1/plans/{plan}", "state", "running"),
        is_changed=True,
    ),
    Write(
        "cancel a plan",
        "POST",
        "/v1/plans/{plan}/cancel",
        ("/kreplica/plans/{plan}",),
        {"rollback": True},
        before=LONG_PLAN,
        until=("/v1/plans/{plan}", "state", "running"),
        is_changed=True,
    ),
    Write(
        "forget a plan",
        "DELETE",
        "/v1/plans/{plan}",
        ("/kreplica/plans/{plan}/steps", "/kreplica/plans/{plan}/progress", "/kreplica/plans/{plan}"),
        before=[("POST", "/v1/plans", {"kind": "rebalance", "topics": ["{topic}"]})],
        until=("/v1/plans/{plan}", "state", "completed"),
    ),
)
