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
"""Update mode of settings that Kafka can change at run time and kreplica reads only at startup."""

CODECS = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
CLOCKS = OneOf(("CreateTime", "LogAppendTime"))


class Row(NamedTuple):
    """A setting without a description, for settings that kreplica does not implement."""

    name: str
    type: Type
    default: Value
    valid: Validator
    importance: Importance
    update: Update
    listed: bool = True


def known_only(instead: str, *rows: Row) -> tuple[Setting, ...]:
    """Return settings that Kafka has and kreplica does not implement.

    :param instead: behaviour independent of the value, as one clause; shown in warnings and on the reference page.
    """
    return tuple(
        Setting(
            row.name, row.type, row.default, row.valid, row.importance, row.update, instead=instead, listed=row.listed
        )
        for row in rows
    )


def protective(instead: str, *rows: Row) -> tuple[Setting, ...]:
    """Return settings of protections that kreplica does not implement.

    Only values that request no protection are accepted: Kafka's default and an empty value.

    :param instead: as for ``known_only``.
    """
    return tuple(
        replace(setting, harmless=(setting.default, None, "", ())) for setting in known_only(instead, *rows)
    )
