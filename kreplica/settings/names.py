"""Looks up settings by name, and suggests names for unknown ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from kreplica.settings.definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from kreplica.settings.definitions.security import PER_LISTENER, PER_MECHANISM
from kreplica.settings.setting import Setting, Type, format_value
from kreplica.settings.validators import Value, at_least

CURRENT_NAMES = {
    f"kreplica.{scope}.outstanding.answer.bytes": f"kreplica.{scope}.outstanding.response.bytes"
    for scope in ("connection", "address", "broker")
}
"""Current names of renamed settings, by deprecated name; deprecated names are still accepted."""

LISTENER_PREFIX = "listener.name."
PLUGIN_PREFIX = "kreplica.plugin."

CONNECTION_LIMITS = ("max.connections", "max.connection.creation.rate")
"""Limits of the broker and its listeners; after a change to 0 at run time, no client could change them back."""


def broker_setting(name: str) -> Setting | None:
    """Return the broker setting with this name; None if it does not exist.

    ``listener.name.L.S`` is Kafka's setting S for the listener L only (KIP-103); it is ignored unless S is in
    ``PER_LISTENER``. ``listener.name.L.M.S`` is S for the SASL mechanism M of the listener, if S is in
    ``PER_MECHANISM``. ``kreplica.plugin.P.S`` is a setting of the plugin P, which validates it at startup.
    """
    known = BROKER_SETTINGS.get(name)
    if known is None and name.startswith(PLUGIN_PREFIX):
        return Setting(name, Type.STRING, None, documentation="A plugin setting; see the documentation of the plugin.")
    if known is None and name.startswith(LISTENER_PREFIX):
        parts = name.removeprefix(LISTENER_PREFIX).split(".")
        # There may be one more part between the listener and the setting: the SASL mechanism.
        for start in (1, 2):
            base = BROKER_SETTINGS.get(".".join(parts[start:]))
            if base is not None and base.name in (PER_LISTENER if start == 1 else PER_MECHANISM):
                valid = at_least(1) if base.name in CONNECTION_LIMITS else base.valid
                return replace(base, name=name, default=None, valid=valid, synonyms=())
            if base is not None:
                actual = base.actual_behavior or f"listeners have no settings of their own: {base.name} applies to all"
                return replace(base, name=name, default=None, documentation="", actual_behavior=actual, synonyms=())
    return known


def of_listener(values: Mapping[str, Any], listener: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of settings for one listener, given those of the broker and its listeners."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    return {name: values.get(prefix + name, values[name]) for name in names}


def mechanism_setting(listener: str, mechanism: str, name: str) -> str:
    """Return the name of a setting of one SASL mechanism of one listener."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"


def hint(name: str) -> str:
    """Return a hint with the names most similar to an unknown name, after a space; empty if no name is similar."""
    topic = TOPIC_SETTINGS.get(name)
    if topic is not None and topic.synonyms:
        return f" It is a topic setting; the broker setting is {topic.synonyms[0]}."
    return _nearest(name, BROKER_SETTINGS)


def topic_hint(name: str) -> str:
    """Like ``hint``, for topic settings."""
    for topic in TOPIC_SETTINGS.values():
        if name in topic.synonyms:
            return f" It is a broker setting; the topic setting is {topic.name}."
    return _nearest(name, TOPIC_SETTINGS)


def ignored_warnings(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return a warning for each setting that is accepted and ignored."""
    return tuple(
        f"{setting.name} is a setting of Apache Kafka that kreplica ignores: {setting.actual_behavior}"
        for setting in settings
        if not setting.implemented
    )


def renamed_warnings(names: Iterable[str]) -> tuple[str, ...]:
    """Return a warning for each deprecated name."""
    return tuple(f"{name} is deprecated; use {CURRENT_NAMES[name]}" for name in names if name in CURRENT_NAMES)


def unsupported_protection(setting: Setting, value: Value) -> str | None:
    """Return an error if a value requests protection that kreplica does not support, otherwise None.

    :param value: the typed value.
    """
    if not setting.requires_protection(value):
        return None
    shown = "(hidden)" if setting.sensitive else format_value(value)
    return (
        f"{setting.name}={shown} requests protection that this release does not support: {setting.actual_behavior}. "
        "Remove the setting if you do not need protection, or wait for the release that supports it"
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    similar = get_close_matches(name[:200], known, n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(similar)}?" if similar else ""
