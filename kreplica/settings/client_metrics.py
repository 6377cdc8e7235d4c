"""Settings of client metrics subscriptions (KIP-714): resources of the type CLIENT_METRICS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kreplica.errors import ErrorCode, KafkaError
from kreplica.settings.dynamic import ConfigRow, Synonym
from kreplica.settings.setting import Setting, Source, Type, format_value
from kreplica.settings.validators import ANY, between

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"

ALL_METRICS = "*"
"""The only entry of ``metrics`` in a subscription to all metrics."""

INTERVAL_MS_DEFAULT = 300_000

CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for setting in (
            Setting(
                METRICS, Type.LIST, (), ANY,
                documentation="The name prefixes of the metrics that clients push; * for all metrics.",
            ),
            Setting(
                INTERVAL, Type.INT, INTERVAL_MS_DEFAULT, between(100, 3_600_000),
                documentation="The interval at which a client pushes metrics.",
            ),
            Setting(
                MATCH, Type.LIST, (), ANY,
                documentation="The clients to which the subscription applies, as a list of ATTRIBUTE=EXPRESSION; each "
                "regular expression must match the whole attribute. Attributes: client_instance_id, client_id, "
                "client_software_name, client_software_version, client_source_address, client_source_port. "
                "Empty for all clients.",
            ),
        )
    }
)  # fmt: skip

ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""Attributes of clients that ``match`` can name."""


def validate_client_metrics(configs: Mapping[str, str]) -> None:
    """Validate the settings of a subscription, except the regular expressions.

    :raise KafkaError: INVALID_REQUEST for an unknown name or an invalid interval; INVALID_CONFIG for an invalid match.
    """
    for name, text in configs.items():
        setting = CLIENT_METRICS_SETTINGS.get(name)
        if setting is None:
            known = ", ".join(CLIENT_METRICS_SETTINGS)
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}; expected one of {known}"
            )
        try:
            setting.parse(text)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    match_expressions(configs.get(MATCH, ""))


def match_expressions(text: str) -> dict[str, str]:
    """Return the regular expressions of ``match`` by attribute.

    :raise KafkaError: INVALID_CONFIG for an entry that is not ATTRIBUTE=EXPRESSION.
    """
    expressions = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        attribute, _, expression = (part.strip() for part in entry.partition("="))
        if attribute not in ATTRIBUTES or not expression or "=" in expression:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Illegal client matching pattern: {entry!r}; expected ATTRIBUTE=EXPRESSION with one of the attributes "
                + ", ".join(ATTRIBUTES),
            )
        expressions[attribute] = expression
    return expressions


def describe_client_metrics(own: Mapping[str, str]) -> list[ConfigRow]:
    """Return a subscription's rows in DescribeConfigs.

    :param own: the settings in its znode; empty for an unknown subscription.
    """
    return [_row(setting, own.get(setting.name)) for setting in CLIENT_METRICS_SETTINGS.values()]


def _row(setting: Setting, own: str | None) -> ConfigRow:
    default = format_value(setting.default)
    layers = [Synonym(setting.name, default, Source.DEFAULT_CONFIG)]
    if own is not None:
        layers.insert(0, Synonym(setting.name, own, Source.DYNAMIC_CLIENT_METRICS_CONFIG))
    return ConfigRow(
        name=setting.name,
        value=layers[0].value,
        source=layers[0].source,
        read_only=False,
        is_sensitive=False,
        config_type=int(setting.type),
        synonyms=tuple(layers),
        documentation=setting.describe(),
    )
