"""Merges the settings that a broker reports with those in ZooKeeper.

ZooKeeper takes precedence, because a broker receives changes slightly later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.admin.http.schemas import BOOLEAN, STRING, listing, nullable, one_of, record
from kreplica.settings import TOPIC_SETTINGS, ConfigRow, Source, Type
from kreplica.settings.client_metrics import CLIENT_METRICS_SETTINGS, describe_client_metrics
from kreplica.settings.names import broker_setting
from kreplica.settings.setting import Setting, format_value

UNKNOWN = "unknown"

CONFIG = record(
    {
        "name": STRING,
        "value": {**nullable(STRING), "description": "Null for a secret, or if no value is set."},
        "default_value": {**nullable(STRING), "description": "The effective value if this one is removed."},
        "is_default": {**BOOLEAN, "description": "True if no value is set anywhere."},
        "source": one_of(*(source.name.lower() for source in Source)),
        "type": one_of(*(kind.name.lower() for kind in Type), UNKNOWN),
        "unit": {**nullable(STRING), "description": "Unit of the value, such as `ms`. Null without one."},
        "allowed": {**nullable(STRING), "description": "Description of the valid values. Null for an unknown setting."},
        "choices": {
            **nullable(listing(STRING)),
            "description": "Valid values if they are a fixed set; for a list, those of its items. Null otherwise.",
        },
        "documentation": nullable(STRING),
        "read_only": {**BOOLEAN, "description": "True if a change requires a restart."},
        "sensitive": {**BOOLEAN, "description": "True if it is a secret, which is never shown."},
    },
    title="Config",
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """A setting of an entity.

    :param default: the effective value if the entity does not set it; None for a secret.
    :param default_source: the source of that value.
    """

    name: str
    kind: int
    documentation: str
    read_only: bool
    sensitive: bool
    default: str | None
    default_source: Source

    def row(self, own: str | None, layer: Source) -> Row:
        """Return the row of a setting.

        :param own: the entity's own value; None if it is not set.
        :param layer: the source of the entity's own values.
        """
        source = self.default_source if own is None else layer
        definition = _definition(self.name, layer)
        value = self.default if own is None else own
        return {
            "name": self.name,
            "value": None if self.sensitive else value,
            "default_value": None if self.sensitive else self.default,
            "is_default": source is Source.DEFAULT_CONFIG,
            "source": source.name.lower(),
            "type": Type(self.kind).name.lower() if self.kind in {*Type} else UNKNOWN,
            "unit": definition.unit or None if definition is not None else None,
            "allowed": definition.expected if definition is not None else None,
            "choices": None if definition is None or definition.choices is None else list(definition.choices),
            "documentation": self.documentation or None,
            "read_only": self.read_only,
            "sensitive": self.sensitive,
        }


def of_topic(rows: Iterable[ConfigRow], own: Mapping[str, str]) -> list[Row]:
    """Return the rows of a topic.

    :param rows: rows that describe a topic without settings of its own.
    """
    return _merge(_defaults(rows), own, Source.DYNAMIC_TOPIC_CONFIG)


def of_subscription(own: Mapping[str, str]) -> list[Row]:
    """Return the rows of a subscription to client metrics."""
    return _merge(_defaults(describe_client_metrics({})), own, Source.DYNAMIC_CLIENT_METRICS_CONFIG)


def _defaults(rows: Iterable[ConfigRow]) -> list[DescribedSetting]:
    return [
        DescribedSetting(r.name, r.config_type, r.documentation, r.read_only, r.is_sensitive, r.value, r.source)
        for r in rows
    ]


def of_broker(rows: Iterable[Mapping[str, Any]], own: Mapping[str, str]) -> list[Row]:
    """Return the rows of a broker.

    :param rows: rows of a DescribeConfigs response, with synonyms.
    """
    return _merge([_describe(row) for row in rows], own, Source.DYNAMIC_BROKER_CONFIG)


def _describe(row: Mapping[str, Any]) -> DescribedSetting:
    """Describe a setting with the default value and source that it would have without the broker's dynamic settings."""
    fallbacks = [each for each in row["synonyms"] if each["source"] != Source.DYNAMIC_BROKER_CONFIG]
    default, source = row["value"], Source(row["config_source"])
    if source is Source.DYNAMIC_BROKER_CONFIG:
        default, source = (None, Source.DEFAULT_CONFIG)
        if fallbacks:
            default, source = fallbacks[0]["value"], Source(fallbacks[0]["source"])
    return DescribedSetting(
        row["name"],
        row["config_type"],
        row["documentation"] or "",
        row["read_only"],
        row["is_sensitive"],
        default,
        source,
    )


def of_all_brokers(own: Mapping[str, str]) -> list[Row]:
    """Return the cluster-wide dynamic settings."""
    return _merge([], own, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)


def is_secret(name: str) -> bool:
    """Return True if a value must be hidden, which includes unknown settings."""
    setting = broker_setting(name) or TOPIC_SETTINGS.get(name) or CLIENT_METRICS_SETTINGS.get(name)
    return setting is None or setting.sensitive


def _merge(described: Sequence[DescribedSetting], own: Mapping[str, str], layer: Source) -> list[Row]:
    described_names = {setting.name for setting in described}
    unlisted = [_describe_unlisted(name, layer) for name in sorted(own) if name not in described_names]
    return [setting.row(own.get(setting.name), layer) for setting in (*described, *unlisted)]


def _definition(name: str, layer: Source) -> Setting | None:
    """Return the definition of a setting; None for an unknown setting."""
    if layer is Source.DYNAMIC_CLIENT_METRICS_CONFIG:
        return CLIENT_METRICS_SETTINGS.get(name)
    return TOPIC_SETTINGS.get(name) if layer is Source.DYNAMIC_TOPIC_CONFIG else broker_setting(name)


def _describe_unlisted(name: str, layer: Source) -> DescribedSetting:
    """Describe a setting that is not listed; the value of an unknown one is hidden, since it may be a secret."""
    definition = _definition(name, layer)
    if definition is None:
        return DescribedSetting(name, 0, "", False, True, None, Source.DEFAULT_CONFIG)
    default = format_value(definition.default)
    return DescribedSetting(
        name, int(definition.type), definition.describe(), False, definition.sensitive, default, Source.DEFAULT_CONFIG
    )
