"""Names that clients send in ApiVersions."""

from __future__ import annotations

from typing import NamedTuple

CLIENT_NAME_LENGTH_MAX = 200
"""Maximum number of characters of a client's name that a connection keeps."""


class ClientNames(NamedTuple):
    """Names of one client, truncated to ``CLIENT_NAME_LENGTH_MAX``.

    :param software_name: name of its library; None for a client without KIP-511.
    """

    client_id: str | None
    software_name: str | None = None
    software_version: str | None = None


NO_NAMES = ClientNames(None)
