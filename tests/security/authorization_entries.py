"""Entries of the authorization matrix: a request, and the ACLs that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kreplica.security.acls.acl import AclOperation, ResourceType
from kreplica.wire.batch_building import build_batch
from kreplica.wire.messages.api import Api
from kreplica.wire.records import Record

Row = dict[str, Any]

OWN, OTHER = "own", "other"
"""Names of a topic, a group and a transactional ID; ACLs apply to names with the prefix ``own``."""

ABSENT = "own-absent"


class Context(NamedTuple):
    """Input of the functions that build requests.

    :param suffix: unique per case; part of the names that the request creates or deletes.
    :param topic_ids: IDs of the topics that exist before the first case.
    :param key_store: path of the key store of the listener TLS.
    """

    version: int
    suffix: str
    topic_ids: Mapping[str, UUID]
    key_store: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """Return two names that only this case uses; ACLs apply to the first."""
        return f"{OWN}-{self.suffix}", f"{OTHER}-{self.suffix}"


class Acl(NamedTuple):
    """An ACL for the prefix ``own``, or for the cluster."""

    type: ResourceType
    operation: AclOperation

    def __str__(self) -> str:
        return f"{self.operation.name} {self.type.name}".replace("_", " ").title()


def acls(text: str) -> tuple[Acl, ...]:
    """Parse ACLs such as ``topic read, cluster alter``."""
    pairs = (each.split() for each in text.split(",") if each)
    return tuple(Acl(ResourceType[kind.upper()], AclOperation[operation.upper()]) for kind, operation in pairs)


@dataclass(frozen=True)
class Entry:
    """A request of one API.

    :param body: builds the request.
    :param ways: alternative sets of ACLs, any one is sufficient; empty for a request that needs none.
    :param versions: further versions to try, between the lowest and the highest.
    :param first: lowest version to try.
    :param last: highest version to try.
    :param resource_type: type of resource that must exist before the request: ``topic``, ``group`` or an empty string.
    :param is_silent: True if an authorized request has no response.
    :param only_shared: True if names with a hyphen, which other cases create, are removed from lists in the response.
    """

    name: str
    api: Api
    body: Callable[[Context], Row]
    ways: tuple[tuple[Acl, ...], ...] = ()
    versions: tuple[int, ...] = ()
    first: int = 0
    last: int = 99
    resource_type: str = ""
    is_silent: bool = False
    only_shared: bool = field(default=False)


def batch(*, transactional: bool = False) -> bytes:
    """Return a batch with one record."""
    more: Any = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    return build_batch([Record(0, 1, None, b"x", ())], transactional=transactional, **more)


def produce(*, acks: int = 1, transactional_id: str | None = None, transactional: bool = False) -> Any:
    """Return the body of a Produce request for both topics."""

    def body(_: Context) -> Row:
        data = [{"index": 0, "records": batch(transactional=transactional)}]
        topics = [{"name": name, "partition_data": data} for name in (OWN, OTHER)]
        return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 5000, "topic_data": topics}

    return body


def fetch(replica_id: int = -1) -> Any:
    """Return the body of a Fetch request for both topics."""

    def body(context: Context) -> Row:
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        topics = [{"topic": each, "topic_id": context.topic_ids[each], "partitions": [row]} for each in (OWN, OTHER)]
        replica = {"replica_id": replica_id, "replica_epoch": -1}
        return {"replica_id": replica_id, "replica_state": replica, "max_wait_ms": 0, "min_bytes": 0, "topics": topics}

    return body


def topics(
    *names: str, name: str = "name", partitions: str = "partitions", index: str | None = "partition_index", **more: Any
) -> list[Row]:
    """Return rows of topics with partition 0.

    :param index: field with the number of the partition; None if the partitions are numbers.
    :param more: other fields of the partitions.
    """
    rows = [0] if index is None else [{index: 0, **more}]
    return [{name: each, partitions: rows} for each in names or (OWN, OTHER)]


def named(*names: str) -> list[Row]:
    """Return rows that contain only a name."""
    return [{"name": each} for each in names]
