"""ACLs of znodes if ``zookeeper.set.acl`` is set: the same as in Apache Kafka 3.9."""

from __future__ import annotations

from kreplica.zookeeper import CREATOR_ALL_ACL, OPEN_ACL, READ_ACL, Acl

SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Znodes with secrets: only their creator can read them and their descendants."""

OPEN_PATH = "/consumers"
"""The znode below which old consumers write; it is open to everyone."""

ROOT_PATHS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/migration",
    "/feature",
    "/kreplica",
)
"""Kafka's and kreplica's znodes that are protected, together with their descendants."""

_SENSITIVE_ACL = CREATOR_ALL_ACL
_READABLE_ACL = CREATOR_ALL_ACL + READ_ACL


def protected_acl(path: str) -> tuple[Acl, ...]:
    """Return the ACL of a znode: its creator may do everything, and everyone may read it unless it contains secrets."""
    if path == OPEN_PATH:
        return OPEN_ACL
    return _SENSITIVE_ACL if path.startswith(SENSITIVE_PATHS) else _READABLE_ACL
