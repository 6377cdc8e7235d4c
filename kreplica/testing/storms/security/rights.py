"""Permissions that a client has used, according to a request and its response."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kreplica.security.acls.acl import AclOperation, ResourceType
from kreplica.wire import messages

Row = dict[str, Any]


class Right(NamedTuple):
    """One operation on one resource."""

    operation: AclOperation
    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation.name.lower()} {self.type.name.lower().replace('_', ' ')} {self.name}"


def read_topic(name: str) -> Right:
    return Right(AclOperation.READ, ResourceType.TOPIC, name)


def write_topic(name: str) -> Right:
    return Right(AclOperation.WRITE, ResourceType.TOPIC, name)


def read_group(name: str) -> Right:
    return Right(AclOperation.READ, ResourceType.GROUP, name)


def write_transactional_id(name: str) -> Right:
    return Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def used_rights(api_key: int, request: Row, response: Row, topic_names: Mapping[UUID, str]) -> list[Right]:
    """Return the permissions that the successful parts of a request needed.

    :param topic_names: names of the topics that the client knows.
    """
    rights_of = _RIGHTS.get(api_key)
    return [] if rights_of is None else list(rights_of(request, response, topic_names))


def _produced(request: Row, response: Row, _: Mapping[UUID, str]) -> Iterator[Right]:
    written = [
        topic["name"]
        for topic in response["responses"]
        if any(not row["error_code"] for row in topic["partition_responses"])
    ]
    yield from map(write_topic, written)
    if written and request.get("transactional_id") is not None:
        yield write_transactional_id(request["transactional_id"])


def _fetched(_: Row, response: Row, topic_names: Mapping[UUID, str]) -> Iterator[Right]:
    for topic in response["responses"]:
        if any(not row["error_code"] and row["records"] for row in topic["partitions"]):
            yield read_topic(topic["topic"] if "topic" in topic else topic_names[topic["topic_id"]])


def _as_member(request: Row, response: Row, _: Mapping[UUID, str]) -> Iterator[Right]:
    if not response["error_code"]:
        yield read_group(request["group_id"])


def _committed(request: Row, response: Row, _: Mapping[UUID, str]) -> Iterator[Right]:
    topics = [
        topic["name"] for topic in response["topics"] if any(not row["error_code"] for row in topic["partitions"])
    ]
    if topics:
        yield read_group(request["group_id"])
        yield from map(read_topic, topics)
        if request.get("transactional_id") is not None:
            yield write_transactional_id(request["transactional_id"])


def _in_transaction(request: Row, response: Row, _: Mapping[UUID, str]) -> Iterator[Right]:
    if not response["error_code"] and request["transactional_id"] is not None:
        yield write_transactional_id(request["transactional_id"])
        if "group_id" in request:
            yield read_group(request["group_id"])


def _added(request: Row, response: Row, _: Mapping[UUID, str]) -> Iterator[Right]:
    added = [
        row["name"]
        for row in response.get("results_by_topic_v3_and_below", ())
        if any(not result["partition_error_code"] for result in row["results_by_partition"])
    ]
    if added:
        yield write_transactional_id(request["v3_and_below_transactional_id"])
        yield from map(write_topic, added)


_RIGHTS: Mapping[int, Callable[[Row, Row, Mapping[UUID, str]], Iterator[Right]]] = {
    messages.PRODUCE.key: _produced,
    messages.FETCH.key: _fetched,
    messages.JOIN_GROUP.key: _as_member,
    messages.SYNC_GROUP.key: _as_member,
    messages.HEARTBEAT.key: _as_member,
    messages.CONSUMER_GROUP_HEARTBEAT.key: _as_member,
    messages.OFFSET_COMMIT.key: _committed,
    messages.TXN_OFFSET_COMMIT.key: _committed,
    messages.INIT_PRODUCER_ID.key: _in_transaction,
    messages.ADD_OFFSETS_TO_TXN.key: _in_transaction,
    messages.END_TXN.key: _in_transaction,
    messages.ADD_PARTITIONS_TO_TXN.key: _added,
}
"""By API key."""
