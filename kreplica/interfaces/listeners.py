"""Additional protocols served by plugins."""

from __future__ import annotations

from collections.abc import Awaitable

from zope.interface import Interface


class IExtraListener(Interface):
    """A service with the lifetime of the broker, such as another protocol (``kreplica.extra.listeners``)."""

    def start() -> Awaitable[None]:
        """Start; called in the order of the settings when the broker serves clients.

        If it raises ``KreplicaError``, the broker does not start. After any other exception, the broker runs without
        this plugin.
        """

    def stop() -> Awaitable[None]:
        """Stop within ten seconds; called in reverse order, before the broker hands over its partitions.

        Also called if ``start`` failed. If it raises, the broker still stops.
        """
