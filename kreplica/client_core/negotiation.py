"""Which version of an API to speak with a broker: asking it (KIP-35, KIP-511), and choosing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import kreplica
from kreplica.client_core.errors import UnsupportedVersion
from kreplica.errors import ErrorCode, KafkaError
from kreplica.wire.messages import API_VERSIONS, Api

VersionRange: TypeAlias = tuple[int, int]
"""The lowest and the highest."""

Request: TypeAlias = Callable[[Api, int, dict[str, Any]], Awaitable[dict[str, Any]]]

CLIENT_SOFTWARE = {"client_software_name": "kreplica", "client_software_version": kreplica.__version__}
"""As what this library makes itself known (KIP-511)."""

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


async def negotiate_versions(request: Request) -> dict[int, VersionRange]:
    """Ask a broker for its versions, in the newest version of the question that it understands.

    :return: by API key.
    :raise KafkaError: it refuses the question.
    """
    answer = await request(API_VERSIONS, API_VERSIONS.versions[1], CLIENT_SOFTWARE)
    if answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION:
        highest = _ranges(answer).get(API_VERSIONS.key, (0, 0))[1]
        answer = await request(API_VERSIONS, max(0, min(highest, API_VERSIONS.versions[1])), CLIENT_SOFTWARE)
    if answer["error_code"] != ErrorCode.NONE:
        raise KafkaError(ErrorCode.of(answer["error_code"]), "the broker refuses to say which versions it speaks")
    return _ranges(answer)


def common_version(api: Api, broker: VersionRange | None, at_most: int | None, peer: str) -> int:
    """The highest version that both sides speak.

    :param broker: the broker's range, or None where it does not have the API.
    :raise UnsupportedVersion: there is none.
    """
    if broker is None:
        raise UnsupportedVersion(f"{peer} does not have {api.name}, or was not asked")
    highest = min(api.versions[1], broker[1]) if at_most is None else min(api.versions[1], broker[1], at_most)
    if highest < max(api.versions[0], broker[0]):
        wanted = api.versions[1] if at_most is None else at_most
        raise UnsupportedVersion(
            f"{peer} has {api.name} in versions {broker[0]} to {broker[1]}, wanted is {api.versions[0]} to {wanted}"
        )
    return highest


def parse_answer(api: Api, version: int, frame: memoryview, position: int) -> dict[str, Any]:
    """The body of an answer, which lies in the version asked for, with the one exception that the protocol knows.

    A broker that does not know a version of ApiVersions answers in version 0, the only one both are sure to have.

    :raise ProtocolError: it is not such a body.
    """
    if api is API_VERSIONS and frame[position : position + 2] == _UNSUPPORTED:
        version = 0
    return api.response.parse(version, frame, position)


def _ranges(answer: dict[str, Any]) -> dict[int, VersionRange]:
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}
