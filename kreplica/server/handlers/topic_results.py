"""Requests about several topics: each succeeds or fails alone, all at the same time, answered in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.runtime.slices import Pending, Steps
from kreplica.server.request import Request

Row = dict[str, Any]


async def gather_by_topic(
    request: Request,
    asked: Iterable[Row],
    handle: Callable[[Row], Awaitable[Row]],
    refuse: Callable[[Row, KafkaError], Row],
) -> list[Row]:
    """Handle each row; a ``KafkaError`` becomes that row's answer by ``refuse``.

    Rows are started in slices.  Any other error, or cancellation, cancels those that are running.
    """
    running: list[Deferred[Row]] = []

    async def one(row: Row) -> Row:
        try:
            return await handle(row)
        except KafkaError as error:
            return refuse(row, error)

    def start() -> Steps[None]:
        for row in list(asked):
            running.append(Deferred.fromCoroutine(one(row)))
            yield

    try:
        steps = start()
        if isinstance(request.connection.slices.begin(steps), Pending):
            await request.in_slices(steps)
        return [await each for each in running]
    except BaseException:
        for each in running:
            each.addErrback(lambda _: None)
            each.cancel()
        raise
