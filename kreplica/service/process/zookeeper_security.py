"""Encryption and authentication of the embedded ZooKeeper server, from its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple

from twisted.logger import Logger

from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.settings.definitions.zookeeper_server import PREFIX
from kreplica.zookeeper.embedded.server import TlsListener
from kreplica.zookeeper.embedded.settings import AnonymousClients

log = Logger()

LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_JAAS_SETTING = f"{PREFIX}sasl.jaas.config"
_LISTENER_SETTING = f"{PREFIX}ssl.listener"
_ANONYMOUS_SETTING = f"{PREFIX}anonymous.clients"
_USER_PREFIX = "user_"


class ZooKeeperSecurity(NamedTuple):
    """Encryption and authentication of the embedded ZooKeeper server.

    :param tls: None if there is no listener with TLS.
    """

    users: Mapping[str, str]
    anonymous: AnonymousClients
    tls: TlsListener | None


def zookeeper_security(runtime: Runtime, values: Mapping[str, Any], interface: str) -> ZooKeeperSecurity:
    """Return the encryption and authentication that the settings configure.

    :param values: the typed settings.
    :param interface: address of the listener without TLS.
    :raise SettingsError: a setting or file is invalid, or clients that must authenticate have no way to do it.
    """
    users = _users(values[_JAAS_SETTING])
    anonymous = AnonymousClients(values[_ANONYMOUS_SETTING])
    tls = _tls_listener(runtime, values)
    _check_listener(interface, anonymous, can_authenticate=bool(users))
    if tls is not None:
        has_certificates = values[f"{PREFIX}ssl.client.auth"] != "none"
        _check_listener(tls.interface, anonymous, can_authenticate=bool(users) or has_certificates)
    return ZooKeeperSecurity(users, anonymous, tls)


def _users(jaas: str | None) -> Mapping[str, str]:
    if not jaas:
        return {}
    # Imported here because most servers have no users.
    from kreplica.security.sasl.jaas import parse_jaas

    try:
        entry = parse_jaas(jaas)
    except ValueError as error:
        raise SettingsError(f"{_JAAS_SETTING}: {error}") from None
    if entry.module != LOGIN_MODULE:
        raise SettingsError(f"{_JAAS_SETTING}: the login module {entry.module} is not supported, only {LOGIN_MODULE}")
    options = entry.options
    users = {
        name.removeprefix(_USER_PREFIX): options[name]
        for name in options
        if name.startswith(_USER_PREFIX) and options[name]
    }
    if not users:
        raise SettingsError(f"{_JAAS_SETTING}: the login module needs an option {_USER_PREFIX}NAME for each user")
    return users


def _tls_listener(runtime: Runtime, values: Mapping[str, Any]) -> TlsListener | None:
    address = values[_LISTENER_SETTING]
    if not address:
        return None
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{_LISTENER_SETTING}={address}: expected host:port")
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.listener import ListenerTls
    from kreplica.security.tls.zookeeper_options import zookeeper_tls_options

    names = [name for name in values if name.startswith(f"{PREFIX}ssl.") and values[name] is not None]
    options = zookeeper_tls_options({name.removeprefix(PREFIX): values[name] for name in names}, PREFIX)
    creator = ListenerTls(options, runtime.reactor.seconds, runtime.offload.run)
    return TlsListener(host.strip("[]"), int(port), creator)


def _check_listener(interface: str, anonymous: AnonymousClients, *, can_authenticate: bool) -> None:
    """Check that clients can authenticate if they must; warn if they need not and other machines can connect."""
    is_local = is_loopback(interface)
    if anonymous is AnonymousClients.ALL and not is_local:
        log.warn(
            "the embedded ZooKeeper server listens on {interface} without authentication: any client can control the "
            "cluster",
            interface=interface,
        )
    must_authenticate = anonymous is AnonymousClients.NONE or (anonymous is AnonymousClients.LOCAL and not is_local)
    if must_authenticate and not can_authenticate:
        raise SettingsError(
            f"the embedded ZooKeeper server would listen on {interface} for clients that cannot authenticate: set "
            f"{_JAAS_SETTING}, listen on 127.0.0.1, or set {_ANONYMOUS_SETTING}=all to let every client control the "
            "cluster"
        )


def is_loopback(interface: str) -> bool:
    """Return True if only programs of this machine can connect to an address."""
    try:
        return ip_address(interface).is_loopback
    except ValueError:
        return interface == "localhost"


def secret_files(path: str | None, values: Mapping[str, Any]) -> list[str]:
    """Return the existing files with secrets: the settings file if it has a password, and the key store.

    :param path: the settings file, if there is one.
    """
    has_secret = any(values[f"{PREFIX}{name}"] for name in ("sasl.jaas.config", "ssl.keystore.password"))
    files = [path if has_secret else None, values[f"{PREFIX}ssl.keystore.location"]]
    return [file for file in files if file and os.path.exists(file)]
