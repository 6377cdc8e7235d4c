"""Security of a client's connections, configured with the names of Kafka's Java clients."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from kreplica.errors import SettingsError
from kreplica.security.tls.options import CLIENT_SETTINGS, TlsOptions

SECURITY_PROTOCOL = "security.protocol"
_PROTOCOLS = ("PLAINTEXT", "SSL")
_LISTS = ("ssl.enabled.protocols", "ssl.cipher.suites")


def tls_options(config: Mapping[str, str]) -> TlsOptions | None:
    """Return the TLS options of a client; None if its connections are not encrypted.

    :param config: ``security.protocol`` (PLAINTEXT, the default, or SSL), and ``ssl.*`` such as
        ``ssl.truststore.location``.
    :raise SettingsError: a setting is unknown or has an unsupported value.
    """
    for name in config:
        if name != SECURITY_PROTOCOL and name not in CLIENT_SETTINGS:
            near = get_close_matches(name, (SECURITY_PROTOCOL, *CLIENT_SETTINGS), n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{name} is not a supported setting of connections.{hint}")
    protocol = config.get(SECURITY_PROTOCOL, "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SettingsError(f"{SECURITY_PROTOCOL}={protocol} is not supported, only {' and '.join(_PROTOCOLS)}")
    if protocol == "PLAINTEXT":
        return None
    values: dict[str, object] = dict(config)
    for name in _LISTS:
        if name in config:
            values[name] = tuple(part.strip() for part in config[name].split(",") if part.strip())
    return TlsOptions.from_values(values)
