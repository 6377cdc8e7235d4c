"""Defines ``Api``: key, versions, and request and response schemas of one API."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.wire.primitives import COST_MAX
from kreplica.wire.schema import Schema
from kreplica.wire.template_cache import VaryingFields


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """One API of the protocol.

    :param versions: lowest and highest supported version.
    :param flexible_from: first version with the encodings of KIP-482, or None.
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible_from: int | None
    request: Schema
    response: Schema

    @classmethod
    def define(
        cls,
        key: int,
        name: str,
        versions: tuple[int, int],
        flexible_from: int | None,
        *,
        request: str,
        response: str,
        request_varying: VaryingFields | None = None,
        response_varying: VaryingFields | None = None,
        request_cost_max: int = COST_MAX,
        request_step_cost_max: int | None = None,
    ) -> Api:
        """Define an API by the schema texts of its request and response (``kreplica.wire.grammar``).

        :param request_varying: fields in which frequent requests differ; see ``kreplica.wire.template_cache``.
        :param response_varying: fields in which frequent responses differ.
        :param request_cost_max: maximum cost of a request, in units of ``COST_MAX``.
        :param request_step_cost_max: maximum cost of a request that is parsed in one step.
        """
        return cls(
            key,
            name,
            versions,
            flexible_from,
            Schema(
                f"{name}Request",
                versions,
                flexible_from,
                request,
                request_varying,
                request_cost_max,
                request_step_cost_max,
            ),
            Schema(f"{name}Response", versions, flexible_from, response, response_varying),
        )

    def is_flexible(self, version: int) -> bool:
        """Return True if a version has the encodings of KIP-482."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """Return the version of the request header: 0 (no client ID), 1, or 2 (with tags)."""
        if self.key == 7 and version == 0:  # ControlledShutdown 0 has no client ID
            return 0
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Return the version of the response header: 0, or 1 (with tags).

        ApiVersions always uses 0, since the client does not know the broker's versions yet (KIP-511).
        """
        return 1 if self.is_flexible(version) and self.key != 18 else 0
