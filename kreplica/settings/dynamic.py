"""Settings that change at run time: layers of them, what counts in the end, and how DescribeConfigs shows it.

A value of ``/config/topics/T`` counts more than one of ``/config/brokers/N``, that more than one of
``/config/brokers/<default>``, that more than the broker's file, and all more than Kafka's default (KIP-226).
Everything here is resolved when something changes; reading a value is a look-up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, NamedTuple

from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.names import broker_setting, unkept_promise
from kreplica.settings.setting import Setting, Source, Update, format_value
from kreplica.settings.validators import Value

UNKNOWN_TYPE = 0
"""DescribeConfigs' type of a setting that nobody knows."""

_MS = {"hours": 3_600_000, "minutes": 60_000}
_ALTERNATIVES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
"""Settings of a broker that say the same; the first that is set counts."""

_DEFAULT_TEXTS = {name: format_value(setting.default) for name, setting in BROKER_SETTINGS.items()}


class Synonym(NamedTuple):
    """One place that gives a setting a value; ``value`` is None where it is a secret."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One setting as DescribeConfigs answers it.

    :param value: None for a secret, and where nothing is set.
    :param config_type: Kafka's code of the type; 0 is unknown.
    :param synonyms: all places that give it a value, the one that counts first.
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
        """Whether nobody has set it: version 0 of DescribeConfigs has this in place of the source."""
        return self.source is Source.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The effective settings of one topic.

    :param ignored: a sentence for each override that is malformed or unknown, and so does not count.
    """

    values: Mapping[str, Value]
    ignored: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """The typed value of a topic's setting, which is never None.

        :raise KeyError: there is no such setting.
        """
        return self.values[name]


class EffectiveSettings:
    """A broker's settings with the dynamic layers over them.  Never changes: a change makes another one.

    :ivar ignored: a sentence for each dynamic value that is malformed or may not be set, and so does not count.
    :ivar unkept: a clause for each dynamic value that promises a protection which this release does not give.
    """

    def __init__(
        self, static: BrokerSettings, broker: Mapping[str, str] | None = None, default: Mapping[str, str] | None = None
    ) -> None:
        """:param broker: of ``/config/brokers/N``.
        :param default: of ``/config/brokers/<default>``.
        """
        self.static = static
        ignored: list[str] = []
        self._custom = _custom_rows(default or {}, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
        self._custom_here = self._custom | _custom_rows(broker or {}, Source.DYNAMIC_BROKER_CONFIG)
        self._broker = _usable(broker or {}, ignored)
        self._default = _usable(default or {}, ignored)
        self.ignored = tuple(ignored)
        self._layers: tuple[tuple[Mapping[str, str | None], Source], ...] = (
            (self._broker, Source.DYNAMIC_BROKER_CONFIG),
            (self._default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ({name: static.text(name) for name in static.given}, Source.STATIC_BROKER_CONFIG),
            (_DEFAULT_TEXTS, Source.DEFAULT_CONFIG),
        )
        self._values = {name: static[name] for name in BROKER_SETTINGS}
        unkept: list[str] = []
        for name, text in (self._default | self._broker).items():
            setting = broker_setting(name)
            if setting is not None:
                self._values[name] = value = setting.parse(text)
                refused = unkept_promise(setting, value)
                if refused is not None:
                    unkept.append(refused)
        self.unkept = tuple(unkept)
        self._topic_defaults = {setting.name: self._topic_default(setting) for setting in TOPIC_SETTINGS.values()}

    def __getitem__(self, name: str) -> Any:
        """The typed value of a broker's setting; None where it is not set and has no default.

        :raise KeyError: there is no such setting.
        """
        return self._values[name]

    def topic(self, overrides: Mapping[str, str]) -> TopicSettings:
        """What counts for a topic.

        :param overrides: of ``/config/topics/T``.
        """
        values = dict(self._topic_defaults)
        ignored = []
        for name, text in overrides.items():
            setting = TOPIC_SETTINGS.get(name)
            try:
                if setting is None:
                    raise ValueError(f"{name}: no topic has such a setting")
                values[name] = setting.parse(text)
            except ValueError as error:
                ignored.append(str(error))
        _fold_older_name(values)
        return TopicSettings(values, tuple(ignored))

    # --- DescribeConfigs ---------------------------------------------------------------------------------------------

    def describe_topic(self, overrides: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigRow]:
        """Every setting of a topic.

        :param names: only these; None for all.
        """
        known = (self._topic_row(setting, overrides) for setting in TOPIC_SETTINGS.values())
        source = Source.DYNAMIC_TOPIC_CONFIG
        unknown = (_unknown_row(name, source) for name in overrides if name not in TOPIC_SETTINGS)
        return [row for rows in (known, unknown) for row in rows if names is None or row.name in names]

    def describe_broker(self, names: Collection[str] | None = None) -> list[ConfigRow]:
        """Every setting of this broker, except those that Kafka does not list and nobody has set."""
        listed = {setting.name: setting for setting in BROKER_SETTINGS.values() if setting.listed}
        for name in (*self.static.given, *self._default, *self._broker):
            setting = broker_setting(name)
            if setting is not None:
                listed.setdefault(name, setting)
        known = [self._broker_row(setting) for setting in listed.values()]
        return [row for row in (*known, *self._custom_here.values()) if names is None or row.name in names]

    def describe_default_broker(self, names: Collection[str] | None = None) -> list[ConfigRow]:
        """What is set for all brokers together, and nothing else, as Kafka answers for the broker without a name."""
        rows = []
        for name, text in self._default.items():
            setting = broker_setting(name)
            if setting is not None and (names is None or name in names):
                layer = (Synonym(name, text, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),)
                rows.append(_row(setting, text, layer, read_only=setting.update is Update.READ_ONLY))
        return rows + [row for name, row in self._custom.items() if names is None or name in names]

    def _topic_row(self, setting: Setting, overrides: Mapping[str, str]) -> ConfigRow:
        override = overrides.get(setting.name)
        synonyms = tuple(self._places(setting.synonyms))
        try:
            value = setting.parse(override) if override is not None else self._topic_defaults[setting.name]
        except ValueError:
            value, override = self._topic_defaults[setting.name], None
        if override is not None:
            synonyms = (Synonym(setting.name, override, Source.DYNAMIC_TOPIC_CONFIG), *synonyms)
        return _row(setting, format_value(value), synonyms, read_only=False)

    def _broker_row(self, setting: Setting) -> ConfigRow:
        names = next((group for group in _ALTERNATIVES if setting.name in group), (setting.name,))
        places = dropwhile(lambda place: place.name != setting.name, self._places(names))
        synonyms = tuple(places)
        text = synonyms[0].value if synonyms else format_value(setting.default)
        return _row(setting, text, synonyms, read_only=setting.update is Update.READ_ONLY)

    # --- layers ------------------------------------------------------------------------------------------------------

    def _places(self, names: Sequence[str]) -> Iterator[Synonym]:
        """Every value that some broker's settings have, layer by layer, the strongest first."""
        for layer, source in self._layers:
            for name in names:
                text = layer.get(name)
                if text is not None:
                    yield Synonym(name, text, source)

    def _topic_default(self, setting: Setting) -> Value:
        """What the broker's settings say of a topic's setting, in the unit of the topic's."""
        for place in self._places(setting.synonyms):
            value = BROKER_SETTINGS[place.name].parse(place.value or "")
            if isinstance(value, int) and not isinstance(value, bool):
                factor = _MS.get(place.name.rpartition(".")[2], 1)
                return value * factor if value >= 0 else value
            return value
        return setting.default


def _usable(layer: Mapping[str, str], ignored: list[str]) -> dict[str, str]:
    """The dynamic settings that count; what is wrong with the others is added to ``ignored``."""
    usable = {}
    for name, text in layer.items():
        setting = broker_setting(name)
        try:
            if setting is None:
                raise ValueError(f"{name}: no broker has such a setting; it is kept and shown, and has no effect")
            if setting.update is Update.READ_ONLY:
                raise ValueError(f"{name}: cannot change while a broker runs")
            setting.parse(text)
        except ValueError as error:
            ignored.append(str(error))
        else:
            usable[name] = text
    return usable


def _fold_older_name(values: dict[str, Value]) -> None:
    """The older name of ``message.timestamp.before.max.ms`` counts where the newer one is not set (KIP-937)."""
    newer, older = "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"
    if values[newer] == TOPIC_SETTINGS[newer].default:
        values[newer] = values[older]


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
    """Rows of the names that are no settings: Kafka takes them for settings of plugins."""
    return {name: _unknown_row(name, source) for name in layer if broker_setting(name) is None}


def _unknown_row(name: str, source: Source) -> ConfigRow:
    """A name that is no setting: its value may be a secret, so it is not shown."""
    return ConfigRow(name, None, source, False, True, UNKNOWN_TYPE, (Synonym(name, None, source),), "")
