"""The tables of all brokers, merged and cached briefly, so that polling pages do not cause a request each time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kreplica.admin.http.api import Call
from kreplica.admin.http.callers import Caller
from kreplica.admin.http.problems import Problem
from kreplica.admin.load.tables import Table, TableFormat
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.runtime import Reactor
from kreplica.runtime.reused_result import ReusedResult

REUSE_SECONDS = 2.0
"""Time in seconds for which a result is reused."""

THIS_BROKER = Caller(is_super=True)
"""The caller in requests to other brokers, because callers with different permissions share the result."""

T = TypeVar("T")

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Load(Generic[T]):
    """The merged load of all brokers.

    :param problems: a sentence for each broker that did not respond.
    """

    content: T
    problems: Sequence[str]


class SharedLoads(Generic[T]):
    """Requests a table from all brokers on behalf of this broker, at most once in ``REUSE_SECONDS``.

    The resources then show each caller only the rows for which the caller is authorized.

    :param read_local: returns the table of this broker.
    :param merge: merges the rows of each broker.
    """

    def __init__(
        self,
        reactor: Reactor,
        others: OtherBrokers,
        path: str,
        table: TableFormat,
        read_local: Callable[[], Awaitable[Table]],
        merge: Callable[[list[Rows]], Awaitable[T]],
        title: str,
    ) -> None:
        self._reactor = reactor
        self._others = others
        self._path = path
        self._table = table
        self._read_local = read_local
        self._merge = merge
        self._validator = PeerResponseValidator(table.schema(title))
        self._result: ReusedResult[Load[T]] = ReusedResult(reactor, REUSE_SECONDS)

    async def current(self, call: Call) -> Load[T]:
        """Return the load of all brokers.

        :param call: a call whose credentials are used if the brokers have no token.
        """
        return await self._result.current(lambda: self._read(call))

    async def _read(self, call: Call) -> Load[T]:
        broker_call = Call(authorization=call.authorization, caller=THIS_BROKER)
        responses = await self._others.request_all(broker_call, self._path, self._validator, self._read_local)
        problems = list(responses.problems)
        tables = []
        for broker_id, document in responses.documents.items():
            try:
                tables.append(await self._table.rows(self._reactor, broker_id, document))
            except Problem as problem:
                problems.append(problem.detail)
        return Load(await self._merge(tables), problems)
