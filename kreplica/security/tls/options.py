"""Values of Kafka's ``ssl.*`` settings for one listener or client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""Supported protocols, in increasing order; older ones are insecure (RFC 8996)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Settings of TLS, each with the name of Kafka's setting after ``ssl.``; passwords do not appear in ``repr``.

    :param keystore_type: JKS, PKCS12 or PEM; as in Java, a PKCS12 file is also read if the type is JKS.
    :param keystore_certificate_chain: PEM certificates, own first; then ``keystore_key`` is needed, and no location.
    :param client_auth: none, requested or required; only of a listener.
    :param endpoint_identification_algorithm: ``https`` verifies the host name; empty does not; only of a client.
    :param cipher_suites: names of IANA or OpenSSL; empty uses OpenSSL's default.
    :param principal_mapping_rules: only of a listener.
    :param prefix: prefix of the settings' names in error messages, such as ``listener.name.internal.``.
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
    prefix: str = ""

    @classmethod
    def from_values(cls, values: Mapping[str, Any], prefix: str = "") -> TlsOptions:
        """Return the options in typed settings; missing and None values have Kafka's default.

        :param values: values by full name, such as ``ssl.keystore.type``; other settings are ignored.
        """
        found: dict[str, Any] = {
            name: values.get(setting_of(name))
            for name in cls.__dataclass_fields__
            if name != "prefix" and values.get(setting_of(name)) is not None
        }
        return cls(**found, prefix=prefix)

    def name(self, attribute: str) -> str:
        """Return the full name of a setting, for error messages."""
        return self.prefix + setting_of(attribute)


def setting_of(attribute: str) -> str:
    """Return the name of the setting of an attribute."""
    return "ssl." + attribute.replace("_", ".")


_OF_LISTENERS = ("client_auth", "principal_mapping_rules", "prefix")
SETTINGS = tuple(setting_of(name) for name in TlsOptions.__dataclass_fields__ if name != "prefix")
"""Names of all settings."""

CLIENT_SETTINGS = tuple(setting_of(name) for name in TlsOptions.__dataclass_fields__ if name not in _OF_LISTENERS)
"""Names of the settings of clients."""
