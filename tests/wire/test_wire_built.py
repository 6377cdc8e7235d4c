"""Messages with thousands of rows are assembled from encoded rows."""

from __future__ import annotations

from uuid import UUID

import pytest

from kreplica.errors import ProtocolError
from kreplica.wire.messages import UPDATE_METADATA
from kreplica.wire.primitives import PrebuiltElements

VERSION = UPDATE_METADATA.versions[1]


def row(number: int) -> dict:
    return {
        "partition_index": number,
        "controller_epoch": 3,
        "leader": 1,
        "leader_epoch": number,
        "isr": [1, 2],
        "zk_version": 9,
        "replicas": [1, 2, 3],
        "offline_replicas": [3],
    }


def message(topics) -> dict:
    return {
        "controller_id": 1,
        "is_k_raft_controller": False,
        "controller_epoch": 3,
        "broker_epoch": 77,
        "type": 0,
        "topic_states": topics,
        "live_brokers": [],
    }


def topic(name: str, rows) -> dict:
    return {"topic_name": name, "topic_id": UUID(int=5), "partition_states": rows}


@pytest.mark.parametrize("count", [0, 1, 3, 300])
def test_encoded_rows_give_the_same_message(count):
    """A message built from encoded rows equals the one built from their values."""
    schema = UPDATE_METADATA.request
    plain = message([topic(name, [row(number) for number in range(count)]) for name in ("a", "b")])
    build_row = schema.element(VERSION, "topic_states", "partition_states")
    build_topic = schema.element(VERSION, "topic_states")
    rows = PrebuiltElements(count, [build_row(row(number)) for number in range(count)])
    topics = PrebuiltElements(2, [build_topic(topic(name, rows)) for name in ("a", "b")])
    assert schema.build(VERSION, message(topics)) == schema.build(VERSION, plain)
    assert schema.build_uncompiled(VERSION, message(topics)) == schema.build(VERSION, plain)
    assert schema.parse(VERSION, schema.build(VERSION, message(topics))) == schema.parse(
        VERSION, schema.build(VERSION, plain)
    )


def test_invalid_row_is_named():
    """The error for an invalid value in a row contains the field's path, as in a complete message."""
    build_row = UPDATE_METADATA.request.element(VERSION, "topic_states", "partition_states")
    with pytest.raises(ProtocolError, match="leader_epoch"):
        build_row(row(1) | {"leader_epoch": 2**31})
