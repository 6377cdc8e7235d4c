"""Client metrics subscriptions (KIP-714), kept up to date with ``/config/client-metrics``.

Each change also writes the data of the parent znode, which every broker watches.  No notification is created in
``/config/changes``, because Apache Kafka's brokers in ZooKeeper mode do not accept one for this type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.znode_watch import Watcher, ZnodeWatch
from kreplica.patterns import Automaton, PatternError
from kreplica.runtime import Reactor
from kreplica.settings.client_metrics import (
    ALL_METRICS,
    CLIENT_METRICS_SETTINGS,
    INTERVAL,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    match_expressions,
    validate_client_metrics,
)
from kreplica.zookeeper import Create, Delete, Operation, SetData, ZooKeeperClient, read_all

log = Logger()


class ClientAttributes(NamedTuple):
    """Attributes of a client that ``match`` can name; all are text."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A client metrics subscription.

    :param metrics: prefixes of metric names, or only ``ALL_METRICS``.
    :param match: regular expressions by attribute; all must match.
    """

    name: str
    metrics: Sequence[str]
    interval_ms: int
    match: Mapping[str, Automaton]

    @classmethod
    def parse(cls, name: str, settings: Mapping[str, str]) -> Subscription:
        """Return the subscription with these settings.

        :raise KafkaError: INVALID_REQUEST or INVALID_CONFIG.
        """
        validate_client_metrics(settings)
        match = {}
        for attribute, expression in match_expressions(settings.get(MATCH, "")).items():
            try:
                match[attribute] = Automaton(expression)
            except PatternError as error:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"Illegal regular expression for {attribute}: {expression!r}: {error}"
                ) from None
        metrics = [each for each in _parse(METRICS, settings) if each]
        interval_ms = CLIENT_METRICS_SETTINGS[INTERVAL].parse(settings.get(INTERVAL, str(INTERVAL_MS_DEFAULT)))
        assert isinstance(interval_ms, int)
        return cls(name, metrics, interval_ms, match)

    def matches(self, attributes: ClientAttributes) -> bool:
        """Return True if the subscription is for a client with these attributes."""
        return all(automaton.matches(getattr(attributes, name)) for name, automaton in self.match.items())


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The effective subscription of one client, combined from all that match it.

    :param names: names of the matching subscriptions.
    :param metrics: prefixes of metric names; empty if the client pushes nothing.
    :param interval_ms: the shortest interval of the subscriptions.
    """

    names: Sequence[str]
    metrics: Sequence[str]
    interval_ms: int


class ClientMetrics:
    """All subscriptions; owned by the broker.

    :ivar version: changes whenever a subscription changes.
    """

    def __init__(self) -> None:
        self.version = 0
        self._settings: dict[str, Mapping[str, str]] = {}
        self._subscriptions: dict[str, Subscription] = {}

    @property
    def names(self) -> list[str]:
        """The names of all subscriptions, sorted."""
        return sorted(self._settings)

    def is_subscribed(self) -> bool:
        """Return True if any subscription requests metrics."""
        return any(each.metrics for each in self._subscriptions.values())

    def settings(self, name: str) -> Mapping[str, str]:
        """Return the settings of a subscription; empty if it does not exist."""
        return self._settings.get(name, {})

    def replace(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Replace all subscriptions."""
        for name in [name for name in self._settings if name not in settings]:
            self.apply(name, {})
        for name, each in settings.items():
            self.apply(name, each)

    def apply(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace the settings of a subscription; empty settings delete it."""
        if self._settings.get(name, {}) == settings:
            return
        self.version += 1
        self._settings.pop(name, None)
        self._subscriptions.pop(name, None)
        if not settings:
            return
        self._settings[name] = dict(settings)
        try:
            self._subscriptions[name] = Subscription.parse(name, settings)
        except KafkaError as error:
            path = znodes.config_path(znodes.CLIENT_METRICS_TYPE, name)
            log.error("{path}: the subscription is ignored: {error}", path=path, error=str(error))

    def select(self, attributes: ClientAttributes) -> Subscribed:
        """Return the effective subscription of a client."""
        matching = [self._subscriptions[name] for name in sorted(self._subscriptions)]
        matching = [each for each in matching if each.metrics and each.matches(attributes)]
        metrics = dict.fromkeys(metric for each in matching for metric in each.metrics)
        interval_ms = min((each.interval_ms for each in matching), default=INTERVAL_MS_DEFAULT)
        names = tuple(each.name for each in matching)
        return Subscribed(names, (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)


class ClientMetricsReader:
    """Reads all subscriptions after each change; owned by the broker."""

    def __init__(self, reactor: Reactor, client: ZooKeeperClient, subscriptions: ClientMetrics) -> None:
        self._client = client
        self._subscriptions = subscriptions
        self.watch = ZnodeWatch(reactor, "the subscriptions to client metrics", self._read)

    async def _read(self, watcher: Watcher) -> None:
        await self._client.get_data(znodes.CLIENT_METRICS, watcher)
        names = [unquote(name) for name in await self._client.get_children(znodes.CLIENT_METRICS)]
        paths = [znodes.config_path(znodes.CLIENT_METRICS_TYPE, name) for name in names]
        results = await read_all(self._client, paths)
        found = {
            name: _decode(path, result[0])
            for name, path, result in zip(names, paths, results, strict=True)
            if isinstance(result, tuple)
        }
        self._subscriptions.replace(found)


def write_operations(name: str, settings: Mapping[str, str], version: int | None) -> list[Operation]:
    """Return the operations of one multi that writes a subscription and notifies all brokers.

    :param settings: all its settings; if empty, the subscription is deleted.
    :param version: version of its znode; None if it does not exist.
    """
    path = znodes.config_path(znodes.CLIENT_METRICS_TYPE, name)
    notify = SetData(znodes.CLIENT_METRICS, None)
    if settings:
        data = documents.encode_config(settings)
        return [Create(path, data) if version is None else SetData(path, data, version), notify]
    return [] if version is None else [Delete(path, version), notify]


def _parse(name: str, settings: Mapping[str, str]) -> Iterable[str]:
    value = CLIENT_METRICS_SETTINGS[name].parse(settings.get(name, ""))
    return value if isinstance(value, tuple) else ()


def _decode(path: str, data: bytes) -> Mapping[str, str]:
    try:
        return documents.decode_config(path, data)
    except znodes.ZnodeError as error:
        log.error("ignoring an invalid subscription to client metrics: {error}", error=str(error))
        return {}
