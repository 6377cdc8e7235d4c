"""ApiVersions (key 18): lists the served APIs; the first request on most connections (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.server.protocol.client_names import client_names
from kreplica.server.protocol.features import features_response
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.request import Request

SOFTWARE_VERSION_MIN = 3
"""First version in which clients send their software name and version."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """Handles ApiVersions.

    :param table: the table of dispatched APIs, so no unsupported API is advertised.
    """

    def __init__(self, table: Mapping[int, HandlerEntry]) -> None:
        self._table = table
        self._optional = {key: entry.is_advertised for key, entry in table.items() if entry.is_advertised is not None}
        self._rows: dict[frozenset[int], list[dict[str, Any]]] = {}
        """Response rows by the set of optional APIs that are not advertised."""

    def __call__(self, request: Request) -> None:
        error = ErrorCode.NONE
        names: list[str | None] = [request.client_id]
        if request.version >= SOFTWARE_VERSION_MIN:
            for field in ("client_software_name", "client_software_version"):
                name = request.body[field]
                names.append(name)
                if _SOFTWARE.fullmatch(name) is None:
                    error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE:
            request.connection.names = client_names(names)
            features = features_response(self._table, request.version)
            request.respond({"error_code": 0, "api_keys": self._all_rows(), **features})
        else:
            request.respond({"error_code": int(error), "api_keys": []})

    def _all_rows(self) -> list[dict[str, Any]]:
        hidden = frozenset(key for key, is_advertised in self._optional.items() if not is_advertised())
        rows = self._rows.get(hidden)
        if rows is None:
            rows = self._rows[hidden] = [
                {"api_key": key, "min_version": entry.versions_min, "max_version": entry.versions_max}
                for key, entry in sorted(self._table.items())
                if key not in hidden
            ]
        return rows
