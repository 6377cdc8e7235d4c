"""Settings that change while the cluster runs: of topics, of this broker, and of all brokers.

They live in ``/config``; whoever changes one writes a notification with it, which every broker watches for.  What is
in effect is worked out once per change, not per request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError, SettingsError
from kreplica.membership.partition_settings import PartitionSettings, partition_settings
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.settings.alterations import (
    AlterOperation,
    alter_incrementally,
    validate_broker_config,
    validate_topic_config,
)
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.dynamic import ConfigRow, EffectiveSettings, TopicSettings
from kreplica.settings.resources import no_settings
from kreplica.storage.log_config import LogConfig
from kreplica.zookeeper import (
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
    ZooKeeperClient,
    ZooKeeperError,
    read_all,
)

log = Logger()

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
"""The resource types of the protocol that have settings here."""

CONFLICTS_MAX = 10
"""How often a change is worked out anew because somebody else changed the same settings meanwhile."""

RETRY_SECONDS = 1.0

CHANGE_KEPT_MS = 15 * 60 * 1000
"""Notifications are removed after so long, by whichever broker sees them."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of an entity's dynamic settings.

    :param settings: all of them, as they are then.
    :param version: of the znode that holds them before; None where there is none.
    :param operations: what writes them, and tells every broker.
    """

    settings: Mapping[str, str]
    version: int | None
    operations: Sequence[Operation]


class DynamicSettings:
    """Owned by the broker.

    :param static: the broker's own file.
    :param topic_changed: called with a topic whose effective settings may be others now.
    """

    def __init__(
        self,
        runtime: Runtime,
        client: ZooKeeperClient,
        static: BrokerSettings,
        topic_changed: Callable[[str], None],
    ) -> None:
        self._reactor = runtime.reactor
        self._wall_clock_ms = runtime.wall_clock_ms
        self._client = client
        self._broker_id = str(static["broker.id"])
        self._topic_changed = topic_changed
        self._static = static
        self._layers: dict[str, dict[str, str]] = {}
        self._effective = EffectiveSettings(static)
        self._topics: dict[str, dict[str, str]] = {}
        self._partition_settings: dict[str, PartitionSettings] = {}
        self._changes: dict[str, int] = {}
        """The notifications that were seen and are still there, with the time of each in milliseconds since 1970."""
        self._reading: Deferred[None] | None = None
        self._starting = False
        self._read_again = False
        self._restart = False
        self._stopped = False

    async def start(self) -> None:
        """Read everything, and watch for changes; can be called again after an error.

        :raise ZooKeeperError: they cannot be read.
        """
        self._starting = True
        try:
            await self._read_everything()
        finally:
            self._starting = False
        if self._read_again:
            self._changes_seen()

    async def _read_everything(self) -> None:
        self._changes.clear()
        await self._read_changes(apply=False)
        await self._reload_brokers()
        configured = await self._client.get_children(znodes.TOPIC_CONFIGS)
        await self.learn(list(dict.fromkeys([*configured, *self._topics])))

    def check_protection(self) -> None:
        """Refuse to start where brokers were told, by a tool or another make of broker, to protect themselves.

        :raise SettingsError: naming the settings, where they are, and what to do.
        """
        if self._effective.unkept:
            paths = [znodes.config_path("brokers", entity) for entity in (self._broker_id, znodes.DEFAULT_ENTITY)]
            raise SettingsError(f"{' or '.join(paths)} in ZooKeeper: {'; '.join(self._effective.unkept)}.")

    def session_renewed(self) -> None:
        """Watches are gone with the old session, and changes may have been missed: read everything again."""
        self._changes_seen(restart=True)

    async def stop(self) -> None:
        """Follow no more changes."""
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    # --- what is in effect -------------------------------------------------------------------------------------------

    def partition_settings(self, topic: str) -> PartitionSettings:
        """What a topic's partitions obey now."""
        known = self._partition_settings.get(topic)
        if known is None:
            known = self._partition_settings[topic] = partition_settings(self._effective_topic(topic))
        return known

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
        """How many bytes a second of throttled replicas may pass.

        :param role: ``leader`` or ``follower``: what this broker is of them.
        """
        return int(self._effective[f"{role}.replication.throttled.rate"])

    def describe_topic(self, topic: str) -> Sequence[ConfigRow]:
        return self._effective.describe_topic(self._topics.get(topic, {}))

    def describe_new_topic(self, overrides: Mapping[str, str]) -> Sequence[ConfigRow]:
        """The settings that a topic would have with these of its own."""
        return self._effective.describe_topic(overrides)

    def describe_broker(self, name: str) -> Sequence[ConfigRow]:
        """:param name: this broker's id, or empty for the settings that all brokers share.

        :raise KafkaError: INVALID_REQUEST, for another broker's id.
        """
        if name not in ("", self._broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"this is broker {self._broker_id}; ask broker {name} for its settings"
            )
        return self._effective.describe_broker() if name else self._effective.describe_default_broker()

    def check_topic(self, settings: Mapping[str, str]) -> None:
        """:raise KafkaError: INVALID_CONFIG, naming the setting, its value, and what is allowed."""
        validate_topic_config(settings, self._effective.topic({}).values)

    # --- changes by this broker's clients ----------------------------------------------------------------------------

    async def replace(self, resource_type: int, name: str, settings: Mapping[str, str], *, validate_only: bool) -> None:
        """Make these the only dynamic settings of a topic or broker.

        :raise KafkaError: whatever is wrong with the resource or its settings.
        """
        await self._change(resource_type, name, lambda _: dict(settings), list(settings), validate_only=validate_only)

    async def alter(
        self, resource_type: int, name: str, operations: Sequence[AlterOperation], *, validate_only: bool
    ) -> None:
        """Change single dynamic settings of a topic or broker.

        :raise KafkaError: whatever is wrong with the resource, an operation, or the settings that follow.
        """

        known = TOPIC_SETTINGS if resource_type == TOPIC_RESOURCE else BROKER_SETTINGS

        def change(current: Mapping[str, str]) -> dict[str, str]:
            return alter_incrementally(current, operations, known)

        names = [operation.name for operation in operations]
        await self._change(resource_type, name, change, names, validate_only=validate_only)

    async def _change(
        self,
        resource_type: int,
        name: str,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        names: Sequence[str],
        *,
        validate_only: bool,
    ) -> None:
        for _ in range(CONFLICTS_MAX):
            entity_type, entity = await self._entity(resource_type, name)
            alteration = await self._worked_out(entity_type, entity, change, names, takes_custom=True)
            if validate_only:
                return
            try:
                await translate_errors(self._client.multi(alteration.operations))
            except MultiFailed as failed:
                if not isinstance(failed.error, (BadVersion, NodeExists, NoNode)):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
                continue  # somebody else changed it meanwhile: what follows has to be worked out anew
            self._apply(entity_type, entity, alteration.settings)
            return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"others change the settings of {name!r} all the time: try again")

    async def alteration(self, entity_type: str, entity: str, operations: Sequence[AlterOperation]) -> Alteration:
        """What changes single dynamic settings of any topic or broker, for one multi; writes nothing itself.

        :param entity_type: ``topics`` or ``brokers``; whether the entity exists is the caller's to know.
        :raise KafkaError: whatever is wrong with an operation, or with the settings that follow.
        """
        known = TOPIC_SETTINGS if entity_type == "topics" else BROKER_SETTINGS
        names = [operation.name for operation in operations]
        return await self._worked_out(
            entity_type, entity, lambda current: alter_incrementally(current, operations, known), names
        )

    async def _worked_out(
        self,
        entity_type: str,
        entity: str,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        names: Sequence[str],
        *,
        takes_custom: bool = False,
    ) -> Alteration:
        version, current = await translate_errors(self._read(znodes.config_path(entity_type, entity)))
        new = change(current)
        if entity_type == "topics":
            self.check_topic(new)
        else:
            per_broker = entity != znodes.DEFAULT_ENTITY
            validate_broker_config(new, changed=names, per_broker=per_broker, takes_custom=takes_custom)
        return Alteration(new, version, _writes(entity_type, entity, new, version))

    async def _entity(self, resource_type: int, name: str) -> tuple[str, str]:
        if resource_type == TOPIC_RESOURCE:
            if await translate_errors(self._client.exists(znodes.topic_path(name))) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            return "topics", name
        if resource_type != BROKER_RESOURCE:
            raise no_settings(resource_type)
        if name not in ("", self._broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"this is broker {self._broker_id}; ask broker {name} to change its settings"
            )
        return "brokers", name or znodes.DEFAULT_ENTITY

    async def _read(self, path: str) -> tuple[int | None, dict[str, str]]:
        try:
            data, stat = await self._client.get_data(path)
        except NoNode:
            return None, {}
        return stat.version, dict(self._decode(path, data))

    # --- changes by anybody ------------------------------------------------------------------------------------------

    def knows(self, topic: str) -> bool:
        """Whether the topic's settings have been read."""
        return topic in self._topics

    async def learn(self, topics: Sequence[str]) -> None:
        """Read the settings of topics, again where they are known."""
        paths = [znodes.config_path("topics", topic) for topic in topics]
        for topic, path, answer in zip(topics, paths, await read_all(self._client, paths), strict=True):
            self._apply("topics", topic, self._decode(path, answer[0]) if isinstance(answer, tuple) else {})

    def forget(self, topic: str) -> None:
        """The topic was deleted: one of the same name is another."""
        self._topics.pop(topic, None)
        self._partition_settings.pop(topic, None)

    def _decode(self, path: str, data: bytes) -> Mapping[str, str]:
        """Settings that cannot be read are nobody's: the defaults hold, and the log says so."""
        try:
            return documents.decode_config(path, data)
        except znodes.ZnodeError as error:
            log.error("settings that cannot be read are left out: {error}", error=str(error))
            return {}

    def _apply(self, entity_type: str, entity: str, settings: Mapping[str, str]) -> None:
        if entity_type == "topics":
            if self._topics.get(entity) == settings:
                return
            self._topics[entity] = dict(settings)
            if self._partition_settings.pop(entity, None) is not None:
                self._topic_changed(entity)
        elif entity_type == "brokers" and entity in (znodes.DEFAULT_ENTITY, self._broker_id):
            self._layers[entity] = dict(settings)
            own, shared = self._layers.get(self._broker_id), self._layers.get(znodes.DEFAULT_ENTITY)
            self._effective = EffectiveSettings(self._static, own, shared)
            for promise in self._effective.unkept:
                log.critical("{path}: {promise}", path=znodes.config_path(entity_type, entity), promise=promise)
            topics = list(self._partition_settings)
            self._partition_settings.clear()
            for topic in topics:
                self._topic_changed(topic)

    def _changes_seen(self, *, restart: bool = False) -> None:
        self._read_again = True
        self._restart = self._restart or restart
        # One reader at a time: two would remove the same notifications.
        if self._reading is None and not self._starting and not self._stopped:
            self._reading = Deferred.fromCoroutine(self._follow())
            self._reading.addErrback(lambda failure: log.failure("reading changed settings", failure))

    async def _follow(self) -> None:
        try:
            while self._read_again:
                self._read_again = False
                restart, self._restart = self._restart, False
                try:
                    await (self._read_everything() if restart else self._read_changes(apply=True))
                except ZooKeeperError as error:
                    log.warn("changed settings could not be read: {error}", error=str(error))
                    # From the beginning: what was taken in before it failed is not known, and the watch may be gone.
                    self._restart = True
                    if isinstance(error, SessionExpired):
                        return  # until there is another session
                    self._read_again = True
                    await pause(self._reactor, RETRY_SECONDS)
        except CancelledError:
            pass  # by stop
        finally:
            self._reading = None

    async def _read_changes(self, *, apply: bool) -> None:
        """Take in the notifications that are new, and remove those that every broker has had time to see."""
        names = await self._client.get_children(znodes.CONFIG_CHANGES, lambda _: self._changes_seen())
        self._changes = {name: self._changes[name] for name in names if name in self._changes}
        new = sorted(name for name in names if name not in self._changes)
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in new]
        changed: dict[tuple[str, str], None] = {}
        for name, path, answer in zip(new, paths, await read_all(self._client, paths), strict=True):
            if not isinstance(answer, tuple):
                continue  # gone again: another broker removed it
            data, stat = answer
            self._changes[name] = stat.mtime_ms
            try:
                changed[documents.decode_config_change(path, data)] = None
            except znodes.ZnodeError as error:
                log.warn("a notification of changed settings is ignored: {error}", error=str(error))
        for entity in changed if apply else ():
            await self._reload(*entity)
        await self._remove_old_changes()

    async def _remove_old_changes(self) -> None:
        oldest_ms = self._wall_clock_ms() - CHANGE_KEPT_MS
        for name in [name for name, made_ms in self._changes.items() if made_ms < oldest_ms]:
            try:
                await self._client.delete(f"{znodes.CONFIG_CHANGES}/{name}")
            except NoNode:
                pass
            del self._changes[name]

    async def _reload(self, entity_type: str, entity: str) -> None:
        if entity_type == "topics":
            await self.learn([entity])
        elif entity_type == "brokers":
            path = znodes.config_path(entity_type, entity)
            (answer,) = await read_all(self._client, [path])
            self._apply(entity_type, entity, self._decode(path, answer[0]) if isinstance(answer, tuple) else {})

    async def _reload_brokers(self) -> None:
        for entity in (znodes.DEFAULT_ENTITY, self._broker_id):
            await self._reload("brokers", entity)


def _writes(entity_type: str, entity: str, settings: Mapping[str, str], version: int | None) -> list[Operation]:
    """What changes settings, in one multi: that nobody hears of it, or that it outlives its topic, cannot be.

    :param version: of the znode that holds them; None where there is none.
    """
    path, data = znodes.config_path(entity_type, entity), documents.encode_config(settings)
    notification = f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}"
    return [
        *([Check(znodes.topic_path(entity), -1)] if entity_type == "topics" else []),
        Create(path, data) if version is None else SetData(path, data, version),
        Create(notification, documents.encode_config_change(entity_type, entity), sequence=True),
    ]
