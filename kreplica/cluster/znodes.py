"""Paths of all znodes: those of Apache Kafka 3.9, and kreplica's own. ``documents`` encodes their data."""

from __future__ import annotations

from urllib.parse import quote, unquote

from kreplica.errors import KreplicaError

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
PARTITIONS_ADD = "/admin/partitions_add"
PARTITIONS_REMOVE = "/admin/partitions_remove"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"
LATEST_PRODUCER_ID_BLOCK = "/latest_producer_id_block"
BROKER_EPOCHS = "/kreplica/broker_epochs"
PLANS = "/kreplica/plans"
PLAN_THROTTLE = "/kreplica/plan_throttle"
CORDONED = "/kreplica/cordoned"
TOPIC_CONFIGS = "/config/topics"
CLIENT_METRICS_TYPE = "client-metrics"
CLIENT_METRICS = f"/config/{CLIENT_METRICS_TYPE}"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"

PERSISTENT_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    "/brokers/seqid",
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    CLIENT_METRICS,
    DELETE_TOPICS,
    PARTITIONS_ADD,
    PARTITIONS_REMOVE,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    LATEST_PRODUCER_ID_BLOCK,
    BROKER_EPOCHS,
    PLANS,
    PLAN_THROTTLE,
    CORDONED,
)
"""Znodes that every broker creates at startup if they are absent, with their parents."""

DEFAULT_ENTITY = "<default>"


class ZnodeError(KreplicaError):
    """Invalid data in a znode; the message contains the path."""


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def partitions_add_path(topic: str, partition: int | None = None) -> str:
    """Return the path of a request to add a partition, or the parent of a topic's requests."""
    return f"{PARTITIONS_ADD}/{topic}" if partition is None else f"{PARTITIONS_ADD}/{topic}/{partition}"


def partitions_remove_path(topic: str, partition: int | None = None) -> str:
    """Return the path of a request to remove a partition, or the parent of a topic's requests."""
    return f"{PARTITIONS_REMOVE}/{topic}" if partition is None else f"{PARTITIONS_REMOVE}/{topic}/{partition}"


def plan_path(plan_id: str) -> str:
    """Return the path of a plan's header; for its data see ``kreplica.cluster.plans``."""
    return f"{PLANS}/{plan_id}"


def plan_steps_path(plan_id: str, chunk: int | None = None) -> str:
    """Return the path of one chunk of a plan's steps, or the parent of all chunks."""
    return f"{PLANS}/{plan_id}/steps" if chunk is None else f"{PLANS}/{plan_id}/steps/{chunk:08d}"


def plan_progress_path(plan_id: str, chunk: int | None = None) -> str:
    """Return the path of the progress of one chunk of a plan's steps, or of the totals."""
    return f"{PLANS}/{plan_id}/progress" if chunk is None else f"{PLANS}/{plan_id}/progress/{chunk:08d}"


def cordoned_path(broker_id: int) -> str:
    """Return the path that exists while a broker is cordoned."""
    return f"{CORDONED}/{broker_id}"


def config_path(entity_type: str, name: str) -> str:
    """Return the path of an entity's dynamic settings.

    :param entity_type: ``topics``, ``brokers``, ``clients``, ``users``, ``ips`` or ``client-metrics``.
    :param name: percent-encoded as in Kafka, except for the default entity; ``.`` and ``..`` are encoded too, because
        ZooKeeper does not allow them in a path.
    """
    encoded = quote(name, safe="") if name.strip(".") or len(name) > 2 else name.replace(".", "%2E")
    return f"/config/{entity_type}/{name if name == DEFAULT_ENTITY else encoded}"


def config_entity(entity_path: str) -> tuple[str, str]:
    """Return the entity type and name of an ``entity_path`` in a change notification, such as ``topics/T``.

    For ``users/U/clients/C``, these are ``users`` and the user.
    """
    entity_type, _, name = entity_path.partition("/")
    return entity_type, unquote(name.partition("/")[0])
