"""Parses the settings file of the embedded ZooKeeper server."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kreplica.errors import SettingsError, reason_of
from kreplica.settings.definitions.zookeeper_server import ZOOKEEPER_SERVER
from kreplica.settings.overrides import parse_override
from kreplica.settings.properties import parse_properties

_SETTINGS = {setting.name: setting for setting in ZOOKEEPER_SERVER}


def load_zookeeper_settings(path: str | None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the typed value of each setting.

    :param path: None if there is no file.
    :param overrides: in the form ``name=value``; take precedence over the file.
    :raise SettingsError: the file cannot be read, or a setting is unknown or malformed; the message names the line.
    """
    configured: dict[str, tuple[str, str]] = {}
    if path is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} cannot be read: {reason_of(error)}") from error
        entries = parse_properties(text, path).values()
        configured = {entry.name: (entry.value, f"{path}, line {entry.line}") for entry in entries}
    for override in map(parse_override, overrides):
        configured[override.name] = (override.value, override.place)
    values: dict[str, Any] = {setting.name: setting.default for setting in ZOOKEEPER_SERVER}
    for name, (value, place) in configured.items():
        setting = _SETTINGS.get(name)
        if setting is None:
            near = get_close_matches(name, _SETTINGS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{place}: {name} is not a setting of the embedded ZooKeeper server.{hint}")
        try:
            values[name] = setting.parse(value)
        except ValueError as error:
            raise SettingsError(f"{place}: {error}") from None
    return values
