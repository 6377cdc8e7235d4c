"""Dynamic settings: their layers, their effective values, and their rows in DescribeConfigs.

``/config/topics/T`` overrides ``/config/brokers/N``, which overrides ``/config/brokers/<default>``, the broker's file
and Kafka's defaults, in this order (KIP-226). The layers are resolved when one of them changes, so reading a value is
only a look-up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, NamedTuple

from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.definitions.security import DYNAMIC_TLS_SETTINGS
from kreplica.settings.names import LISTENER_PREFIX, broker_setting, of_listener, unsupported_protection
from kreplica.settings.setting import Setting, Source, Update, format_value
from kreplica.settings.validators import Value

UNKNOWN_TYPE = 0
"""Type of an unknown setting in DescribeConfigs."""

_MS = {"hours": 3_600_000, "minutes": 60_000}
_ALTERNATIVES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
"""Alternative broker settings for the same value in different units; the first one that is set applies."""

_DEFAULT_TEXTS = {name: format_value(setting.default) for name, setting in BROKER_SETTINGS.items()}


class Synonym(NamedTuple):
    """The value of a setting in one layer; ``value`` is None if it is a secret."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One setting in a response to DescribeConfigs.

    :param value: None if the setting is a secret or not set.
    :param config_type: Kafka's code of the type; 0 is unknown.
    :param synonyms: values of the setting in all layers; the first one applies.
    """

    name: str
    value: str | None
    source: Source
    read_only: bool
    is_sensitive: bool
    config_type: int
    synonyms: tuple[Synonym, ...]
    documentation: str

    @property
    def is_default(self) -> bool:
        """True if no layer sets the setting; in version 0 of DescribeConfigs, this field replaces the source."""
        return self.source is Source.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Effective settings of one topic.

    :param ignored: an error message for each override that is ignored because it is malformed or unknown.
    """

    values: Mapping[str, Value]
    ignored: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """Return the typed value of a topic setting, which is never None.

        :raise KeyError: the setting does not exist.
        """
        return self.values[name]


class EffectiveSettings:
    """Immutable effective settings of a broker: its file and the dynamic layers.

    :ivar ignored: an error message for each dynamic value that is ignored because it is malformed or not allowed.
    :ivar unsupported: an error message for each dynamic value that requires a security feature that is not implemented.
    """

    def __init__(
        self, static: BrokerSettings, broker: Mapping[str, str] | None = None, default: Mapping[str, str] | None = None
    ) -> None:
        """Resolve the layers.

        :param broker: the content of ``/config/brokers/N``.
        :param default: the content of ``/config/brokers/<default>``.
        """
        self.static = static
        ignored: list[str] = []
        self._custom = _custom_rows(default or {}, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
        self._custom_of_broker = self._custom | _custom_rows(broker or {}, Source.DYNAMIC_BROKER_CONFIG)
        self._broker = _valid_settings(broker or {}, ignored)
        self._default = _valid_settings(default or {}, ignored)
        self.ignored = tuple(ignored)
        self._layers: tuple[tuple[Mapping[str, str | None], Source], ...] = (
            (self._broker, Source.DYNAMIC_BROKER_CONFIG),
            (self._default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ({name: static.text(name) for name in static.configured_names}, Source.STATIC_BROKER_CONFIG),
            (_DEFAULT_TEXTS, Source.DEFAULT_CONFIG),
        )
        of_listeners = [name for name in static.configured_names if name.startswith(LISTENER_PREFIX)]
        self._values = {name: static[name] for name in (*BROKER_SETTINGS, *of_listeners)}
        unsupported: list[str] = []
        for name, text in (self._default | self._broker).items():
            setting = broker_setting(name)
            if setting is not None:
                self._values[name] = value = setting.parse(text)
                rejected = unsupported_protection(setting, value)
                if rejected is not None:
                    unsupported.append(rejected)
        self.unsupported = tuple(unsupported)
        self._topic_defaults = {setting.name: self._topic_default(setting) for setting in TOPIC_SETTINGS.values()}

    def __getitem__(self, name: str) -> Any:
        """Return the typed value of a broker setting; None if it is not set and has no default.

        :raise KeyError: the setting does not exist.
        """
        return self._values[name]

    @property
    def names(self) -> Sequence[str]:
        """Names of the settings that the broker's file or a dynamic layer sets."""
        return (*self._broker, *self._default, *self.static.configured_names)

    def of_listener(self, listener: str, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of settings for one listener; see ``BrokerSettings.of_listener``."""
        return of_listener(self._values, listener, names)

    def topic(self, overrides: Mapping[str, str]) -> TopicSettings:
        """Return the effective settings of a topic.

        :param overrides: the content of ``/config/topics/T``.
        """
        values = dict(self._topic_defaults)
        ignored = []
        for name, text in overrides.items():
            setting = TOPIC_SETTINGS.get(name)
            try:
                if setting is None:
                    raise ValueError(f"{name}: unknown topic setting")
                values[name] = setting.parse(text)
            except ValueError as error:
                ignored.append(str(error))
        _apply_timestamp_difference(values)
        return TopicSettings(values, tuple(ignored))

    # --- DescribeConfigs ---------------------------------------------------------------------------------------------

    def describe_topic(self, overrides: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigRow]:
        """Describe the settings of a topic.

        :param names: the settings to describe; None for all.
        """
        known = (self._topic_row(setting, overrides) for setting in TOPIC_SETTINGS.values())
        source = Source.DYNAMIC_TOPIC_CONFIG
        unknown = (_unknown_row(name, source) for name in overrides if name not in TOPIC_SETTINGS)
        return [row for rows in (known, unknown) for row in rows if names is None or row.name in names]

    def describe_broker(self, names: Collection[str] | None = None) -> list[ConfigRow]:
        """Describe the settings of this broker, except those that Kafka lists only if they are set."""
        listed = {setting.name: setting for setting in BROKER_SETTINGS.values() if setting.listed}
        for name in (*self.static.configured_names, *self._default, *self._broker):
            setting = broker_setting(name)
            if setting is not None:
                listed.setdefault(name, setting)
        known = [self._broker_row(setting) for setting in listed.values()]
        return [row for row in (*known, *self._custom_of_broker.values()) if names is None or row.name in names]

    def describe_default_broker(self, names: Collection[str] | None = None) -> list[ConfigRow]:
        """Describe the cluster-wide dynamic settings, as Kafka does for the default broker resource."""
        rows = []
        for name, text in self._default.items():
            setting = broker_setting(name)
            if setting is not None and (names is None or name in names):
                layer = (Synonym(name, text, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),)
                rows.append(_row(setting, text, layer, read_only=setting.update is Update.READ_ONLY))
        return rows + [row for name, row in self._custom.items() if names is None or name in names]

    def _topic_row(self, setting: Setting, overrides: Mapping[str, str]) -> ConfigRow:
        override = overrides.get(setting.name)
        synonyms = tuple(self._layered_values(setting.synonyms))
        try:
            value = setting.parse(override) if override is not None else self._topic_defaults[setting.name]
        except ValueError:
            value, override = self._topic_defaults[setting.name], None
        if override is not None:
            synonyms = (Synonym(setting.name, override, Source.DYNAMIC_TOPIC_CONFIG), *synonyms)
        return _row(setting, format_value(value), synonyms, read_only=False)

    def _broker_row(self, setting: Setting) -> ConfigRow:
        names = next((group for group in _ALTERNATIVES if setting.name in group), (setting.name,))
        values = dropwhile(lambda value: value.name != setting.name, self._layered_values(names))
        synonyms = tuple(values)
        text = synonyms[0].value if synonyms else format_value(setting.default)
        return _row(setting, text, synonyms, read_only=setting.update is Update.READ_ONLY)

    # --- layers ------------------------------------------------------------------------------------------------------

    def _layered_values(self, names: Sequence[str]) -> Iterator[Synonym]:
        """Yield the values of broker settings in all layers, in order of precedence."""
        for layer, source in self._layers:
            for name in names:
                text = layer.get(name)
                if text is not None:
                    yield Synonym(name, text, source)

    def _topic_default(self, setting: Setting) -> Value:
        """Return the broker's default for a topic setting, in the unit of the topic setting."""
        for configured in self._layered_values(setting.synonyms):
            value = BROKER_SETTINGS[configured.name].parse(configured.value or "")
            if isinstance(value, int) and not isinstance(value, bool):
                factor = _MS.get(configured.name.rpartition(".")[2], 1)
                return value * factor if value >= 0 else value
            return value
        return setting.default


def _valid_settings(layer: Mapping[str, str], ignored: list[str]) -> dict[str, str]:
    """Return the valid dynamic settings; append an error message to ``ignored`` for each of the others."""
    valid = {}
    for name, text in layer.items():
        setting = broker_setting(name)
        try:
            if setting is None:
                raise ValueError(f"{name}: unknown broker setting; it is listed, but has no effect")
            if setting.update is Update.READ_ONLY or name in DYNAMIC_TLS_SETTINGS:
                raise ValueError(f"{name}: cannot change at run time")
            setting.parse(text)
        except ValueError as error:
            ignored.append(str(error))
        else:
            valid[name] = text
    return valid


def _apply_timestamp_difference(values: dict[str, Value]) -> None:
    """Apply ``message.timestamp.difference.max.ms`` to its replacements if these have their defaults (KIP-937)."""
    for newer in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if values[newer] == TOPIC_SETTINGS[newer].default:
            values[newer] = values["message.timestamp.difference.max.ms"]


def _row(setting: Setting, text: str | None, synonyms: tuple[Synonym, ...], *, read_only: bool) -> ConfigRow:
    if setting.sensitive:
        text = None
        synonyms = tuple(synonym._replace(value=None) for synonym in synonyms)
    return ConfigRow(
        name=setting.name,
        value=text,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        read_only=read_only,
        is_sensitive=setting.sensitive,
        config_type=int(setting.type),
        synonyms=synonyms,
        documentation=setting.describe(),
    )


def _custom_rows(layer: Mapping[str, str], source: Source) -> dict[str, ConfigRow]:
    """Describe unknown names, which Kafka treats as plugin settings."""
    return {name: _unknown_row(name, source) for name in layer if broker_setting(name) is None}


def _unknown_row(name: str, source: Source) -> ConfigRow:
    """Describe an unknown name; its value may be a secret, so it is hidden."""
    return ConfigRow(name, None, source, False, True, UNKNOWN_TYPE, (Synonym(name, None, source),), "")
