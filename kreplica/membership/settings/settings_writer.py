"""Validates changes of dynamic settings and writes them to ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.settings.client_metrics import Subscription, write_operations
from kreplica.membership.settings.dynamic_settings import DynamicSettings, decode_settings
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.settings.alterations import AlterOperation, alter_incrementally, validate_broker_config
from kreplica.settings.client_metrics import CLIENT_METRICS_SETTINGS
from kreplica.settings.definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.names import LISTENER_PREFIX
from kreplica.settings.resources import unsupported_resource_error
from kreplica.settings.setting import Setting
from kreplica.zookeeper import (
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    ZooKeeperClient,
)

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
"""Resource types of the protocol that have settings here."""

_KNOWN = {
    "topics": TOPIC_SETTINGS,
    "brokers": BROKER_SETTINGS,
    znodes.CLIENT_METRICS_TYPE: CLIENT_METRICS_SETTINGS,
}
"""Setting definitions, by entity type."""

CONFLICTS_MAX = 10
"""Maximum number of attempts for a change that conflicts with concurrent changes."""

Change = Callable[[Mapping[str, str], Mapping[str, Setting]], dict[str, str]]
"""Returns the new settings of an entity, given its current ones and the setting definitions of its type."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """A change of an entity's dynamic settings.

    :param settings: all settings after the change.
    :param version: version of the settings znode before the change; None if it does not exist.
    :param operations: ZooKeeper operations that write the settings and the notification.
    """

    settings: Mapping[str, str]
    version: int | None
    operations: Sequence[Operation]


class SettingsWriter:
    """Validates changes and writes them, with a notification to all brokers for each change.

    :param settings: validates topic settings; each written change is applied to it at once.
    """

    def __init__(self, settings: DynamicSettings, client: ZooKeeperClient, broker_id: int) -> None:
        self._settings = settings
        self._client = client
        self._broker_id = str(broker_id)

    async def replace(self, resource_type: int, name: str, settings: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace all dynamic settings of a topic, broker or subscription.

        :raise KafkaError: the resource or the settings are invalid.
        """
        names = list(settings)
        await self._change(resource_type, name, lambda *_: dict(settings), names, validate_only=validate_only)

    async def alter(
        self, resource_type: int, name: str, operations: Sequence[AlterOperation], *, validate_only: bool
    ) -> None:
        """Change individual dynamic settings of a topic, broker or subscription.

        :raise KafkaError: the resource, an operation or the resulting settings are invalid.
        """
        names = [operation.name for operation in operations]
        await self._change(resource_type, name, _incremental_change(operations), names, validate_only=validate_only)

    async def _change(
        self, resource_type: int, name: str, change: Change, names: Sequence[str], *, validate_only: bool
    ) -> None:
        for _ in range(CONFLICTS_MAX):
            entity_type, entity = await self._entity(resource_type, name)
            alteration = await self._alteration(entity_type, entity, change, names, allows_custom=True)
            if validate_only or not alteration.operations:
                return
            try:
                await translate_errors(self._client.multi(alteration.operations))
            except MultiFailed as failed:
                if not isinstance(failed.error, (BadVersion, NodeExists, NoNode)):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
                continue  # concurrent change: compute the new settings again
            self._settings.apply(entity_type, entity, alteration.settings)
            return
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"concurrent changes to the settings of {name!r} prevented this one; try again"
        )

    async def alteration(self, entity_type: str, entity: str, operations: Sequence[AlterOperation]) -> Alteration:
        """Return the operations that change individual settings of an entity, without writing them.

        :param entity_type: ``topics``, ``brokers`` or ``client-metrics``; the caller checks that the entity exists.
        :raise KafkaError: an operation or the resulting settings are invalid.
        """
        names = [operation.name for operation in operations]
        return await self._alteration(entity_type, entity, _incremental_change(operations), names)

    async def _alteration(
        self, entity_type: str, entity: str, change: Change, names: Sequence[str], *, allows_custom: bool = False
    ) -> Alteration:
        version, current = await translate_errors(self._read(znodes.config_path(entity_type, entity)))
        if (entity_type, entity) == ("brokers", self._broker_id):
            current = await self._settings.passwords.decrypted(current)
        new = change(current, _KNOWN[entity_type])
        if entity_type == znodes.CLIENT_METRICS_TYPE:
            Subscription.parse(entity, new)
            return Alteration(new, version, write_operations(entity, new, version))
        if entity_type == "topics":
            self._settings.check_topic(new)
            return Alteration(new, version, _operations(entity_type, entity, new, version))
        per_broker = entity != znodes.DEFAULT_ENTITY
        validate_broker_config(new, changed=names, per_broker=per_broker, allows_custom=allows_custom)
        written = new
        if entity == self._broker_id:
            await self._settings.check_certificates(new, names)
            written = await self._settings.passwords.encrypted(new)
        elif per_broker:
            _check_no_listener_settings(names, entity)
        return Alteration(new, version, _operations(entity_type, entity, written, version))

    async def encrypt_again(self) -> None:
        """Re-encrypt those of this broker's passwords that were encrypted with the old secret."""
        if self._settings.passwords.are_old:
            await self.alter(BROKER_RESOURCE, self._broker_id, [], validate_only=False)

    async def _entity(self, resource_type: int, name: str) -> tuple[str, str]:
        if resource_type == TOPIC_RESOURCE:
            if await translate_errors(self._client.exists(znodes.topic_path(name))) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
            return "topics", name
        if resource_type == CLIENT_METRICS_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a subscription must not be empty")
            return znodes.CLIENT_METRICS_TYPE, name
        if resource_type != BROKER_RESOURCE:
            raise unsupported_resource_error(resource_type)
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
        return stat.version, dict(decode_settings(path, data))


def _incremental_change(operations: Sequence[AlterOperation]) -> Change:
    return lambda current, known: alter_incrementally(current, operations, known)


def _check_no_listener_settings(names: Sequence[str], broker: str) -> None:
    """Check that settings of another broker do not change its listeners, whose files only that broker can read.

    :raise KafkaError: INVALID_REQUEST.
    """
    for name in names:
        if name.startswith(LISTENER_PREFIX):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} of broker {broker} can only be changed by that broker")


def _operations(entity_type: str, entity: str, settings: Mapping[str, str], version: int | None) -> list[Operation]:
    """Return one multi's operations: write the settings, check that the topic exists, create a notification.

    :param version: version of the settings znode; None if it does not exist.
    """
    path, data = znodes.config_path(entity_type, entity), documents.encode_config(settings)
    notification = f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}"
    return [
        *([Check(znodes.topic_path(entity), -1)] if entity_type == "topics" else []),
        Create(path, data) if version is None else SetData(path, data, version),
        Create(notification, documents.encode_config_change(entity_type, entity), sequence=True),
    ]
