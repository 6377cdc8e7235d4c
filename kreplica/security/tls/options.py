"""Values of Kafka's ``ssl.*`` settings for one listener or client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""Supported protocols, in increasing order; older ones are insecure (RFC 8996)."""


_MAY_BE_EMPTY = "endpoint_identification_algorithm"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS settings, named like Kafka's settings without the prefix ``ssl.``; ``repr`` omits passwords.

    :param keystore_type: JKS, PKCS12 or PEM; as in Java, a PKCS12 file is also read if the type is JKS.
    :param keystore_certificate_chain: PEM certificates, the owner's first; requires ``keystore_key`` and excludes
        ``keystore_location``.
    :param client_auth: none, requested or required; for listeners only.
    :param endpoint_identification_algorithm: ``https`` to verify the host name, empty to skip this; for clients only.
    :param cipher_suites: IANA or OpenSSL names; empty for OpenSSL's default.
    :param principal_mapping_rules: for listeners only.
    :param allow_dn_changes: the subject of the certificate may change at run time; for listeners only.
    :param allow_san_changes: a change at run time may remove hosts from the certificate; for listeners only.
    :param prefix: prefix of setting names in error messages, such as ``listener.name.internal.``.
    """

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_certificates: str | None = field(default=None, repr=False)
    client_auth: str = "none"
    enabled_protocols: Sequence[str] = PROTOCOLS
    cipher_suites: Sequence[str] = ()
    endpoint_identification_algorithm: str = "https"
    principal_mapping_rules: str = "DEFAULT"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
    prefix: str = ""

    @classmethod
    def from_values(cls, values: Mapping[str, Any], prefix: str = "") -> TlsOptions:
        """Return the options from typed settings; Kafka's default is used for missing, None and empty values.

        :param values: values by full name, such as ``ssl.keystore.type``; other settings are ignored.
        """
        found: dict[str, Any] = {
            name: value
            for name in cls.__dataclass_fields__
            if name != "prefix" and (value := values.get(setting_of(name))) is not None
            if value != "" or name == _MAY_BE_EMPTY
        }
        return cls(**found, prefix=prefix)

    def name(self, attribute: str) -> str:
        """Return the full name of a setting, for error messages."""
        return self.prefix + setting_of(attribute)

    @property
    def keystore_name(self) -> str:
        """Name of the setting that contains or locates the certificate."""
        has_text = self.keystore_certificate_chain is not None
        return self.name("keystore_certificate_chain" if has_text else "keystore_location")

    @property
    def truststore_name(self) -> str:
        """Name of the setting that contains or locates the trusted certificates."""
        return self.name("truststore_location" if self.truststore_certificates is None else "truststore_certificates")

    @property
    def has_truststore(self) -> bool:
        """False if the system's trusted certificates are used."""
        return self.truststore_location is not None or self.truststore_certificates is not None

    @property
    def files(self) -> list[str]:
        """Paths of the key store and the trust store."""
        return [path for path in (self.keystore_location, self.truststore_location) if path is not None]


def setting_of(attribute: str) -> str:
    """Return the name of the setting for an attribute."""
    return "ssl." + attribute.replace("_", ".")


_OF_LISTENERS = ("client_auth", "principal_mapping_rules", "allow_dn_changes", "allow_san_changes", "prefix")
SETTINGS = tuple(setting_of(name) for name in TlsOptions.__dataclass_fields__ if name != "prefix")
"""Names of all settings."""

CLIENT_SETTINGS = tuple(setting_of(name) for name in TlsOptions.__dataclass_fields__ if name not in _OF_LISTENERS)
"""Names of the settings of clients."""
