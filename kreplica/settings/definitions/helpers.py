"""Constants and helper functions of the settings tables."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kreplica.settings.setting import Importance, Setting, Type, Update
from kreplica.settings.validators import OneOf, Validator, Value

BOOLEAN, STRING, INT, SHORT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG
DOUBLE, LIST, CLASS, PASSWORD = Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Update.READ_ONLY, Update.PER_BROKER, Update.CLUSTER_WIDE

AT_START = Update.READ_ONLY
"""Update mode of settings that Kafka can change at run time, but kreplica reads only at startup."""

CODECS = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
TIMESTAMP_TYPES = OneOf(("CreateTime", "LogAppendTime"))


class Row(NamedTuple):
    """A setting that kreplica does not implement: the fields of ``Setting`` except its documentation."""

    name: str
    type: Type
    default: Value
    valid: Validator
    importance: Importance
    update: Update
    listed: bool = True


def not_implemented(actual_behavior: str, *rows: Row) -> tuple[Setting, ...]:
    """Return settings of Kafka that kreplica accepts but ignores.

    :param actual_behavior: kreplica's behaviour, as one clause; shown in warnings and on the reference page.
    """
    return tuple(
        Setting(
            row.name,
            row.type,
            row.default,
            row.valid,
            row.importance,
            row.update,
            actual_behavior=actual_behavior,
            listed=row.listed,
        )
        for row in rows
    )


def not_implemented_protection(actual_behavior: str, *rows: Row) -> tuple[Setting, ...]:
    """Return settings of security features that kreplica does not implement.

    Only values that do not require the feature are accepted: Kafka's default and an empty value.

    :param actual_behavior: see ``not_implemented``.
    """
    return tuple(
        replace(setting, unprotected_values=(setting.default, None, "", ()))
        for setting in not_implemented(actual_behavior, *rows)
    )
