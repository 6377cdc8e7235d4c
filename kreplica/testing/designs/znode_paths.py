"""Znodes of the first two designs: paths and data.  ``kreplica.cluster.znodes`` defines those of the product."""

from __future__ import annotations

from collections.abc import Iterable

IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
REASSIGNED = "/brokers/partitions_reassigned"
EPOCH = "/brokers/epoch"
QUEUES = "/brokers/state"
REQUEST_PREFIX = "request-"

ROOTS = (IDS, TOPICS, REASSIGNED, EPOCH, QUEUES)


def broker_path(broker_id: int) -> str:
    return f"{IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, number: int) -> str:
    return f"{TOPICS}/{topic}/{number}"


def replicas_path(topic: str, number: int) -> str:
    return f"{TOPICS}/{topic}/{number}/replicas"


def leader_path(topic: str, number: int) -> str:
    return f"{TOPICS}/{topic}/{number}/leader"


def isr_path(topic: str, number: int) -> str:
    return f"{TOPICS}/{topic}/{number}/ISR"


def replica_state_path(topic: str, number: int, broker_id: int | None = None) -> str:
    """Return the path of a broker's requests for one partition (first design), or the parent of all of these."""
    parent = f"{TOPICS}/{topic}/{number}/state"
    return parent if broker_id is None else f"{parent}/{broker_id}"


def queue_path(broker_id: int) -> str:
    """Return the path of a broker's queue (second design)."""
    return f"{QUEUES}/{broker_id}"


def reassigned_path(topic: str, number: int | None = None) -> str:
    return f"{REASSIGNED}/{topic}" if number is None else f"{REASSIGNED}/{topic}/{number}"


def encode_ids(broker_ids: Iterable[int]) -> bytes:
    return ",".join(map(str, broker_ids)).encode()


def decode_ids(data: bytes) -> tuple[int, ...]:
    return tuple(map(int, data.split(b","))) if data else ()


def encode_request(verb: str, topic: str, number: int, epoch: int) -> bytes:
    return f"{verb} {topic} {number} {epoch}".encode()


def decode_request(data: bytes) -> tuple[str, str, int, int]:
    """Return verb, topic, partition number and epoch."""
    verb, topic, number, epoch = data.decode().split(" ")
    return verb, topic, int(number), int(epoch)
