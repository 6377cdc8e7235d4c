"""The file of profiles: ``profiles.toml`` in the user's configuration directory, which only the user can read.

    current = "staging"

    [profiles.staging]
    bootstrap = "kafka-1:9092,kafka-2:9092"
    admin = "https://kafka-1:8080"
    token-file = "/home/ada/staging-token"

    [profiles.staging.client]
    "security.protocol" = "SASL_SSL"

The keys of a profile are the names of options of commands, except the table ``client``, whose keys are settings of
Kafka's Java clients.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from kreplica.cli.http.admin_url import parse_admin_url
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.profiles.choice import NO_PROFILE
from kreplica.client_core.addresses import parse_addresses
from kreplica.errors import SettingsError, reason_of
from kreplica.settings.properties import parse_properties

CLIENT_PREFIX = "client."
FILES = ("token-file", "ca-file", "password-file", "certificate-file", "client-config")
KEYS = ("bootstrap", "admin", "user", *FILES)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SETTING = re.compile(r"[a-z][a-z0-9._]*")
_SECRET = re.compile(r"password|secret|jaas|\.key$")
MASK = "********"


@dataclass(frozen=True, slots=True)
class Profile:
    """A named cluster.

    :param values: values by key (``KEYS``).
    :param client: Kafka Java client settings for connections to brokers.
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def admin(self) -> str | None:
        return self.values.get("admin")

    @property
    def bootstrap(self) -> str | None:
        return self.values.get("bootstrap")

    def file(self, key: str) -> Path | None:
        """Return the path of a file; None if it is not set."""
        text = self.values.get(key)
        return None if text is None else Path(text)

    def changed(self, changes: Mapping[str, str]) -> Profile:
        """Return this profile with other values; an empty value removes its key.

        :param changes: values by key; ``client.NAME`` is a setting for connections to brokers.
        :raise CommandFailed: a key or a value is invalid.
        """
        values, client = dict(self.values), dict(self.client)
        for key, value in changes.items():
            table, name = (client, key.removeprefix(CLIENT_PREFIX)) if key.startswith(CLIENT_PREFIX) else (values, key)
            if value:
                table[name] = os.path.abspath(os.path.expanduser(value)) if key in FILES else value
            else:
                table.pop(name, None)
        return checked(Profile(self.name, values, client))

    def shown(self) -> dict[str, str]:
        """Return keys and values without secrets."""
        settings = {f"{CLIENT_PREFIX}{name}": MASK if is_secret(name) else text for name, text in self.client.items()}
        return {**{key: self.values[key] for key in KEYS if key in self.values}, **settings}

    def client_settings(self) -> Mapping[str, str]:
        """Return the settings for connections to brokers.

        :raise CommandFailed: the file ``client-config`` cannot be read.
        """
        path = self.file("client-config")
        if path is None:
            return self.client
        try:
            return {name: entry.value for name, entry in parse_properties(path.read_text(), str(path)).items()}
        except (OSError, UnicodeDecodeError, SettingsError) as error:
            raise CommandFailed(f"profile {self.name}: client-config {path}: {reason_of(error)}") from None

    def as_text(self, client_table: str = "client") -> str:
        """Return the profile as TOML: its keys, and the table of client settings.

        :param client_table: name of that table.
        """
        lines = [f"{key} = {_quote(self.values[key])}" for key in KEYS if key in self.values]
        if self.client:
            settings = [f"{_quote(name)} = {_quote(text)}" for name, text in self.client.items()]
            lines += ["", f"[{client_table}]", *settings]
        return "\n".join(lines) + "\n"


@dataclass(slots=True)
class Profiles:
    """All profiles.

    :param current: name of the profile that commands use by default, or None.
    """

    by_name: dict[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Profile:
        """Return a profile.

        :raise CommandFailed: it does not exist.
        """
        if name not in self.by_name:
            near = get_close_matches(name, self.by_name, n=1)
            hint = f"did you mean {near[0]}?" if near else "`kreplica profile list` lists the profiles"
            raise CommandFailed(f'there is no profile "{name}" in {profiles_path()}: {hint}')
        return self.by_name[name]

    def write(self) -> None:
        """Replace the file.

        :raise CommandFailed: it cannot be written.
        """
        path = profiles_path()
        lines = [] if self.current is None else [f"current = {_quote(self.current)}", ""]
        for profile in self.by_name.values():
            place = f"profiles.{_quote(profile.name)}"
            lines += [f"[{place}]", profile.as_text(f"{place}.client")]
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")  # mode 0600
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write("\n".join(lines))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            raise CommandFailed(f"{path} cannot be written: {error.strerror}") from None


def profiles_path() -> Path:
    """Return the path of the file: ``$XDG_CONFIG_HOME/kreplica/profiles.toml``, by default below ``~/.config``."""
    return Path(click.get_app_dir("kreplica")) / "profiles.toml"


def read_profiles() -> Profiles:
    """Read the file; return no profiles if it does not exist.

    :raise CommandFailed: it cannot be read, or is invalid; the message names the location.
    """
    path = profiles_path()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                text = f"other users can read {path}, which may contain secrets: run chmod 600 {path}"
                click.echo(f"kreplica: {text}", err=True)
            document = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path}: {error}") from None
    try:
        return _profiles_of(document)
    except CommandFailed as error:
        raise CommandFailed(f"{path}: {error.message}") from None


def _profiles_of(document: Mapping[str, Any]) -> Profiles:
    for key in document:
        if key not in ("current", "profiles"):
            raise CommandFailed(f"unknown key {key}; expected current and profiles")
    tables, current = document.get("profiles", {}), document.get("current")
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise CommandFailed("expected current = NAME and tables [profiles.NAME]")
    profiles = Profiles({name: profile_of(name, table) for name, table in tables.items()}, current)
    if current is not None and current not in profiles.by_name:
        raise CommandFailed(f'current = "{current}": this profile does not exist; `kreplica profile use` selects one')
    return profiles


def profile_of(name: str, table: Any) -> Profile:
    """Return the profile that a TOML table describes.

    :raise CommandFailed: a key or a value is invalid.
    """
    if not isinstance(table, dict):
        raise CommandFailed(f"profile {name}: expected a table")
    values = dict(table)
    client = values.pop("client", {})
    tables = (values, client) if isinstance(client, dict) else ()
    if not tables or not all(isinstance(value, str) for each in tables for value in each.values()):
        raise CommandFailed(f"profile {name}: all values must be strings, and client a table of strings")
    return checked(Profile(name, values, client))


def checked(profile: Profile) -> Profile:
    """Return a profile whose name, keys and values are valid.

    :raise CommandFailed: one is invalid.
    """
    try:
        check_name(profile.name)
        for key, value in profile.values.items():
            _check_value(key, value)
        for name, value in profile.client.items():
            _check_text(f"{CLIENT_PREFIX}{name}", value)
            if not _SETTING.fullmatch(name):
                raise ValueError(f"{CLIENT_PREFIX}{name} is not a setting of Kafka's clients")
        if profile.client and "client-config" in profile.values:
            raise ValueError("client-config and client.* cannot be combined")
    except ValueError as error:
        raise CommandFailed(f"profile {profile.name}: {error}") from None
    return profile


def check_name(name: str) -> None:
    """Check the name of a profile.

    :raise ValueError: it is invalid or reserved.
    """
    if not _NAME.fullmatch(name) or name == NO_PROFILE:
        raise ValueError(f"a name consists of letters, digits, '.', '_' and '-', and {NO_PROFILE} is reserved")


def _check_value(key: str, value: str) -> None:
    if key not in KEYS:
        near = get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(KEYS)} and client.NAME"
        raise ValueError(f"{key} is not a key of profiles: {hint}")
    _check_text(key, value)
    try:
        if key == "admin":
            parse_admin_url(value)
        elif key == "bootstrap":
            parse_addresses(value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    if key in FILES and not os.path.isabs(value):
        raise ValueError(f"{key}: {value} must be an absolute path")


def _check_text(key: str, value: str) -> None:
    if not value or not value.isprintable():
        raise ValueError(f"{key} must consist of printable characters")


def is_secret(setting: str) -> bool:
    """Return True if a setting of Kafka's clients can contain a secret."""
    return _SECRET.search(setting) is not None


def _quote(text: str) -> str:
    """Return a TOML string; printable strings have the same escapes in JSON."""
    return json.dumps(text, ensure_ascii=False)
