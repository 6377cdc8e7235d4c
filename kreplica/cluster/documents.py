"""Data of znodes, as in Apache Kafka 3.9. Their paths are in ``znodes``.

Writers use Kafka's newest version of each document; readers accept all older ones. Keys that start with ``kreplica_``
(and ``eligible_leader_replicas``) are extensions that Kafka ignores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kreplica.cluster import znodes
from kreplica.cluster.json_documents import ZnodeErrors, dump, load
from kreplica.cluster.uuids import uuid_from_text, uuid_text
from kreplica.cluster.znodes import ZnodeError
from kreplica.model import (
    NO_BROKER_EPOCH,
    ZERO_UUID,
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    RemovedPartition,
    TopicAssignment,
    TopicPartition,
)


def encode_broker(registration: BrokerRegistration) -> bytes:
    first = next((e for e in registration.endpoints if e.security_protocol == "PLAINTEXT"), None)
    document: dict[str, Any] = {
        "version": 5,
        "host": first.host if first else None,
        "port": first.port if first else -1,
        "jmx_port": -1,
        "timestamp": str(registration.timestamp_ms),
        "endpoints": [str(endpoint) for endpoint in registration.endpoints],
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in registration.endpoints},
        "features": {},
    }
    if registration.rack is not None:
        document["rack"] = registration.rack
    if registration.admin_url is not None:
        document["kreplica_admin"] = registration.admin_url
    if registration.intact_since != NO_BROKER_EPOCH:
        document["kreplica_intact_since"] = registration.intact_since
    return dump(document)


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerRegistration:
    """Parse a broker registration.

    :param epoch: czxid of the znode.
    """
    path = znodes.broker_path(broker_id)
    document = load(path, data)
    with ZnodeErrors(path):
        protocols = document.get("listener_security_protocol_map") or {}
        texts = document.get("endpoints") or [f"PLAINTEXT://{document['host']}:{document['port']}"]
        return BrokerRegistration(
            broker_id=broker_id,
            endpoints=tuple(_decode_endpoint(text, protocols) for text in texts),
            rack=document.get("rack"),
            epoch=epoch,
            timestamp_ms=int(document.get("timestamp") or 0),
            admin_url=document.get("kreplica_admin"),
            intact_since=int(document.get("kreplica_intact_since", NO_BROKER_EPOCH)),
        )


def _decode_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon:
        raise ValueError(f"{text!r} is not LISTENER://HOST:PORT")
    return Endpoint(listener, host.strip("[]"), int(port), protocols.get(listener, listener))


def encode_topic(assignment: TopicAssignment) -> bytes:
    document: dict[str, Any] = {
        "version": 3,
        "partitions": _encode_replicas(assignment.partitions),
        "adding_replicas": _encode_replicas(assignment.adding),
        "removing_replicas": _encode_replicas(assignment.removing),
    }
    if assignment.topic_id != ZERO_UUID:
        document["topic_id"] = uuid_text(assignment.topic_id)
    if assignment.read_only:
        document["kreplica_read_only"] = sorted(assignment.read_only)
    if assignment.removed:
        document["kreplica_removed"] = {
            str(partition): {"leader_epoch": former.leader_epoch, "replicas": list(former.replicas)}
            for partition, former in sorted(assignment.removed.items())
        }
    return dump(document)


def _encode_replicas(partitions: Mapping[int, Iterable[int]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas) for partition, replicas in sorted(partitions.items())}


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """Parse a topic document of version 1 to 3; the topic id is zero if the document has none."""
    path = znodes.topic_path(topic)
    document = load(path, data)
    with ZnodeErrors(path):
        return TopicAssignment(
            topic=topic,
            topic_id=uuid_from_text(document["topic_id"]) if document.get("topic_id") else ZERO_UUID,
            partitions=_decode_replicas(document["partitions"]),
            adding=_decode_replicas(document.get("adding_replicas") or {}),
            removing=_decode_replicas(document.get("removing_replicas") or {}),
            read_only=frozenset(map(int, document.get("kreplica_read_only") or ())),
            removed={
                int(partition): RemovedPartition(int(former["leader_epoch"]), tuple(map(int, former["replicas"])))
                for partition, former in (document.get("kreplica_removed") or {}).items()
            },
        )


def _decode_replicas(document: Mapping[str, Iterable[int]]) -> dict[int, tuple[int, ...]]:
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}  # many partitions have the same replicas
    decoded = {}
    for partition, replicas in document.items():
        brokers = tuple(map(int, replicas))
        decoded[int(partition)] = shared.setdefault(brokers, brokers)
    return decoded


def encode_partition_state(state: LeaderAndIsr) -> bytes:
    """Encode the data of ``/brokers/topics/T/partitions/P/state``; formatted directly for speed."""
    eligible = state.eligible_leader_replicas
    eligible_field = f',"eligible_leader_replicas":[{",".join(map(str, eligible))}]' if eligible else ""
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{",".join(map(str, state.isr))}]{eligible_field}}}'
    ).encode()


_STATE = re.compile(
    rb'\{"controller_epoch":(\d+),"leader":(-?\d+),"version":1,"leader_epoch":(\d+),"isr":\[(\d+(?:,\d+)*)\]\}'
)
"""Partition state as Kafka and kreplica write it if no replica is eligible; a fast path for 100,000 partitions."""


_COMMON_STATE_BYTES_MAX = 200


@lru_cache(maxsize=4096)
def _decode_common_state(data: bytes, version: int) -> LeaderAndIsr | None:
    """Parse a partition state in its most frequent form, or return None; equal states are one object."""
    found = _STATE.fullmatch(data)
    if found is not None:
        controller_epoch, leader, leader_epoch, isr = found.groups()
        in_sync = tuple(map(int, isr.split(b",")))
        return LeaderAndIsr(int(leader), int(leader_epoch), in_sync, int(controller_epoch), version)
    return None


def decode_partition_state(path: str, data: bytes, version: int) -> LeaderAndIsr:
    """Parse a partition state; many partitions have equal states, which are one object.

    :param version: version of the znode, which is the partition epoch.
    """
    state = _decode_common_state(data, version) if len(data) <= _COMMON_STATE_BYTES_MAX else None
    if state is not None:
        return state
    document = load(path, data)
    with ZnodeErrors(path):
        return LeaderAndIsr(
            leader=int(document["leader"]),
            leader_epoch=int(document["leader_epoch"]),
            isr=tuple(map(int, document["isr"])),
            controller_epoch=int(document["controller_epoch"]),
            partition_epoch=version,
            eligible_leader_replicas=tuple(map(int, document.get("eligible_leader_replicas") or ())),
        )


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the data of ``/isr_change_notification/isr_change_N`` and ``/admin/preferred_replica_election``."""
    rows = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return dump({"version": 1, "partitions": rows})


def decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """Parse the data written by :func:`encode_partitions`."""
    document = load(path, data)
    with ZnodeErrors(path):
        return tuple(TopicPartition(str(row["topic"]), int(row["partition"])) for row in document["partitions"])


def encode_reassignments(targets: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    """Encode the data of ``/admin/reassign_partitions``: target replicas by partition."""
    rows = [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in targets.items()]
    return dump({"version": 1, "partitions": rows})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    document = load(znodes.REASSIGN_PARTITIONS, data)
    with ZnodeErrors(znodes.REASSIGN_PARTITIONS):
        return {
            TopicPartition(str(row["topic"]), int(row["partition"])): tuple(map(int, row["replicas"]))
            for row in document["partitions"]
        }


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encode the data of ``/log_dir_event_notification/log_dir_event_N``: a log directory of this broker failed."""
    return dump({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Return the broker id."""
    document = load(path, data)
    with ZnodeErrors(path):
        return int(document["broker"])


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return dump({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """Return the broker id of the controller."""
    document = load(znodes.CONTROLLER, data)
    with ZnodeErrors(znodes.CONTROLLER):
        return int(document["brokerid"])


def with_resignation(data: bytes) -> bytes:
    """Return the data of /controller with a request for its resignation added."""
    return dump({**load(znodes.CONTROLLER, data), "kreplica_resign": True})


def has_resignation(data: bytes) -> bool:
    """Return True if the data of /controller requests its resignation."""
    return load(znodes.CONTROLLER, data).get("kreplica_resign") is True


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    with ZnodeErrors(znodes.CONTROLLER_EPOCH):
        return int(data)


def encode_broker_epochs(epochs: Mapping[int, int]) -> bytes:
    """Encode, for each broker, the last broker epoch that a controller has handled."""
    return dump({"version": 1, "epochs": {str(broker): epoch for broker, epoch in sorted(epochs.items())}})


def decode_broker_epochs(data: bytes) -> dict[int, int]:
    """Parse the data written by :func:`encode_broker_epochs`; an empty znode contains no brokers."""
    if not data:
        return {}
    document = load(znodes.BROKER_EPOCHS, data)
    with ZnodeErrors(znodes.BROKER_EPOCHS):
        return {int(broker): int(epoch) for broker, epoch in document["epochs"].items()}


def encode_cluster_id(cluster_id: str) -> bytes:
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    document = load(znodes.CLUSTER_ID, data)
    with ZnodeErrors(znodes.CLUSTER_ID):
        return str(document["id"])


def encode_config(settings: Mapping[str, str]) -> bytes:
    return dump({"version": 1, "config": dict(settings)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Return the settings by name; an empty znode, which some tools write, has none."""
    if not data:
        return {}
    document = load(path, data)
    with ZnodeErrors(path):
        return {str(name): str(value) for name, value in document["config"].items()}


def encode_config_change(entity_type: str, name: str) -> bytes:
    return dump({"version": 2, "entity_path": znodes.config_path(entity_type, name).removeprefix("/config/")})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """Return the type and name of the changed entity; reads versions 1 and 2."""
    document = load(path, data)
    with ZnodeErrors(path):
        if document["version"] == 1:
            return str(document["entity_type"]), str(document["entity_name"])
        return znodes.config_entity(document["entity_path"])


class ProducerIdBlock(NamedTuple):
    """Producer ids of one broker, from ``first`` to ``last`` inclusive."""

    broker_id: int
    first: int
    last: int


PRODUCER_ID_BLOCK_SIZE = 1000


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return dump(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def next_producer_id_block(broker_id: int, current: bytes) -> ProducerIdBlock:
    """Return the block after the current one; the first block starts at 0 if the znode is empty (new cluster).

    :raise ZnodeError: all producer ids (63 bits) have been allocated.
    """
    first = 0
    if current:
        document = load(znodes.LATEST_PRODUCER_ID_BLOCK, current)
        with ZnodeErrors(znodes.LATEST_PRODUCER_ID_BLOCK):
            first = int(document["block_end"]) + 1
    last = first + PRODUCER_ID_BLOCK_SIZE - 1
    if last >= 2**63:
        raise ZnodeError(f"{znodes.LATEST_PRODUCER_ID_BLOCK}: no producer ids are left after {first - 1}")
    return ProducerIdBlock(broker_id, first, last)
