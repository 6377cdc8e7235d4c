"""Client of the coordinator of one group or transactional ID, which it looks up again after each lost connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kreplica.client.connection import Connection
from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.testing.clients.wire_client import WireClient, name_of
from kreplica.wire import messages
from kreplica.wire.messages import Api

GROUP, TRANSACTION = 0, 1
"""Kinds of keys."""

FIND_ONE_MAX = 3
"""Later versions of FindCoordinator have several keys."""

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 10.0
RETRY_S_MIN, RETRY_S_MAX = 0.1, 0.8

WRONG_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
UNKNOWN_RESULT = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT)
"""Errors after which the request may still have been executed, or may be executed later."""


class Response(NamedTuple):
    """Response of a coordinator.

    :param has_pending_attempt: true if an earlier attempt received no response and may be executed at any time.
    """

    body: dict[str, Any]
    has_pending_attempt: bool


class RequestRejected(KafkaError):
    """A coordinator or leader rejected a request with an error that is not retriable.

    :ivar response: the response.
    :ivar has_pending_attempt: as in ``Response``.
    """

    def __init__(self, code: ErrorCode, response: dict[str, Any], *, has_pending_attempt: bool) -> None:
        super().__init__(code)
        self.response = response
        self.has_pending_attempt = has_pending_attempt


class CoordinatorClient(WireClient):
    """A ``WireClient`` of a coordinator, which it finds by asking one broker after another.

    :param brokers: hosts and ports of the brokers to ask.
    :param key: group ID or transactional ID, according to ``kind``.
    :ivar errors: number of errors by name.
    """

    def __init__(
        self,
        reactor: Reactor,
        brokers: Sequence[tuple[str, int]],
        key: str,
        kind: int,
        *,
        client_id: str,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        super().__init__(reactor, *brokers[0], client_id=client_id, request_timeout_s=request_timeout_s)
        self.errors: Counter[str] = Counter()
        self._brokers = brokers
        self._lookup_count = 0
        self._key = key
        self._kind = kind

    async def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            coordinator = await self._find()
            self._connection = await self._connect(coordinator, CONNECT_TIMEOUT_S)
        return self._connection

    async def wait_for_coordinator(self) -> None:
        while True:
            try:
                await self.connection()
                return
            except (ClientError, KafkaError):
                await pause(self.reactor, RETRY_S_MAX)

    async def request_with_retries(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> Response:
        """Send a request, and retry it as long as the response is a retriable error.

        :raise RequestRejected: the response contains an error that is not retriable.
        """
        has_pending_attempt = False
        wait_s = RETRY_S_MIN
        while True:
            try:
                response = await self.request(api, body, at_most=at_most, timeout_s=timeout_s)
            except (ClientError, KafkaError) as error:
                has_pending_attempt |= isinstance(error, ClientError) and not isinstance(error, ConnectionFailed)
                self.errors[name_of(error)] += 1
                await self.close()
            else:
                code = first_error(response)
                if code is ErrorCode.NONE:
                    return Response(response, has_pending_attempt)
                self.errors[code.name] += 1
                if not code.retriable:
                    raise RequestRejected(code, response, has_pending_attempt=has_pending_attempt)
                has_pending_attempt |= code in UNKNOWN_RESULT
                if code in WRONG_COORDINATOR:
                    await self.close()
            await pause(self.reactor, wait_s)
            wait_s = min(wait_s * 2, RETRY_S_MAX)

    async def _find(self) -> tuple[str, int]:
        broker = self._brokers[self._lookup_count % len(self._brokers)]
        self._lookup_count += 1
        connection = await self._connect(broker, CONNECT_TIMEOUT_S)
        try:
            body = {"key": self._key, "key_type": self._kind}
            version = connection.version(messages.FIND_COORDINATOR, FIND_ONE_MAX)
            timeout_s = self.request_timeout_s
            response = await connection.request(messages.FIND_COORDINATOR, version, body, timeout_s=timeout_s)
        finally:
            await connection.close()
        code = ErrorCode.of(response["error_code"])
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return response["host"], response["port"]


def first_error(response: Any) -> ErrorCode:
    """Return the first error code in a response, at any depth, or NONE."""
    return next((code for code in _codes(response) if code is not ErrorCode.NONE), ErrorCode.NONE)


def _codes(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, list):
        for item in value:
            yield from _codes(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name.endswith("error_code"):
                yield ErrorCode.of(item)
            else:
                yield from _codes(item)
