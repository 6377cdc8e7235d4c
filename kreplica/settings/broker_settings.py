"""Parses and validates a broker's static settings from a properties file and ``--override`` options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kreplica.errors import SettingsError, reason_of
from kreplica.model import Endpoint
from kreplica.settings.consistency import RULES
from kreplica.settings.definitions import BROKER_SETTINGS
from kreplica.settings.listeners import (
    check_advertised,
    check_ports,
    parse_listeners,
    parse_protocols,
)
from kreplica.settings.names import (
    CURRENT_NAMES,
    broker_setting,
    hint,
    ignored_warnings,
    mechanism_setting,
    of_listener,
    renamed_warnings,
    unsupported_protection,
)
from kreplica.settings.overrides import Override, parse_override
from kreplica.settings.properties import parse_properties
from kreplica.settings.setting import Source, format_value
from kreplica.settings.validators import Value

T = TypeVar("T")
_FALLBACKS = (
    ("broker.id", "node.id"),
    ("node.id", "broker.id"),
    ("zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms"),
)
"""Fallbacks by setting: a setting that is not configured has the value of its fallback."""


class ConfiguredText(NamedTuple):
    """The text of a configured setting and its location, such as ``broker.properties, line 3``."""

    text: str
    place: str

    def __repr__(self) -> str:
        """Return only the location, since the text may be a secret."""
        return f"<ConfiguredText {self.place}>"


class BrokerSettings:
    """Immutable settings of a broker at startup; ``kreplica.settings.dynamic`` applies changes at run time.

    :ivar warnings: one sentence for each configured setting that is ignored or has a deprecated name.
    :ivar listeners: addresses to listen on; an empty host means all interfaces, and port 0 lets the system choose.
    :ivar advertised_listeners: addresses to publish; an empty host means this machine's name, and port 0 means the
        bound port.
    :ivar inter_broker_listener: the name of the listener for requests between brokers.
    :ivar control_plane_listener: the name of the listener for the controller's requests; by default, the inter-broker
        listener.
    :ivar log_dirs: the log directories; at least one, without duplicates.
    """

    def __init__(self, configured: Mapping[str, ConfiguredText], origin: str) -> None:
        """Validate the settings.

        :raise SettingsError: a setting is unknown, malformed or missing, or settings contradict each other.
        """
        self._configured = dict(configured)
        self._origin = origin
        self._values = self._typed()
        settings = (broker_setting(name) for name in self._configured)
        self.warnings = ignored_warnings(setting for setting in settings if setting is not None)
        self._check_rules()
        self.log_dirs = self._parse("log.dirs" if self["log.dirs"] is not None else "log.dir", _parse_directories)
        self.listeners, self.advertised_listeners = self._endpoints()
        self.inter_broker_listener = self._inter_broker_listener()
        self.control_plane_listener = self._control_plane_listener()

    @classmethod
    def from_text(
        cls, text: str, overrides: Sequence[str | Override] = (), *, origin: str = "the settings"
    ) -> BrokerSettings:
        """Parse settings from text in Java's properties format and from overrides.

        :param overrides: ``name=value`` if given as text; take precedence over ``text``, and later ones over earlier
            ones.
        :param origin: source of the text for error messages, such as a path.
        :raise SettingsError: a setting is unknown, malformed or missing, or settings contradict each other; the
            message names the line.
        """
        configured = {}
        names = []
        for name, entry in parse_properties(text, origin).items():
            configured[CURRENT_NAMES.get(name, name)] = ConfiguredText(entry.value, f"{origin}, line {entry.line}")
            names.append(name)
        for each in overrides:
            override = parse_override(each) if isinstance(each, str) else each
            name = override.name
            configured[CURRENT_NAMES.get(name, name)] = ConfiguredText(override.value, override.place)
            names.append(name)
        settings = cls(configured, origin)
        settings.warnings += renamed_warnings(dict.fromkeys(names))
        return settings

    def __getitem__(self, name: str) -> Any:
        """Return the configured value of a setting, or Kafka's default, which may be None.

        :raise KeyError: the setting does not exist.
        """
        return self._values[name]

    def get(self, name: str) -> Any:
        """Return the value of a setting; None if it does not exist or has no value."""
        return self._values.get(name)

    def of_listener(self, listener: str, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of settings for one listener: ``listener.name.L.S`` overrides the setting S (KIP-103)."""
        return of_listener(self._values, listener, names)

    def of_mechanism(self, listener: str, mechanism: str, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of settings for one SASL mechanism of a listener: ``listener.name.L.M.S`` overrides S."""
        values = self.of_listener(listener, names)
        return {name: self._values.get(mechanism_setting(listener, mechanism, name), values[name]) for name in values}

    def text(self, name: str) -> str | None:
        """Return the configured text, or the default as Kafka's tools print it; None if there is no default."""
        configured = self._configured.get(name)
        return configured.text.strip() if configured is not None else format_value(BROKER_SETTINGS[name].default)

    def source(self, name: str) -> Source:
        """Return the source of a value: the broker's configuration or the default."""
        return Source.STATIC_BROKER_CONFIG if name in self._configured else Source.DEFAULT_CONFIG

    @property
    def configured_names(self) -> tuple[str, ...]:
        """Names of the configured settings."""
        return tuple(self._configured)

    def _typed(self) -> dict[str, Value]:
        values = {setting.name: setting.default for setting in BROKER_SETTINGS.values()}
        for name, configured in self._configured.items():
            setting = broker_setting(name)
            if setting is None:
                raise SettingsError(f"{configured.place}: unknown setting {name!r}.{hint(name)}")
            values[name] = value = self._parse(name, setting.parse)
            rejected = unsupported_protection(setting, value)
            if rejected is not None:
                raise SettingsError(f"{configured.place}: {rejected}.")
        for name, fallback in _FALLBACKS:
            if name not in self._configured:
                values[name] = values[fallback]
        return values

    def _parse(self, name: str, parse: Callable[[str], T]) -> T:
        """Parse a setting; errors name its location."""
        try:
            return parse(self.text(name) or "")
        except ValueError as error:
            raise self._error((name,), str(error)) from None

    def _check_rules(self) -> None:
        for rule in RULES:
            if not rule.holds(self._values):
                shown = " and ".join(f"{name}={self.text(name) or ''}" for name in rule.names)
                raise self._error(rule.names, f"{shown} {rule.message}")

    def _endpoints(self) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
        protocols = self._parse("listener.security.protocol.map", parse_protocols)
        listeners = self._parse("listeners", lambda text: parse_listeners(text, protocols))
        self._parse("listeners", lambda text: check_ports(listeners))
        name = "advertised.listeners" if self["advertised.listeners"] else "listeners"
        advertised = self._parse(name, lambda text: parse_listeners(text, protocols))
        self._parse(name, lambda text: check_advertised(advertised, listeners))
        return listeners, advertised

    def _inter_broker_listener(self) -> str:
        by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
        if by_name in self._configured and by_protocol in self._configured:
            raise self._error((by_name, by_protocol), f"only one of {by_name} and {by_protocol} may be set")
        chosen: str = (self[by_name] or self[by_protocol]).upper()
        names = [endpoint.listener for endpoint in self.advertised_listeners]
        if chosen not in names:
            origin_name = by_protocol if by_protocol in self._configured else by_name
            raise self._error(
                (origin_name,),
                f"{origin_name}: the inter-broker listener {chosen} is not advertised, only {', '.join(names)}",
            )
        return chosen

    def _control_plane_listener(self) -> str:
        name = "control.plane.listener.name"
        if name not in self._configured:
            return self.inter_broker_listener
        chosen: str = self[name].upper()
        if not chosen:
            raise self._error((name,), f"{name} is empty: name a listener, or remove the setting")
        if chosen not in self._parse("listener.security.protocol.map", parse_protocols):
            raise self._error((name,), f"{name}={chosen}: listener.security.protocol.map has no protocol for {chosen}")
        names = [endpoint.listener for endpoint in self.advertised_listeners]
        if chosen not in names:
            raise self._error(
                (name,), f"{name}={chosen} must be one of the advertised listeners, which are {', '.join(names)}"
            )
        if chosen == self.inter_broker_listener:
            raise self._error(
                (name,), f"{name} and the inter-broker listener must be different listeners; both are {chosen}"
            )
        return chosen

    def _error(self, names: Sequence[str], message: str) -> SettingsError:
        places = [self._configured[name].place for name in names if name in self._configured]
        return SettingsError(f"{' and '.join(places) or self._origin}: {message}")


def load(path: str | Path, overrides: Sequence[str | Override] = ()) -> BrokerSettings:
    """Read the settings from a file.

    :raise SettingsError: the file cannot be read, or its contents are invalid (``BrokerSettings.from_text``).
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {reason_of(error)}") from error
    return BrokerSettings.from_text(text, overrides, origin=str(path))


def _parse_directories(text: str) -> tuple[str, ...]:
    directories = [part.strip() for part in text.split(",") if part.strip()]
    if not directories:
        raise ValueError("there must be at least one directory")
    for directory in directories:
        if directories.count(directory) > 1:
            raise ValueError(f"the directory {directory} is listed twice")
    return tuple(directories)
