"""Options of the sink, parsed and validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kreplica.client_core.addresses import parse_addresses
from kreplica.client_core.producer_options import ACKS_ALL
from kreplica.spark.client_settings import ClientSettings, client_settings
from kreplica.spark.option_parsing import boolean, choice, number

UNSUPPORTED = {
    "kafka.key.serializer": "keys are text or binary; use DataFrame operations to encode them",
    "kafka.value.serializer": "values are text or binary; use DataFrame operations to encode them",
}

DECISIONS_TOPIC = "__kreplica_spark"

_KNOWN = (
    "topic",
    "includeheaders",
    "kreplica.exactly.once",
    "kreplica.sink.id",
    "kreplica.batch.id",
    "kreplica.batch.after",
    "kreplica.first.batch",
    "kreplica.decisions.topic",
    "kreplica.two.phase",
)
_SPARK_OPTIONS = ("path", "checkpointlocation", "queryname", "mode")


class ExactlyOnce(Enum):
    """Exactly-once modes."""

    OFF = "off"
    ONE = "one"
    """A single task writes; the batch number is committed in the task's own transaction."""

    MANY = "many"
    """Every task has its own transaction; one decision applies to all of them."""


class TwoPhase(Enum):
    """Use of transactions without a timeout (KIP-939), which keep a decided micro-batch committable."""

    AUTO = "auto"
    REQUIRED = "required"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a write.

    :param topic: topic of all rows; None if a column contains it.
    :param sink_id: identifies the transactions and decisions of a sink; None to use the query's ID.
    :param batch_id: number of an exactly-once batch write; None for a stream, whose micro-batches Spark numbers.
    :param batch_after: number of the batch that must be the last decided one (-1 for none); None if that is not
        checked.
    :param first_batch: number of the first micro-batch of a sink, if it is not 0.
    :param decisions_topic: empty topic; the offsets committed for it are the decisions.
    """

    bootstrap: str
    topic: str | None
    settings: ClientSettings
    exactly_once: ExactlyOnce = ExactlyOnce.OFF
    sink_id: str | None = None
    batch_id: int | None = None
    batch_after: int | None = None
    first_batch: int | None = None
    decisions_topic: str = DECISIONS_TOPIC
    two_phase: TwoPhase = TwoPhase.AUTO


def sink_options(raw_options: Mapping[str, str]) -> SinkOptions:
    """Parse the options of ``DataFrameWriter`` and ``DataStreamWriter``, whose names ignore case.

    :raise ValueError: an option is missing, malformed or unknown; the message names it.
    """
    options = {name.lower(): value for name, value in raw_options.items()}
    for name in options:
        if name not in _KNOWN and name not in _SPARK_OPTIONS and not name.startswith("kafka."):
            raise ValueError(f"option {name!r} is not an option of the sink kreplica")
    bootstrap = options.get("kafka.bootstrap.servers") or ""
    if not bootstrap:
        raise ValueError("option 'kafka.bootstrap.servers' must be given")
    parse_addresses(bootstrap)
    boolean(options.get("includeheaders"), "includeHeaders", default=True)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise ValueError("option 'topic' is empty")
    settings = client_settings(raw_options, UNSUPPORTED)
    words = [each.value for each in ExactlyOnce]
    exactly_once = ExactlyOnce(choice(options.get("kreplica.exactly.once"), "kreplica.exactly.once", words, "off"))
    if exactly_once is not ExactlyOnce.OFF and settings.acks != ACKS_ALL:
        raise ValueError("option 'kafka.acks': exactly-once writes require acks=all")
    two_phase = choice(
        options.get("kreplica.two.phase"), "kreplica.two.phase", [each.value for each in TwoPhase], "auto"
    )
    batch_id = number(options.get("kreplica.batch.id"), "kreplica.batch.id", 0)
    batch_after = number(options.get("kreplica.batch.after"), "kreplica.batch.after", -1)
    if batch_after is not None and (batch_id is None or batch_after >= batch_id):
        raise ValueError("option 'kreplica.batch.after': kreplica.batch.id must be set to a larger number")
    return SinkOptions(
        bootstrap=bootstrap,
        topic=None if topic is None else topic.strip(),
        settings=settings,
        exactly_once=exactly_once,
        sink_id=options.get("kreplica.sink.id") or None,
        batch_id=batch_id,
        batch_after=batch_after,
        first_batch=number(options.get("kreplica.first.batch"), "kreplica.first.batch", 0),
        decisions_topic=options.get("kreplica.decisions.topic") or DECISIONS_TOPIC,
        two_phase=TwoPhase(two_phase),
    )
