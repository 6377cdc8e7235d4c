"""Znode documents: written as Kafka does, and read in all older versions."""

import json
from random import Random
from uuid import UUID

import pytest

from kreplica.cluster import documents, znodes
from kreplica.cluster.uuids import uuid_from_text, uuid_text
from kreplica.model import BrokerRegistration, Endpoint, LeaderAndIsr, TopicAssignment


def test_broker_round_trip():
    """A registration survives encoding and decoding; its epoch is taken from the znode."""
    registration = BrokerRegistration(
        7, (Endpoint("PLAINTEXT", "h", 9092), Endpoint("INSIDE", "::1", 9093)), "r1", 99, 1234, "http://h:8080"
    )
    assert documents.decode_broker(7, documents.encode_broker(registration), 99) == registration


def test_broker_document_equals_kafkas():
    """The document has all keys that Kafka reads."""
    registration = BrokerRegistration(1, (Endpoint("PLAINTEXT", "h", 9092),), None, -1, 5)
    assert json.loads(documents.encode_broker(registration)) == {
        "version": 5,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "5",
        "endpoints": ["PLAINTEXT://h:9092"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }


def test_broker_of_version_1_is_read():
    """A registration without listeners has one PLAINTEXT endpoint."""
    data = b'{"version":1,"host":"a","port":9000,"jmx_port":1,"timestamp":"2"}'
    assert documents.decode_broker(3, data, 8).endpoints == (Endpoint("PLAINTEXT", "a", 9000),)


TOPIC_ID = UUID("12345678-1234-4234-8234-123456789abc")


def test_topic_round_trip():
    """An assignment with a reassignment in progress survives encoding and decoding."""
    assignment = TopicAssignment("t", TOPIC_ID, {0: (1, 2), 1: (2, 3)}, {1: (3,)}, {1: (1,)})
    assert documents.decode_topic("t", documents.encode_topic(assignment)) == assignment


def test_topic_of_version_1_has_no_id():
    """Topics of old Kafka versions have no ID."""
    assignment = documents.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}')
    assert assignment.partitions == {0: (1,)}
    assert assignment.topic_id == UUID(int=0)


def test_partition_state_round_trip():
    """The partition epoch is the version of the znode; eligible replicas are preserved."""
    state = LeaderAndIsr(1, 4, (1, 2), 9, 17, (3,))
    assert documents.decode_partition_state("/p", documents.encode_partition_state(state), 17) == state


def test_equal_partition_states_are_one_object():
    """A controller keeps the states of 10,000 partitions; states with other data or versions differ."""
    data = documents.encode_partition_state(LeaderAndIsr(1, 4, (1, 2), 9))
    state = documents.decode_partition_state("/p", data, 17)
    assert documents.decode_partition_state("/q", bytes(bytearray(data)), 17) is state
    assert documents.decode_partition_state("/p", data, 18) == LeaderAndIsr(1, 4, (1, 2), 9, 18)
    isr = tuple(range(1000))
    assert documents.decode_partition_state("/p", documents.encode_partition_state(state), 17) == state
    large = LeaderAndIsr(1, 4, isr, 9)
    assert documents.decode_partition_state("/p", documents.encode_partition_state(large), 0) == large


def test_equal_replicas_of_a_topic_are_one_object():
    """The partitions of a topic have few different assignments."""
    assignment = documents.decode_topic("t", b'{"version":1,"partitions":{"0":[1,2],"1":[2,1],"2":[1,2]}}')
    assert assignment.partitions == {0: (1, 2), 1: (2, 1), 2: (1, 2)}
    assert assignment.partitions[0] is assignment.partitions[2]


def test_partition_state_without_eligible_replicas_equals_kafkas():
    document = json.loads(documents.encode_partition_state(LeaderAndIsr(1, 4, (1, 2), 9)))
    assert document == {"controller_epoch": 9, "leader": 1, "version": 1, "leader_epoch": 4, "isr": [1, 2]}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"leader":1}', b'{"leader":"x","leader_epoch":0,"isr":[],"controller_epoch":0}']
)
def test_damaged_state_names_its_path(data):
    """The error contains the path of the znode."""
    with pytest.raises(znodes.ZnodeError, match="/brokers/topics/t/partitions/0/state"):
        documents.decode_partition_state(znodes.partition_state_path("t", 0), data, 0)


def test_topic_id_text_equals_kafkas():
    """Topic IDs are written as 22 characters of URL-safe base64."""
    text = uuid_text(TOPIC_ID)
    assert len(text) == 22
    assert uuid_from_text(text) == TOPIC_ID


def test_config_names_are_percent_encoded():
    """Entity names with slashes are encoded; the default entity is not."""
    assert znodes.config_path("clients", "a/b*") == "/config/clients/a%2Fb%2A"
    assert znodes.config_path("brokers", "<default>") == "/config/brokers/<default>"


def test_config_change_round_trip():
    """Notifications of both versions contain the changed entity."""
    assert documents.decode_config_change("/c", documents.encode_config_change("topics", "t.x")) == ("topics", "t.x")
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert documents.decode_config_change("/c", old) == ("topics", "t")


def test_producer_id_blocks_are_contiguous():
    """Blocks of 1,000 start at 0 and are contiguous, until 63 bits are exhausted."""
    first = documents.next_producer_id_block(1, b"")
    assert (first.first, first.last) == (0, 999)
    second = documents.next_producer_id_block(2, documents.encode_producer_id_block(first))
    assert (second.broker_id, second.first, second.last) == (2, 1000, 1999)
    full = documents.encode_producer_id_block(documents.ProducerIdBlock(1, 0, 2**63 - 500))
    with pytest.raises(znodes.ZnodeError, match="no producer ids are left"):
        documents.next_producer_id_block(1, full)


def test_state_encoding_equals_json():
    """The fast encoder produces the same bytes as the JSON encoder."""
    rng = Random(5)
    for _ in range(500):
        isr = tuple(rng.sample(range(2000), rng.randint(0, 5)))
        eligible = tuple(rng.sample(range(2000), rng.choice((0, 0, 1, 3))))
        leader, partition_epoch = rng.choice((-1, 0, 7, 2**31 - 1)), rng.randrange(2**31)
        state = LeaderAndIsr(leader, rng.randrange(2**31), isr, rng.randrange(2**31), partition_epoch, eligible)
        document = {
            "controller_epoch": state.controller_epoch,
            "leader": leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(isr),
        } | ({"eligible_leader_replicas": list(eligible)} if eligible else {})
        data = documents.encode_partition_state(state)
        assert data == json.dumps(document, separators=(",", ":")).encode()
        assert documents.decode_partition_state("/p", data, partition_epoch) == state
        spaced = json.dumps(document, indent=1).encode()
        assert documents.decode_partition_state("/p", spaced, partition_epoch) == state
