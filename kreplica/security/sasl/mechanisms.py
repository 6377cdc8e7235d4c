"""Names of the supported SASL mechanisms."""

from __future__ import annotations

from kreplica.errors import SettingsError
from kreplica.security.sasl.oauthbearer import OAUTHBEARER
from kreplica.security.sasl.plain import PLAIN
from kreplica.security.sasl.scram import HASHES

BUILT_IN = (PLAIN, *HASHES, OAUTHBEARER)
"""The mechanisms that do not require a plugin."""

_KERBEROS = (
    "Instead of Kerberos, use SCRAM-SHA-512, OAUTHBEARER or client certificates (SSL), or a plugin (ISaslMechanism)"
)


def check_mechanism(name: str, setting: str) -> str:
    """Return the name of a built-in mechanism.

    :param setting: name of the setting, for the error message.
    :raise SettingsError: the mechanism is not built in.
    """
    mechanism = name.strip().upper()
    if mechanism not in BUILT_IN:
        raise SettingsError(unsupported(name, setting))
    return mechanism


def unsupported(name: str, setting: str) -> str:
    """Return the error message for a mechanism that is neither built in nor provided by a plugin."""
    hint = f". {_KERBEROS}" if name.strip().upper() == "GSSAPI" else ""
    return f"{setting}={name}: the mechanism is not supported; use one of {', '.join(BUILT_IN)}{hint}"
