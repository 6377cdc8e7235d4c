"""Security of connections from Spark's driver and executors, from options such as ``kafka.sasl.jaas.config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kreplica.blocking import Cluster
from kreplica.blocking.blocking_runtime import BlockingRuntime, default_runtime
from kreplica.client_core.options import ClientOptions
from kreplica.errors import SettingsError

PREFIX = "kafka."
_SECURITY_PREFIXES = ("security.", "ssl.", "sasl.")


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """Security settings, named as in Kafka's Java clients.

    They are sent to executors, which read the files that the settings refer to.  ``repr`` shows no values, because
    some of them are passwords.
    """

    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ConnectionSecurity:
        """Select the security settings from all settings of a client.

        :raise ValueError: a setting is unknown or invalid; the message names it and contains no secrets.
        """
        chosen = {name: value for name, value in settings.items() if is_security_setting(name)}
        if chosen:
            # Imported here because most clusters are not secured.
            from kreplica.security.client_config import parse_client_config

            try:
                parse_client_config(chosen)
            except SettingsError as error:
                raise ValueError(f"options {PREFIX}*: {error}") from None
        return cls(tuple(sorted(chosen.items())))

    def runtime(self) -> BlockingRuntime:
        """Return a client runtime that applies these settings.

        :raise ValueError: a file on this machine cannot be read.
        """
        if not self.settings:
            return default_runtime()
        try:
            return _secured_runtime(self)
        except SettingsError as error:
            raise ValueError(f"options {PREFIX}*: {error}") from None

    def open_cluster(self, bootstrap: str, options: ClientOptions) -> Cluster:
        """Return a new cluster client.

        :raise ValueError: see ``runtime``.
        """
        return Cluster(bootstrap, options=options, runtime=self.runtime())


PLAINTEXT = ConnectionSecurity()
"""Connections without encryption or authentication."""


@lru_cache(maxsize=16)
def _secured_runtime(security: ConnectionSecurity) -> BlockingRuntime:
    """Return the runtime for these settings; cached, because a worker opens many connections."""
    from kreplica.blocking.secured_runtime import secured_runtime

    return secured_runtime(dict(security.settings))


def is_security_setting(name: str) -> bool:
    """Return True for settings such as ``security.protocol`` and ``ssl.truststore.location``."""
    return name.startswith(_SECURITY_PREFIXES)
