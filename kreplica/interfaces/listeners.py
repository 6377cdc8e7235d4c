"""Protocols beside that of Kafka."""

from __future__ import annotations

from collections.abc import Awaitable

from zope.interface import Interface


class IExtraListener(Interface):
    """Something beside the broker that lives as long as it does (``kreplica.extra.listeners``): another protocol."""

    def start() -> Awaitable[None]:
        """Begin; called in the order of the settings, when the broker serves.

        Where it raises: the broker goes on without it.  One that must be there says so by ``KreplicaError``: then the
        broker does not start.
        """

    def stop() -> Awaitable[None]:
        """End; called in the opposite order, before the broker hands over what it leads; given ten seconds.

        Also called where ``start`` has failed.  Where it raises: the broker goes on stopping.
        """
