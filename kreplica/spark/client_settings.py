"""Options with the prefix ``kafka.``: the Kafka client settings that the kreplica client supports."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.options import ClientOptions
from kreplica.spark.connection_security import PLAINTEXT, PREFIX, ConnectionSecurity, is_security_setting
from kreplica.spark.option_parsing import choice, number
from kreplica.wire.compression import Codec

log = logging.getLogger(__name__)

ACKS = {"0": 0, "1": 1, "-1": -1, "all": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Client settings of a read or a write; sizes in bytes.

    The fields from ``isolation`` to ``partition_size_max`` apply to reads, those after them to writes.
    """

    client: ClientOptions
    security: ConnectionSecurity = PLAINTEXT
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_wait_s: float = 0.5
    fetch_size_min: int = 1
    fetch_size_max: int = 50 << 20
    partition_size_max: int = 8 << 20
    codec: Codec = Codec.NONE
    acks: int = -1
    idempotent: bool | None = None
    batch_size: int = 512 << 10
    linger_s: float = 0.0
    memory_size_max: int = 64 << 20
    delivery_timeout_s: float = 120.0
    transaction_timeout_s: float = 900.0
    request_size_max: int = 1 << 20


def client_settings(raw_options: Mapping[str, str], unsupported: Mapping[str, str]) -> ClientSettings:
    """Parse the options that begin with ``kafka.`` and ignore all others.

    A Kafka setting that the kreplica client does not support is ignored with a warning.

    :param unsupported: options that are not allowed, by lower-case name with the prefix, and the reasons.
    :raise ValueError: an option is not supported or malformed.
    """
    values: dict[str, str] = {}
    for name, value in raw_options.items():
        lower = name.lower()
        if not lower.startswith(PREFIX):
            continue
        if lower in unsupported:
            raise ValueError(f"option {lower!r} is not supported: {unsupported[lower]}")
        values[lower.removeprefix(PREFIX)] = value
    security = ConnectionSecurity.of(values)
    reader = _SettingsReader(values)
    client = ClientOptions(
        client_id=reader.text("client.id", "kreplica-spark"),
        connect_timeout_s=reader.seconds("socket.connection.setup.timeout.ms", 10.0),
        request_timeout_s=reader.seconds("request.timeout.ms", 30.0),
        operation_timeout_s=reader.seconds("default.api.timeout.ms", 60.0),
        backoff_s=reader.seconds("retry.backoff.ms", 0.05),
        backoff_s_max=reader.seconds("retry.backoff.max.ms", 1.0),
        metadata_age_s_max=reader.seconds("metadata.max.age.ms", 300.0),
    )
    defaults = ClientSettings(client=client)
    settings = ClientSettings(
        client=client,
        security=security,
        isolation=Isolation[reader.one_of("isolation.level", ("read_uncommitted", "read_committed")).upper()],
        fetch_wait_s=reader.seconds("fetch.max.wait.ms", defaults.fetch_wait_s),
        fetch_size_min=reader.number("fetch.min.bytes", 0, defaults.fetch_size_min),
        fetch_size_max=reader.number("fetch.max.bytes", 1, defaults.fetch_size_max),
        partition_size_max=reader.number("max.partition.fetch.bytes", 1, defaults.partition_size_max),
        codec=Codec[reader.one_of("compression.type", tuple(codec.name.lower() for codec in Codec)).upper()],
        acks=ACKS[reader.one_of("acks", ("all", "-1", "1", "0"))],
        idempotent=reader.flag("enable.idempotence"),
        batch_size=reader.number("batch.size", 1, defaults.batch_size),
        linger_s=reader.seconds("linger.ms", defaults.linger_s),
        memory_size_max=reader.number("buffer.memory", 1 << 20, defaults.memory_size_max),
        delivery_timeout_s=reader.seconds("delivery.timeout.ms", defaults.delivery_timeout_s),
        transaction_timeout_s=reader.seconds("transaction.timeout.ms", defaults.transaction_timeout_s),
        request_size_max=reader.number("max.request.size", 1, defaults.request_size_max),
    )
    for name in sorted(values.keys() - reader.read_names - {"bootstrap.servers", "group.id"}):
        if is_security_setting(name):
            continue
        log.warning("option %s%s is ignored: the kreplica client has no such setting", PREFIX, name)
    return settings


class _SettingsReader:
    """Reads setting values by name, and records the names that were read."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.read_names: set[str] = set()

    def _get(self, name: str) -> str | None:
        self.read_names.add(name)
        return self._values.get(name)

    def text(self, name: str, default: str) -> str:
        return self._get(name) or default

    def number(self, name: str, lowest: int, default: int) -> int:
        value = number(self._get(name), PREFIX + name, lowest)
        return default if value is None else value

    def seconds(self, name: str, default: float) -> float:
        value = number(self._get(name), PREFIX + name, 0)
        return default if value is None else value / 1000

    def one_of(self, name: str, words: tuple[str, ...]) -> str:
        return choice(self._get(name), PREFIX + name, words, words[0])

    def flag(self, name: str) -> bool | None:
        text = self._get(name)
        return None if text is None else choice(text, PREFIX + name, ("true", "false"), "true") == "true"
