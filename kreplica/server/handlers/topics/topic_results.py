"""Handles the topics of a request concurrently and independently; the response keeps their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.runtime.slices import Steps
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices

Row = dict[str, Any]

_MISSING: Row = {}


async def gather_by_topic(
    request: Request,
    rows: Iterable[Row],
    handle: Callable[[Row], Awaitable[Row]],
    reject: Callable[[Row, KafkaError], Row],
    running_max: int | None = None,
) -> list[Row]:
    """Handle all rows and return their response rows; ``reject`` turns a ``KafkaError`` into a row.

    Rows are started in slices. Any other error, or cancellation, cancels the running rows.

    :param running_max: maximum number of rows handled at the same time; None for no limit.
    """
    results: list[Row] = []
    running: list[Deferred[None]] = []

    async def handle_row(row: Row, number: int) -> None:
        try:
            results[number] = await handle(row)
        except KafkaError as error:
            results[number] = reject(row, error)

    pending = iter(rows)

    def start() -> Steps[bool]:
        """Start handling rows; return True if any are left."""
        for row in pending:
            number = len(results)
            results.append(_MISSING)
            started = Deferred.fromCoroutine(handle_row(row, number))
            if results[number] is _MISSING:
                running.append(started)
                if len(running) == running_max:
                    return True
            yield
        return False

    try:
        while await in_slices(request, start()):
            for each in running:
                await each
            running.clear()
        for each in running:
            await each
        return results
    except BaseException:
        for each in running:
            each.addErrback(lambda _: None)
            each.cancel()
        raise
