"""A client that speaks to whoever coordinates one group or transactional id, and looks for it anew after every loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kreplica.client.connection import Connection
from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Reactor
from kreplica.testing.clients.wire_client import WireClient, name_of, sleep
from kreplica.wire import messages
from kreplica.wire.messages import Api

GROUP, TRANSACTION = 0, 1
"""Of what a key is."""

FIND_ONE_MAX = 3
"""Later versions of FindCoordinator take several keys."""

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 10.0
TRY_AGAIN_S_MIN, TRY_AGAIN_S_MAX = 0.1, 0.8

ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
UNSURE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT)
"""Errors with which a coordinator does not say that nothing was done, nor that nothing will be."""


class Answered(NamedTuple):
    """:param is_doubtful: whether an earlier attempt got no answer: it may have been carried out, or will be."""

    body: dict[str, Any]
    is_doubtful: bool


class Refused(KafkaError):
    """A coordinator, or a leader, says no, and would again.

    :ivar answer: the whole of it.
    :ivar is_doubtful: as that of ``Answered``.
    """

    def __init__(self, code: ErrorCode, answer: dict[str, Any], *, is_doubtful: bool) -> None:
        super().__init__(code)
        self.answer = answer
        self.is_doubtful = is_doubtful


class CoordinatorClient(WireClient):
    """A ``WireClient`` whose connection leads to a coordinator, as one broker after the other has it.

    :param brokers: host and port of those that are asked, each time the next one.
    :param key: a group's id or a transactional id; ``kind`` says which.
    :ivar errors: what went wrong, by name, and how often.
    """

    def __init__(
        self,
        reactor: Reactor,
        brokers: Sequence[tuple[str, int]],
        key: str,
        kind: int,
        *,
        client_id: str,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        super().__init__(reactor, *brokers[0], client_id=client_id, answer_timeout_s=answer_timeout_s)
        self.errors: Counter[str] = Counter()
        self._brokers = brokers
        self._asked_count = 0
        self._key = key
        self._kind = kind

    async def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            coordinator = await self._find()
            self._connection = await self._connect(coordinator, CONNECT_TIMEOUT_S)
        return self._connection

    async def found(self) -> None:
        """Wait until somebody coordinates."""
        while True:
            try:
                await self.connection()
                return
            except (ClientError, KafkaError):
                await sleep(self.reactor, TRY_AGAIN_S_MAX)

    async def ask(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> Answered:
        """Ask until there is an answer that does not say to ask again, as clients do that have all the time.

        :raise Refused: it is an error, anywhere in it.
        """
        is_doubtful = False
        wait_s = TRY_AGAIN_S_MIN
        while True:
            try:
                answer = await self.request(api, body, at_most=at_most, timeout_s=timeout_s)
            except (ClientError, KafkaError) as error:
                is_doubtful |= isinstance(error, ClientError) and not isinstance(error, ConnectionFailed)
                self.errors[name_of(error)] += 1
                await self.close()
            else:
                code = first_error(answer)
                if code is ErrorCode.NONE:
                    return Answered(answer, is_doubtful)
                self.errors[code.name] += 1
                if not code.retriable:
                    raise Refused(code, answer, is_doubtful=is_doubtful)
                is_doubtful |= code in UNSURE
                if code in ELSEWHERE:
                    await self.close()
            await sleep(self.reactor, wait_s)
            wait_s = min(wait_s * 2, TRY_AGAIN_S_MAX)

    async def _find(self) -> tuple[str, int]:
        asked = self._brokers[self._asked_count % len(self._brokers)]
        self._asked_count += 1
        connection = await self._connect(asked, CONNECT_TIMEOUT_S)
        try:
            body = {"key": self._key, "key_type": self._kind}
            version = connection.version(messages.FIND_COORDINATOR, FIND_ONE_MAX)
            answer = await connection.request(messages.FIND_COORDINATOR, version, body, timeout_s=self.answer_timeout_s)
        finally:
            await connection.close()
        code = ErrorCode.of(answer["error_code"])
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return answer["host"], answer["port"]


def first_error(answer: Any) -> ErrorCode:
    """The first error code in an answer, however deep; NONE where there is none."""
    return next((code for code in _codes(answer) if code is not ErrorCode.NONE), ErrorCode.NONE)


def _codes(value: Any) -> Iterator[ErrorCode]:
    if isinstance(value, list):
        for each in value:
            yield from _codes(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name.endswith("error_code"):
                yield ErrorCode.of(each)
            else:
                yield from _codes(each)
