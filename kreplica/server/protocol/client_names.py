"""Names that clients send in ApiVersions and in telemetry requests."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

CLIENT_NAME_LENGTH_MAX = 200
"""Maximum number of characters of a client's name that a connection keeps."""

SHARED_MAX = 1000
"""Number of clients whose names are cached for sharing between their connections."""


class ClientNames(NamedTuple):
    """Names of one client, truncated to ``CLIENT_NAME_LENGTH_MAX``.

    :param software_name: name of its library; None for a client without KIP-511.
    :param client_instance_id: ID of a client with telemetry (KIP-714), in Kafka's text form; None for other clients.
    """

    client_id: str | None
    software_name: str | None = None
    software_version: str | None = None
    client_instance_id: str | None = None


NO_NAMES = ClientNames(None)


def client_names(names: Iterable[str | None]) -> ClientNames:
    """Return the truncated names of a client; connections with the same names share the object.

    :param names: values of the fields of ``ClientNames``.
    """
    return _shared(ClientNames(*(name and name[:CLIENT_NAME_LENGTH_MAX] for name in names)))


@lru_cache(SHARED_MAX)
def _shared(names: ClientNames) -> ClientNames:
    return names
