"""Dynamic configurations of topics, of this broker and of all brokers.

They are stored in ``/config``. Each change also creates a notification, which every broker watches. Effective settings
are computed when a setting changes, not for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol
from urllib.parse import unquote

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError, SettingsError
from kreplica.membership.scram_credentials import ScramCredentials
from kreplica.membership.settings.client_metrics import ClientMetrics
from kreplica.membership.settings.dynamic_passwords import DynamicPasswords
from kreplica.membership.settings.partition_settings import PartitionSettings, partition_settings
from kreplica.runtime import Runtime
from kreplica.runtime.gather import gather
from kreplica.runtime.pause import pause
from kreplica.settings.alterations import (
    validate_topic_config,
)
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.dynamic import ConfigRow, EffectiveSettings, TopicSettings
from kreplica.storage.log_config import LogConfig
from kreplica.zookeeper import (
    NoNode,
    SessionExpired,
    ZooKeeperClient,
    ZooKeeperError,
    read_all,
)

log = Logger()

RETRY_SECONDS = 1.0
USERS = "/config/users"

NOTIFICATION_KEPT_MS = 15 * 60 * 1000
"""Age in milliseconds after which any broker removes a notification."""


class Certificates(Protocol):
    """Certificates of the broker's listeners."""

    def apply(self, settings: EffectiveSettings) -> None:
        """Use the certificates of changed settings."""

    async def check(self, settings: EffectiveSettings, changed: Collection[str]) -> None:
        """Check the certificates of changed settings.

        :param changed: names of the changed settings.
        :raise KafkaError: INVALID_REQUEST.
        """


class DynamicSettings:
    """The dynamic settings that one broker has read; owned by the broker.

    :param static: settings from the broker's properties file.
    :param topic_changed: called with a topic whose effective settings may have changed.
    :param certificates: changes with the listeners' settings.
    :ivar passwords: encrypts passwords in the settings of this broker.
    :ivar scram_credentials: SCRAM credentials of users.
    :ivar client_metrics: subscriptions to the metrics of clients; ``ClientMetricsReader`` reads them.
    :ivar broker_changed: called after the settings of this broker have changed.
    """

    def __init__(
        self,
        runtime: Runtime,
        client: ZooKeeperClient,
        static: BrokerSettings,
        topic_changed: Callable[[str], None],
        certificates: Certificates,
    ) -> None:
        self._reactor = runtime.reactor
        self._wall_clock_ms = runtime.wall_clock_ms
        self._client = client
        self._broker_id = str(static["broker.id"])
        self._topic_changed = topic_changed
        self._static = static
        self._certificates = certificates
        self.passwords = DynamicPasswords(runtime, static)
        self._layers: dict[str, dict[str, str]] = {}
        self._effective = EffectiveSettings(static)
        self._topics: dict[str, dict[str, str]] = {}
        self.scram_credentials = ScramCredentials()
        self.client_metrics = ClientMetrics()
        self.broker_changed: list[Callable[[], None]] = []
        protocols = [endpoint.security_protocol for endpoint in static.listeners]
        admin_uses_passwords = "basic" in static["kreplica.admin.authentication"]
        self._reads_users = admin_uses_passwords or any(protocol.startswith("SASL") for protocol in protocols)
        self._partition_settings: dict[str, PartitionSettings] = {}
        self._notifications: dict[str, int] = {}
        """Applied notifications that still exist, with their times in milliseconds since 1970."""
        self._reading: Deferred[None] | None = None
        self._starting = False
        self._read_again = False
        self._full_read = False
        self._stopped = False

    async def start(self) -> None:
        """Read everything and watch for changes; can be repeated after an error.

        :raise ZooKeeperError: the settings cannot be read.
        """
        self._starting = True
        try:
            await self._read_everything()
        finally:
            self._starting = False
        if self._read_again:
            self._schedule_read()

    async def _read_everything(self) -> None:
        self._notifications.clear()
        await self._read_changes(apply=False)
        await self._reload_brokers()
        if self._reads_users:
            await self.read_users()
        configured = await self._client.get_children(znodes.TOPIC_CONFIGS)
        await self.read_topics(list(dict.fromkeys([*configured, *self._topics])))

    def check_unsupported_security(self) -> None:
        """Check that no dynamic setting requires a security feature that is not supported.

        :raise SettingsError: one does; the message names the settings and their znodes, and says what to do.
        """
        if self._effective.unsupported:
            paths = [znodes.config_path("brokers", entity) for entity in (self._broker_id, znodes.DEFAULT_ENTITY)]
            raise SettingsError(f"{' or '.join(paths)} in ZooKeeper: {'; '.join(self._effective.unsupported)}.")

    def session_renewed(self) -> None:
        """Read everything again, because watches are lost and changes may have been missed."""
        self._schedule_read(full=True)

    async def stop(self) -> None:
        """Stop watching for changes."""
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    # --- effective settings ------------------------------------------------------------------------------------------

    @property
    def effective(self) -> EffectiveSettings:
        """The current settings of this broker."""
        return self._effective

    def partition_settings(self, topic: str) -> PartitionSettings:
        """Return the current settings of a topic's partitions."""
        cached = self._partition_settings.get(topic)
        if cached is None:
            cached = self._partition_settings[topic] = partition_settings(self._effective_topic(topic))
        return cached

    def _effective_topic(self, topic: str) -> TopicSettings:
        return self._effective.topic(self._topics.get(topic, {}))

    def log_config(self, topic: str) -> LogConfig:
        return self.partition_settings(topic).log

    def unclean_election_allowed(self, topic: str) -> bool:
        """``unclean.leader.election.enable`` of a topic."""
        return self.partition_settings(topic).unclean_election_allowed

    def min_insync_replicas(self, topic: str) -> int:
        """``min.insync.replicas`` of a topic."""
        return self.partition_settings(topic).min_insync_replicas

    @property
    def verifies_transactions(self) -> bool:
        """``transaction.partition.verification.enable``."""
        return bool(self._effective["transaction.partition.verification.enable"])

    def replication_rate(self, role: str) -> int:
        """Return the replication throttle in bytes per second.

        :param role: ``leader`` or ``follower``.
        """
        return int(self._effective[f"{role}.replication.throttled.rate"])

    def describe_topic(self, topic: str) -> Sequence[ConfigRow]:
        return self._effective.describe_topic(self._topics.get(topic, {}))

    def describe_new_topic(self, overrides: Mapping[str, str]) -> Sequence[ConfigRow]:
        """Return the settings that a new topic with these overrides would have."""
        return self._effective.describe_topic(overrides)

    def describe_broker(self, name: str) -> Sequence[ConfigRow]:
        """Return the settings of this broker or the cluster-wide defaults.

        :param name: this broker's id, or empty for the cluster-wide defaults.
        :raise KafkaError: INVALID_REQUEST for another broker's id.
        """
        if name not in ("", self._broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"this is broker {self._broker_id}; ask broker {name} for its settings"
            )
        return self._effective.describe_broker() if name else self._effective.describe_default_broker()

    def check_topic(self, settings: Mapping[str, str]) -> None:
        """Validate the dynamic settings of a topic.

        :raise KafkaError: INVALID_CONFIG, with the setting, its value and the allowed values.
        """
        validate_topic_config(settings, self._effective.topic({}).values)

    async def check_certificates(self, settings: Mapping[str, str], changed: Collection[str]) -> None:
        """Check the certificates that this broker's dynamic settings assign to its listeners.

        :param settings: all dynamic settings of this broker after the change.
        :param changed: names of the changed settings.
        :raise KafkaError: INVALID_REQUEST; the message names the setting and the reason.
        """
        shared = self._layers.get(znodes.DEFAULT_ENTITY)
        await self._certificates.check(EffectiveSettings(self._static, settings, shared), changed)

    # --- changes read from ZooKeeper ---------------------------------------------------------------------------------

    def knows(self, topic: str) -> bool:
        """Return True if the topic's settings have been read."""
        return topic in self._topics

    async def read_new_topics(self, topics: Sequence[str]) -> None:
        """Read the settings of topics that are named in a controller command.

        Starts with a sync: no notification announces the settings of a new topic, and a command can arrive before this
        broker's ZooKeeper server has applied the creation of the topic.
        """
        if topics:
            await gather([self._sync(), self.read_topics(topics)])

    async def _sync(self) -> None:
        await self._client.sync(znodes.TOPIC_CONFIGS)

    async def read_topics(self, topics: Sequence[str]) -> None:
        """Read or refresh the settings of topics."""
        paths = [znodes.config_path("topics", topic) for topic in topics]
        for topic, path, result in zip(topics, paths, await read_all(self._client, paths), strict=True):
            self.apply("topics", topic, decode_settings(path, result[0]) if isinstance(result, tuple) else {})

    def forget(self, topic: str) -> None:
        """Drop the settings of a deleted topic."""
        self._topics.pop(topic, None)
        self._partition_settings.pop(topic, None)

    def apply(self, entity_type: str, entity: str, settings: Mapping[str, str]) -> None:
        """Apply the settings of a topic, user, subscription or broker; those of other brokers are ignored."""
        if entity_type == "topics":
            if self._topics.get(entity) == settings:
                return
            self._topics[entity] = dict(settings)
            if self._partition_settings.pop(entity, None) is not None:
                self._topic_changed(entity)
        elif entity_type == "users":
            self.scram_credentials.apply(entity, settings)
        elif entity_type == znodes.CLIENT_METRICS_TYPE:
            self.client_metrics.apply(entity, settings)
        elif entity_type == "brokers" and entity in (znodes.DEFAULT_ENTITY, self._broker_id):
            self._layers[entity] = dict(settings)
            own, shared = self._layers.get(self._broker_id), self._layers.get(znodes.DEFAULT_ENTITY)
            self._effective = EffectiveSettings(self._static, own, shared)
            self._certificates.apply(self._effective)
            for requirement in self._effective.unsupported:
                path = znodes.config_path(entity_type, entity)
                log.critical("{path}: {requirement}", path=path, requirement=requirement)
            topics = list(self._partition_settings)
            self._partition_settings.clear()
            for topic in topics:
                self._topic_changed(topic)
            for changed in self.broker_changed:
                changed()

    def _schedule_read(self, *, full: bool = False) -> None:
        self._read_again = True
        self._full_read = self._full_read or full
        # One reader at a time, because two would remove the same notifications.
        if self._reading is None and not self._starting and not self._stopped:
            self._reading = reading = Deferred.fromCoroutine(self._run_scheduled_reads())
            reading.addErrback(lambda failure: log.failure("reading changed settings failed", failure))
            reading.addBoth(self._reads_ended)  # at once if the session has expired

    def _reads_ended(self, _: None) -> None:
        self._reading = None

    async def _run_scheduled_reads(self) -> None:
        try:
            while self._read_again:
                self._read_again = False
                full, self._full_read = self._full_read, False
                try:
                    await (self._read_everything() if full else self._read_changes(apply=True))
                except ZooKeeperError as error:
                    log.warn("cannot read changed settings: {error}", error=str(error))
                    # Read everything, because it is unknown which changes were applied, and the watch may be lost.
                    self._full_read = True
                    if isinstance(error, SessionExpired):
                        return  # continues with session_renewed
                    self._read_again = True
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass  # cancelled by stop

    async def _read_changes(self, *, apply: bool) -> None:
        """Apply new notifications, and remove old ones, which every broker has had time to read."""
        names = await self._client.get_children(znodes.CONFIG_CHANGES, lambda _: self._schedule_read())
        self._notifications = {name: self._notifications[name] for name in names if name in self._notifications}
        new = sorted(name for name in names if name not in self._notifications)
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in new]
        changed: dict[tuple[str, str], None] = {}
        for name, path, result in zip(new, paths, await read_all(self._client, paths), strict=True):
            if not isinstance(result, tuple):
                continue  # removed by another broker
            data, stat = result
            self._notifications[name] = stat.mtime_ms
            try:
                changed[documents.decode_config_change(path, data)] = None
            except znodes.ZnodeError as error:
                log.warn("ignoring an invalid notification of changed settings: {error}", error=str(error))
        for entity in changed if apply else ():
            await self._reload(*entity)
        await self._remove_old_changes()

    async def _remove_old_changes(self) -> None:
        oldest_ms = self._wall_clock_ms() - NOTIFICATION_KEPT_MS
        for name in [name for name, made_ms in self._notifications.items() if made_ms < oldest_ms]:
            try:
                await self._client.delete(f"{znodes.CONFIG_CHANGES}/{name}")
            except NoNode:
                pass
            del self._notifications[name]

    async def _reload(self, entity_type: str, entity: str) -> None:
        if entity_type == "topics":
            await self.read_topics([entity])
        elif entity_type in ("brokers", "users"):
            path = znodes.config_path(entity_type, entity)
            (result,) = await read_all(self._client, [path])
            settings = decode_settings(path, result[0]) if isinstance(result, tuple) else {}
            if (entity_type, entity) == ("brokers", self._broker_id):
                settings = await self.passwords.decrypted(settings)
            self.apply(entity_type, entity, settings)

    async def read_users(self) -> None:
        """Read the credentials of all users, even if neither a listener nor the admin API uses them."""
        users = [unquote(name) for name in await self._client.get_children(USERS)]
        self.scram_credentials.retain(users)
        paths = [znodes.config_path("users", user) for user in users]
        for user, path, result in zip(users, paths, await read_all(self._client, paths), strict=True):
            self.apply("users", user, decode_settings(path, result[0]) if isinstance(result, tuple) else {})

    async def _reload_brokers(self) -> None:
        for entity in (znodes.DEFAULT_ENTITY, self._broker_id):
            await self._reload("brokers", entity)


def decode_settings(path: str, data: bytes) -> Mapping[str, str]:
    """Return the settings of a znode; invalid data is logged and treated as empty."""
    try:
        return documents.decode_config(path, data)
    except znodes.ZnodeError as error:
        log.error("ignoring invalid settings: {error}", error=str(error))
        return {}
