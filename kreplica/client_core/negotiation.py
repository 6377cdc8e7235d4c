"""Negotiation of API versions that both the client and the broker support (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import kreplica
from kreplica.client_core.errors import UnsupportedVersion
from kreplica.errors import ErrorCode, KafkaError
from kreplica.wire.message_parsers import MessageParsers
from kreplica.wire.messages import API_VERSIONS, Api

VersionRange: TypeAlias = tuple[int, int]
"""Lowest and highest version."""

Request: TypeAlias = Callable[[Api, int, dict[str, Any]], Awaitable[dict[str, Any]]]

CLIENT_SOFTWARE = {"client_software_name": "kreplica", "client_software_version": kreplica.__version__}
"""Name and version of this library in ApiVersions requests (KIP-511)."""

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


async def negotiate_versions(request: Request) -> dict[int, VersionRange]:
    """Request a broker's API versions with the newest version of ApiVersions that it supports.

    :return: API key -> version range.
    :raise KafkaError: the broker rejected the request.
    """
    response = await request(API_VERSIONS, API_VERSIONS.versions[1], CLIENT_SOFTWARE)
    if response["error_code"] == ErrorCode.UNSUPPORTED_VERSION:
        highest = _ranges(response).get(API_VERSIONS.key, (0, 0))[1]
        response = await request(API_VERSIONS, max(0, min(highest, API_VERSIONS.versions[1])), CLIENT_SOFTWARE)
    if response["error_code"] != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(response["error_code"]), "the broker refused to report its API versions")
    return _ranges(response)


def common_version(api: Api, broker: VersionRange | None, at_most: int | None, peer: str) -> int:
    """Return the highest version that both the client and the broker support.

    :param broker: the broker's version range; None if the broker does not support the API.
    :raise UnsupportedVersion: there is no common version.
    """
    if broker is None:
        raise UnsupportedVersion(f"{peer} does not support {api.name}, or its versions were not requested")
    highest = min(api.versions[1], broker[1]) if at_most is None else min(api.versions[1], broker[1], at_most)
    if highest < max(api.versions[0], broker[0]):
        wanted = api.versions[1] if at_most is None else at_most
        raise UnsupportedVersion(
            f"{peer} supports {api.name} in versions {broker[0]} to {broker[1]}, not in {api.versions[0]} to {wanted}"
        )
    return highest


def parse_response(parsers: MessageParsers, api: Api, version: int, frame: memoryview, position: int) -> dict[str, Any]:
    """Parse the body of a response, which has the version of its request.

    An exception is ApiVersions: a broker that does not support the requested version responds with version 0.

    :raise ProtocolError: the bytes are not a valid body.
    """
    if api is API_VERSIONS and frame[position : position + 2] == _UNSUPPORTED:
        version = 0
    return parsers.parse(api.response, version, frame, position)


def _ranges(response: dict[str, Any]) -> dict[int, VersionRange]:
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in response["api_keys"]}
