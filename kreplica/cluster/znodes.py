"""Every znode's path, exactly as Apache Kafka 3.9 has them in ZooKeeper.  Talks to nobody.

What stands in them: ``documents``.
"""

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
"""Made by every broker at its start where they are absent (their parents too)."""

DEFAULT_ENTITY = "<default>"


class ZnodeError(KreplicaError):
    """A znode whose data is not what its path promises; the text names the path."""


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
    """The request to add one partition (its data: the JSON list of its replicas), or the parent of a topic's."""
    return f"{PARTITIONS_ADD}/{topic}" if partition is None else f"{PARTITIONS_ADD}/{topic}/{partition}"


def partitions_remove_path(topic: str, partition: int | None = None) -> str:
    """The request to remove one partition, or the parent of a topic's."""
    return f"{PARTITIONS_REMOVE}/{topic}" if partition is None else f"{PARTITIONS_REMOVE}/{topic}/{partition}"


def plan_path(plan_id: str) -> str:
    """The header of a plan; what it holds is in ``kreplica.cluster.plans``."""
    return f"{PLANS}/{plan_id}"


def plan_steps_path(plan_id: str, chunk: int | None = None) -> str:
    """One chunk of a plan's steps, or the parent of all."""
    return f"{PLANS}/{plan_id}/steps" if chunk is None else f"{PLANS}/{plan_id}/steps/{chunk:08d}"


def plan_progress_path(plan_id: str, chunk: int | None = None) -> str:
    """What has become of one chunk of a plan's steps, or the totals of all."""
    return f"{PLANS}/{plan_id}/progress" if chunk is None else f"{PLANS}/{plan_id}/progress/{chunk:08d}"


def cordoned_path(broker_id: int) -> str:
    """There while a broker gets no new replicas."""
    return f"{CORDONED}/{broker_id}"


def config_path(entity_type: str, name: str) -> str:
    """The path of an entity's dynamic settings.

    :param entity_type: ``topics``, ``brokers``, ``clients``, ``users`` or ``ips``.
    :param name: percent-encoded as Kafka does, except for the default entity.
    """
    return f"/config/{entity_type}/{name if name == DEFAULT_ENTITY else quote(name, safe='')}"


def config_entity(entity_path: str) -> tuple[str, str]:
    """The reverse of :func:`config_path` for ``topics/T`` as change notifications hold it."""
    entity_type, _, name = entity_path.partition("/")
    return entity_type, unquote(name)
