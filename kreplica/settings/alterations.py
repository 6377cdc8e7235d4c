"""What AlterConfigs, IncrementalAlterConfigs and CreateTopics may do to settings: pure checks and edits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.settings.definitions import TOPIC_SETTINGS
from kreplica.settings.names import broker_setting, hint, topic_hint, unkept_promise
from kreplica.settings.setting import Setting, Type, Update, format_value
from kreplica.settings.validators import Value


class OperationType(IntEnum):
    """What one operation of IncrementalAlterConfigs does (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterOperation(NamedTuple):
    """:param operation: an ``OperationType``, as the request has it."""

    name: str
    operation: int
    value: str | None


def alter_incrementally(
    current: Mapping[str, str],
    operations: Sequence[AlterOperation],
    known: Mapping[str, Setting] = TOPIC_SETTINGS,
) -> dict[str, str]:
    """The settings of an entity after some operations, not yet validated.

    :param current: what its znode holds.
    :param known: ``TOPIC_SETTINGS`` or ``BROKER_SETTINGS``.
    :raise KafkaError: INVALID_REQUEST for a name twice, a value missing or an operation unknown; INVALID_CONFIG where
        something that is not a list is appended to or subtracted from.
    """
    _refuse_malformed(operations)
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
    """Refuse what a topic may not be told.

    :param configs: all overrides that the topic is to have.
    :param defaults: what the broker says of the rest, typed; Kafka's defaults where it is None.
    :raise KafkaError: INVALID_CONFIG, naming the setting, the value and what is allowed.
    """
    typed = {name: setting.default for name, setting in TOPIC_SETTINGS.items()} | dict(defaults or {})
    for name, text in configs.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise _invalid(f"Unknown topic config name: {name}.{topic_hint(name)}")
        typed[name] = _parse(setting, text)
    low, high = typed["min.compaction.lag.ms"], typed["max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise _invalid(f"min.compaction.lag.ms={low} must not be above max.compaction.lag.ms={high}")
    if typed["remote.storage.enable"]:
        raise _invalid("remote.storage.enable=true is not allowed: there is no tiered storage")


def validate_broker_config(
    configs: Mapping[str, str | None], *, changed: Iterable[str], per_broker: bool, takes_custom: bool = False
) -> None:
    """Refuse settings that brokers cannot change while they run.

    :param configs: all dynamic settings that the broker, or all brokers together, are to have.
    :param changed: the names that a request names, which must be such as may change.
    :param per_broker: whether they are for one broker; else for all.
    :param takes_custom: accept names that are no settings, as Kafka does; they are kept and have no effect.
    :raise KafkaError: INVALID_REQUEST for a setting that cannot change so; INVALID_CONFIG for a name or value that is
        not allowed.
    """
    changed = set(changed)
    for name in sorted(changed):
        setting = broker_setting(name)
        if setting is None:
            if takes_custom or name not in configs:
                continue
            raise _invalid(f"there is no broker setting {name!r}.{hint(name)}")
        if setting.update is Update.READ_ONLY:
            raise _bad_request(f"{name} cannot change while a broker runs: set it in the broker's file and restart")
        if setting.update is Update.PER_BROKER and not per_broker:
            raise _bad_request(f"{name} can be set for one broker only, by the broker's id")
    for name, text in configs.items():
        setting = broker_setting(name)
        if setting is not None:
            value = _parse(setting, text)
            refused = unkept_promise(setting, value)
            if refused is not None and name in changed:
                raise _invalid(f"{refused}.")


def _refuse_malformed(operations: Sequence[AlterOperation]) -> None:
    counts = Counter(name for name, _, _ in operations)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise _bad_request(f"Error due to duplicate config keys: {', '.join(twice)}")
    unknown = [name for name, operation, _ in operations if operation not in {*OperationType}]
    if unknown:
        known = ", ".join(f"{operation.name} {operation}" for operation in OperationType)
        raise _bad_request(f"Unknown operation for: {', '.join(unknown)}; there are {known}")
    empty = [name for name, operation, value in operations if value is None and operation != OperationType.DELETE]
    if empty:
        raise _bad_request(f"Null value not supported for: {', '.join(empty)}")


def _edit_list(name: str, operation: int, value: str, current: str | None, known: Mapping[str, Setting]) -> list[str]:
    """A list after items are appended or subtracted; where nobody has set it, it begins as Kafka's default."""
    verb = "append" if operation == OperationType.APPEND else "subtract"
    setting = known.get(name)
    if setting is None:
        find = topic_hint if known is TOPIC_SETTINGS else hint
        raise _invalid(f"there is no setting {name!r}.{find(name)}")
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
