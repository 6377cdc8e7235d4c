"""Changes of settings by clients at run time."""

from __future__ import annotations

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.settings import (
    BROKER_SETTINGS,
    AlterOperation,
    OperationType,
    alter_incrementally,
    validate_broker_config,
    validate_topic_config,
)

SET, DELETE, APPEND, SUBTRACT = OperationType


def alter(current, *operations, **kwargs):
    return alter_incrementally(current, [AlterOperation(*operation) for operation in operations], **kwargs)


@pytest.mark.parametrize(
    ("current", "operations", "expected"),
    [
        ({}, [("retention.ms", SET, "5")], {"retention.ms": "5"}),
        ({"retention.ms": "4", "a": "b"}, [("retention.ms", SET, "5")], {"retention.ms": "5", "a": "b"}),
        ({"retention.ms": "4"}, [("retention.ms", DELETE, None)], {}),
        ({"retention.ms": "4"}, [("retention.ms", DELETE, "ignored")], {}),
        ({}, [("retention.ms", DELETE, None)], {}),
        ({"cleanup.policy": "delete"}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "delete"}, [("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "delete"}),
        ({}, [("cleanup.policy", APPEND, "compact,compact")], {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": ""}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "a, delete"}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "a"}),
        ({"cleanup.policy": "compact"}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "compact"}),
        ({}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": ""}),
        (
            {"leader.replication.throttled.replicas": "0:1,0:2"},
            [("leader.replication.throttled.replicas", APPEND, "1:1"), ("retention.ms", SET, "1")],
            {"leader.replication.throttled.replicas": "0:1,0:2,1:1", "retention.ms": "1"},
        ),
    ],
)
def test_operations(current, operations, expected):
    """An unset list starts with its default, and list items are unique."""
    before = dict(current)
    assert alter(current, *operations) == expected
    assert current == before


@pytest.mark.parametrize(
    ("operations", "code", "message"),
    [
        ([("a", SET, "1"), ("a", DELETE, None)], ErrorCode.INVALID_REQUEST, "duplicate config keys: a"),
        ([("a", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for: a"),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for: cleanup.policy"),
        ([("a", 4, "1")], ErrorCode.INVALID_REQUEST, "Unknown operation for: a; the operations are SET 0, DELETE 1"),
        ([("a", -1, "1")], ErrorCode.INVALID_REQUEST, "Unknown operation"),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "append is not allowed for config key: retenti"),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "subtract is not allowed for config key: ret"),
        ([("cleanup.polic", APPEND, "1")], ErrorCode.INVALID_CONFIG, "Did you mean cleanup.policy?"),
    ],
)
def test_refused_operations(operations, code, message):
    """A contradictory request is malformed; a list operation on a setting of another type is invalid."""
    with pytest.raises(KafkaError) as caught:
        alter({}, *operations)
    assert caught.value.code is code
    assert message in caught.value.message


def test_broker_lists_can_be_changed():
    """The same operations apply to lists in broker settings."""
    operation = ("log.cleanup.policy", APPEND, "compact")
    assert alter({}, operation, known=BROKER_SETTINGS) == {"log.cleanup.policy": "delete,compact"}


# --- validation -------------------------------------------------------------------------------------------------------


def test_valid_topic_settings():
    validate_topic_config({})
    validate_topic_config({"retention.ms": "-1", "cleanup.policy": "compact,delete", "segment.bytes": " 14 "})


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"retention.m": "1"}, "Unknown topic config name: retention.m. Did you mean retention.ms"),
        ({"log.retention.ms": "1"}, "It is a broker setting; the topic setting is retention.ms."),
        ({"retention.ms": "-2"}, "retention.ms: '-2' is not allowed; expected a whole number, at least -1"),
        ({"segment.bytes": "13"}, "segment.bytes: '13' is not allowed; expected a whole number, at least 14"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "expected a number, 0 to 1"),
        ({"cleanup.policy": "compact,burn"}, "expected a list that may contain compact, delete"),
        ({"compression.type": "rar"}, "expected one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"leader.replication.throttled.replicas": "0-1"}, "list of partition:broker"),
        ({"retention.ms": None}, "retention.ms has no value; expected a whole number"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "larger than max.compaction.lag.ms=8"),
        ({"remote.storage.enable": "true"}, "tiered storage is not supported"),
    ],
)
def test_invalid_topic_settings(configs, message):
    """The error contains the setting, its value, and the allowed values."""
    with pytest.raises(KafkaError) as caught:
        validate_topic_config(configs)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert message in caught.value.message


def test_topic_setting_may_contradict_its_broker():
    """A compaction limit of a topic is checked against the broker's value of the other limit."""
    validate_topic_config({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": 9})
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms=9"):
        validate_topic_config({"min.compaction.lag.ms": "9"}, {"max.compaction.lag.ms": 8})


def test_valid_broker_settings():
    """Dynamic settings can be changed, some of them only for a single broker."""
    validate_broker_config({"message.max.bytes": "5"}, changed=["message.max.bytes"], per_broker=False)
    per_broker = "sasl.kerberos.ticket.renew.window.factor"
    validate_broker_config({per_broker: "0.8"}, changed=[per_broker], per_broker=True)


def test_unsupported_protection_cannot_be_set():
    """An unsupported protection setting is refused; an existing one can be removed and blocks no other change."""
    configs = {"sasl.kerberos.service.name": "kafka", "message.max.bytes": "5"}
    with pytest.raises(KafkaError) as caught:
        validate_broker_config(configs, changed=["sasl.kerberos.service.name"], per_broker=True)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "service.name=kafka requests protection that this release does not support" in str(caught.value)
    validate_broker_config(configs, changed=["message.max.bytes"], per_broker=True)
    validate_broker_config({}, changed=["sasl.kerberos.service.name"], per_broker=True)


@pytest.mark.parametrize(
    ("configs", "per_broker", "code", "message"),
    [
        ({"num.partitions": "1"}, True, ErrorCode.INVALID_REQUEST, "num.partitions cannot change at run time"),
        ({"principal.builder.class": "x"}, False, ErrorCode.INVALID_REQUEST, "class can only be set for individual"),
        ({"message.max.byte": "1"}, True, ErrorCode.INVALID_CONFIG, "Did you mean message.max.bytes"),
        ({"message.max.bytes": "-1"}, True, ErrorCode.INVALID_CONFIG, "'-1' is not allowed; expected"),
        ({"retention.ms": "1"}, True, ErrorCode.INVALID_CONFIG, "It is a topic setting"),
    ],
)
def test_invalid_broker_settings(configs, per_broker, code, message):
    """The error explains that a setting is not dynamic, needs a broker ID, or is invalid."""
    with pytest.raises(KafkaError) as caught:
        validate_broker_config(configs, changed=configs, per_broker=per_broker)
    assert caught.value.code is code
    assert message in caught.value.message


def test_existing_settings_do_not_block_a_change():
    """Only the settings in the request are validated."""
    both = {"num.partitions": "3", "message.max.bytes": "5"}
    validate_broker_config(both, changed=["message.max.bytes"], per_broker=True)
