"""The sink's options, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kreplica.sansio.addresses import parse_addresses
from kreplica.spark.client_settings import ClientSettings, client_settings
from kreplica.spark.texts import boolean

REFUSED = {
    "kafka.key.serializer": "keys are text or binary; use DataFrame operations to make them",
    "kafka.value.serializer": "values are text or binary; use DataFrame operations to make them",
}

_KNOWN = ("topic", "includeheaders")
_OF_SPARK = ("path", "checkpointlocation", "queryname", "mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a write is to do.

    :param topic: of all rows; None: the column says.
    """

    bootstrap: str
    topic: str | None
    settings: ClientSettings


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Options as ``DataFrameWriter`` and ``DataStreamWriter`` take them, in any case.

    :raise ValueError: one is missing, malformed or unknown; the text names it.
    """
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in _KNOWN and name not in _OF_SPARK and not name.startswith("kafka."):
            raise ValueError(f"option {name!r} is not known to the sink kreplica")
    bootstrap = options.get("kafka.bootstrap.servers") or ""
    if not bootstrap:
        raise ValueError("option 'kafka.bootstrap.servers' must be given")
    parse_addresses(bootstrap)
    boolean(options.get("includeheaders"), "includeHeaders", default=True)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise ValueError("option 'topic': it is empty")
    return SinkOptions(
        bootstrap=bootstrap,
        topic=None if topic is None else topic.strip(),
        settings=client_settings(given, REFUSED),
    )
