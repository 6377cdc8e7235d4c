"""TLS options with ZooKeeper's rules for key stores and trust stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreplica.errors import SettingsError
from kreplica.security.tls.options import TlsOptions

_TYPES = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12", ".jks": "JKS"}
_MAY_BE_EMPTY = "ssl.endpoint.identification.algorithm"


class ZooKeeperTlsOptions(TlsOptions):
    """TLS options of a connection to ZooKeeper: the password of the key store is also that of the private key."""

    __slots__ = ()

    def name(self, attribute: str) -> str:
        """Return the full name of a setting, for error messages."""
        return super().name("keystore_password" if attribute == "key_password" else attribute)


def zookeeper_tls_options(values: Mapping[str, Any], prefix: str) -> TlsOptions:
    """Return the options from typed settings; an empty value is treated as not set.

    :param values: values by Kafka's names, such as ``ssl.keystore.location``.
    :param prefix: prefix of setting names in error messages.
    :raise SettingsError: the type of a store is not set and cannot be determined from its file name extension.
    """
    chosen = {name: value for name, value in values.items() if value not in ("", ()) or name == _MAY_BE_EMPTY}
    for store in ("ssl.keystore", "ssl.truststore"):
        location = chosen.get(f"{store}.location")
        if location is not None:
            chosen.setdefault(f"{store}.type", _type_of(location, prefix + store))
    if chosen.get("ssl.keystore.type", "").upper() == "PEM" and "ssl.keystore.password" in chosen:
        chosen["ssl.key.password"] = chosen["ssl.keystore.password"]
    return ZooKeeperTlsOptions.from_values(chosen, prefix)


def _type_of(location: str, name: str) -> str:
    for extension, store_type in _TYPES.items():
        if location.lower().endswith(extension):
            return store_type
    raise SettingsError(f"{name}.location={location}: the file extension does not determine the type; set {name}.type")
