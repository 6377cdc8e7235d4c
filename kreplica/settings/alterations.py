"""Validates and applies changes by AlterConfigs, IncrementalAlterConfigs and CreateTopics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.settings.definitions import TOPIC_SETTINGS
from kreplica.settings.definitions.security import DYNAMIC_TLS_SETTINGS
from kreplica.settings.names import CONNECTION_LIMITS, broker_setting, hint, topic_hint, unsupported_protection
from kreplica.settings.setting import Setting, Type, Update, format_value
from kreplica.settings.validators import Value


class OperationType(IntEnum):
    """Operations of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterOperation(NamedTuple):
    """One operation of a request; ``operation`` is the number of an ``OperationType``, not yet validated."""

    name: str
    operation: int
    value: str | None


def alter_incrementally(
    current: Mapping[str, str],
    operations: Sequence[AlterOperation],
    known: Mapping[str, Setting] = TOPIC_SETTINGS,
) -> dict[str, str]:
    """Apply operations to the settings of an entity, without validating the result.

    :param current: the settings in the entity's znode.
    :param known: the settings that the entity can have: ``TOPIC_SETTINGS`` or ``BROKER_SETTINGS``.
    :raise KafkaError: INVALID_REQUEST if a name is repeated, a value is missing or an operation is unknown;
        INVALID_CONFIG for APPEND or SUBTRACT on a setting that is not a list.
    """
    _check_operations(operations)
    altered = dict(current)
    for name, operation, value in operations:
        if operation == OperationType.DELETE:
            altered.pop(name, None)
        elif operation == OperationType.SET:
            altered[name] = value or ""
        else:
            altered[name] = ",".join(_edit_list(name, operation, value or "", altered.get(name), known))
    return altered


def validate_topic_config(
    configs: Mapping[str, str | None], defaults: Mapping[str, Value] | None = None
) -> None:
    """Validate the overrides of a topic.

    :param configs: all overrides of the topic after the change.
    :param defaults: the broker's typed defaults for all other settings; None for Kafka's defaults.
    :raise KafkaError: INVALID_CONFIG; the message names the setting, the value and the allowed values.
    """
    typed = {name: setting.default for name, setting in TOPIC_SETTINGS.items()} | dict(defaults or {})
    for name, text in configs.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise _invalid(f"Unknown topic config name: {name}.{topic_hint(name)}")
        typed[name] = _parse(setting, text)
    low, high = typed["min.compaction.lag.ms"], typed["max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise _invalid(f"min.compaction.lag.ms={low} must not be larger than max.compaction.lag.ms={high}")
    if typed["remote.storage.enable"]:
        raise _invalid("remote.storage.enable=true is not allowed: tiered storage is not supported")


def validate_broker_config(
    configs: Mapping[str, str | None], *, changed: Iterable[str], per_broker: bool, allows_custom: bool = False
) -> None:
    """Validate dynamic settings of brokers.

    :param configs: all dynamic settings of the broker or of the cluster after the change.
    :param changed: names of the settings in the request; they must be changeable at run time.
    :param per_broker: True for one broker, False for the whole cluster.
    :param allows_custom: accept unknown names, as Kafka does; they are stored without effect.
    :raise KafkaError: INVALID_REQUEST if a setting cannot change at run time, or only per broker; INVALID_CONFIG
        for an invalid name or value.
    """
    changed = set(changed)
    for name in sorted(changed):
        setting = broker_setting(name)
        if setting is None:
            if allows_custom or name not in configs:
                continue
            raise _invalid(f"unknown broker setting {name!r}.{hint(name)}")
        if name in DYNAMIC_TLS_SETTINGS:
            raise _bad_request(
                f"{name} can change at run time only for one listener, as listener.name.LISTENER.{name} with the name "
                "of the listener in lower case"
            )
        if setting.update is Update.READ_ONLY:
            raise _bad_request(f"{name} cannot change at run time: set it in the broker's file and restart the broker")
        if setting.update is Update.PER_BROKER and not per_broker:
            raise _bad_request(f"{name} can only be set for individual brokers, by broker ID")
    for name, text in configs.items():
        setting = broker_setting(name)
        if setting is not None:
            value = _parse(setting, text)
            rejected = unsupported_protection(setting, value)
            if rejected is not None and name in changed:
                raise _invalid(f"{rejected}.")
            if value == 0 and name in (*CONNECTION_LIMITS, "max.connections.per.ip"):
                raise _invalid(f"{name}=0 would allow no connections; expected at least 1")


def _check_operations(operations: Sequence[AlterOperation]) -> None:
    counts = Counter(name for name, _, _ in operations)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise _bad_request(f"Error due to duplicate config keys: {', '.join(repeated)}")
    unknown = [name for name, operation, _ in operations if operation not in {*OperationType}]
    if unknown:
        known = ", ".join(f"{operation.name} {operation}" for operation in OperationType)
        raise _bad_request(f"Unknown operation for: {', '.join(unknown)}; the operations are {known}")
    empty = [name for name, operation, value in operations if value is None and operation != OperationType.DELETE]
    if empty:
        raise _bad_request(f"Null value not supported for: {', '.join(empty)}")


def _edit_list(name: str, operation: int, value: str, current: str | None, known: Mapping[str, Setting]) -> list[str]:
    """Append to or subtract from a list; a list that is not set starts with Kafka's default."""
    verb = "append" if operation == OperationType.APPEND else "subtract"
    setting = known.get(name)
    if setting is None:
        find = topic_hint if known is TOPIC_SETTINGS else hint
        raise _invalid(f"unknown setting {name!r}.{find(name)}")
    if setting.type is not Type.LIST:
        raise _invalid(f"Config value {verb} is not allowed for config key: {name}, which is not a list")
    old = _split(format_value(setting.default) or "" if current is None else current)
    items = _split(value)
    if operation == OperationType.APPEND:
        return old + [item for item in dict.fromkeys(items) if item not in old]
    return [item for item in old if item not in items]


def _split(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _parse(setting: Setting, text: str | None) -> Value:
    if text is None:
        raise _invalid(f"{setting.name} has no value; expected {setting.expected}")
    try:
        return setting.parse(text)
    except ValueError as error:
        raise _invalid(str(error)) from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
