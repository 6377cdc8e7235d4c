"""The words in which the tables of this package are written."""

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
"""Of what Kafka can change at run time, and kreplica reads once, when it starts."""

CODECS = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
CLOCKS = OneOf(("CreateTime", "LogAppendTime"))


class Row(NamedTuple):
    """A setting that is only known: the fields of ``Setting`` without words."""

    name: str
    type: Type
    default: Value
    valid: Validator
    importance: Importance
    update: Update
    listed: bool = True


def known_only(instead: str, *rows: Row) -> tuple[Setting, ...]:
    """Settings that Kafka has and kreplica does not obey.

    :param instead: what happens whatever their values are: one clause, which warnings and the reference page show.
    """
    return tuple(
        Setting(
            row.name, row.type, row.default, row.valid, row.importance, row.update, instead=instead, listed=row.listed
        )
        for row in rows
    )


def protective(instead: str, *rows: Row) -> tuple[Setting, ...]:
    """Settings that promise a protection which kreplica does not give: only values that promise nothing are accepted.

    Those are Kafka's default and the absence of a value.

    :param instead: as for ``known_only``.
    """
    return tuple(
        replace(setting, harmless=(setting.default, None, "", ())) for setting in known_only(instead, *rows)
    )
