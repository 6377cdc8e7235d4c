"""The tables of all brokers, merged and cached briefly, so that pages that poll do not cause a request each."""

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
from kreplica.runtime.shared_coroutine import SharedCoroutine

REUSE_SECONDS = 2.0
"""Time for which a result is reused."""

THIS_BROKER = Caller(is_super=True)
"""The caller of requests to other brokers: the result is shared by callers with different permissions."""

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

    Callers see only rows for which they are authorized: their resource filters them.

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
        self._known: Load[T] | None = None
        self._known_at_s = 0.0
        self._reading: SharedCoroutine[Load[T]] | None = None

    async def current(self, call: Call) -> Load[T]:
        """Return the load of all brokers.

        :param call: a call whose credentials are used if the brokers have no token.
        """
        if self._known is not None and self._reactor.seconds() - self._known_at_s < REUSE_SECONDS:
            return self._known
        if self._reading is None or self._reading.is_over:
            self._reading = SharedCoroutine(self._read(call))
        return await self._reading.wait()

    async def _read(self, call: Call) -> Load[T]:
        own = Call(authorization=call.authorization, caller=THIS_BROKER)
        began_s = self._reactor.seconds()
        responses = await self._others.request_all(own, self._path, self._validator, self._read_local)
        problems = list(responses.problems)
        tables = []
        for broker_id, document in responses.documents.items():
            try:
                tables.append(self._table.rows(broker_id, document))
            except Problem as problem:
                problems.append(problem.detail)
        self._known = Load(await self._merge(tables), problems)
        self._known_at_s = began_s
        return self._known
