"""Requests for plans, parsed from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kreplica.cluster.plans.plan import MOVES_AT_ONCE, PlanKind
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Reassign:
    """Assign the given replicas, listed with the preferred leader first."""

    assignments: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ChangeReplicationFactor:
    """Change the number of replicas of every partition of these topics; remaining replicas stay in place."""

    topics: tuple[str, ...]
    replication_factor: int


@dataclass(frozen=True, slots=True)
class AddBrokers:
    """Balance all replicas after these brokers have been added to the cluster."""

    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Cordon these brokers and move all their replicas away; the brokers may be dead."""

    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Balance the replicas of the given topics, or of all topics, with the fewest bytes moved.

    :param weights: weights to balance instead of counts, for example bytes or bytes per second of a replica; 0 for
        missing partitions. None to balance counts.
    """

    topics: tuple[str, ...] | None = None
    weights: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Increase the number of partitions to this total."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class RemovePartitions:
    """Reduce the number of partitions to this total; the highest-numbered ones are removed with their records.

    :param wait_ms: time for which removed partitions are read-only before their removal; None for the broker's setting.
    """

    topic: str
    partitions: int
    wait_ms: int | None = None


Work = Reassign | ChangeReplicationFactor | AddBrokers | Drain | Rebalance | AddPartitions | RemovePartitions


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan.  The fields that it shares with ``plan.Plan`` are described there.

    :param work: the requested change.
    :param body: the request as received.
    """

    kind: PlanKind
    work: Work
    throttle_bytes_per_second: int | None = None
    moves_at_once: int = MOVES_AT_ONCE
    force: bool = False
    comment: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)


def read_request(body: Mapping[str, Any]) -> PlanRequest:
    """Parse a request.

    :param body: ``{"kind": ..., ...}``, as in the admin API.
    :raise KafkaError: INVALID_REQUEST; the message names the invalid or missing member.
    """
    kinds = ", ".join(kind.value for kind in PlanKind)
    if body.get("kind") not in list(PlanKind):
        raise _wrong("kind", body.get("kind"), f"one of {kinds}")
    kind = PlanKind(body["kind"])
    throttle = body.get("throttle_bytes_per_second")
    return PlanRequest(
        kind=kind,
        work=_read_work(kind, body),
        throttle_bytes_per_second=None if throttle is None else _number(body, "throttle_bytes_per_second"),
        moves_at_once=_number(body, "moves_at_once") if "moves_at_once" in body else MOVES_AT_ONCE,
        force=bool(body.get("force", False)),
        comment=str(body.get("comment") or ""),
        body=body,
    )


def _read_work(kind: PlanKind, body: Mapping[str, Any]) -> Work:
    match kind:
        case PlanKind.REASSIGN:
            return Reassign(_assignments(body))
        case PlanKind.REPLICATION_FACTOR:
            return ChangeReplicationFactor(_topics(body), _number(body, "replication_factor"))
        case PlanKind.ADD_BROKERS:
            return AddBrokers(_brokers(body))
        case PlanKind.DRAIN:
            return Drain(_brokers(body))
        case PlanKind.REBALANCE:
            topics = None if body.get("topics") is None else _topics(body)
            return Rebalance(topics, None if body.get("weights") is None else _weights(body))
        case PlanKind.ADD_PARTITIONS:
            return AddPartitions(_topic(body), _number(body, "partitions"))
        case PlanKind.REMOVE_PARTITIONS:
            wait_ms = None if body.get("wait_ms") is None else _number(body, "wait_ms", at_least=0)
            return RemovePartitions(_topic(body), _number(body, "partitions"), wait_ms)


def _assignments(body: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, ...]]:
    rows = body.get("assignments")
    expected = 'a non-empty list of {"topic", "partition", "replicas"}'
    if not isinstance(rows, list) or not rows:
        raise _wrong("assignments", rows, expected)
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for row in rows:
        try:
            partition = TopicPartition(str(row["topic"]), int(row["partition"]))
            replicas = tuple(map(int, row["replicas"]))
        except (KeyError, TypeError, ValueError):
            raise _wrong("assignments", row, expected) from None
        if partition in found:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"assignments: duplicate partition {partition}")
        found[partition] = replicas
    return found


def _weights(body: Mapping[str, Any]) -> dict[TopicPartition, int]:
    rows = body["weights"]
    expected = 'a non-empty list of {"topic", "partition", "weight"} with weights of 0 or more'
    if not isinstance(rows, list) or not rows:
        raise _wrong("weights", rows, expected)
    found: dict[TopicPartition, int] = {}
    for row in rows:
        try:
            partition, weight = TopicPartition(str(row["topic"]), int(row["partition"])), row["weight"]
        except (KeyError, TypeError, ValueError):
            raise _wrong("weights", row, expected) from None
        if type(weight) is not int or weight < 0:
            raise _wrong("weights", row, expected)
        if partition in found:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"weights: duplicate partition {partition}")
        found[partition] = weight
    return found


def _topics(body: Mapping[str, Any]) -> tuple[str, ...]:
    names = body.get("topics")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise _wrong("topics", names, "a non-empty list of topic names")
    return tuple(dict.fromkeys(names))


def _brokers(body: Mapping[str, Any]) -> tuple[int, ...]:
    ids = body.get("brokers")
    if not isinstance(ids, list) or not ids or not all(type(each) is int for each in ids):
        raise _wrong("brokers", ids, "a non-empty list of broker ids")
    return tuple(sorted(set(ids)))


def _topic(body: Mapping[str, Any]) -> str:
    name = body.get("topic")
    if not isinstance(name, str) or not name:
        raise _wrong("topic", name, "a topic name")
    return name


def _number(body: Mapping[str, Any], name: str, at_least: int = 1) -> int:
    value = body.get(name)
    if type(value) is not int or value < at_least:
        raise _wrong(name, value, f"an integer of {at_least} or more")
    return value


def _wrong(name: str, value: object, expected: str) -> KafkaError:
    is_missing = value is None
    found = "it is missing" if is_missing else f"found {str(value)[:100]!r}"
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: expected {expected}; {found}")
