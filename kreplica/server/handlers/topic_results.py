"""Requests about several topics: each succeeds or fails alone, all at the same time, answered in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from kreplica.errors import KafkaError
from kreplica.runtime.together import together

Row = dict[str, Any]


async def gather_by_topic(
    asked: Iterable[Row], handle: Callable[[Row], Awaitable[Row]], refuse: Callable[[Row, KafkaError], Row]
) -> list[Row]:
    """Handle each row; a ``KafkaError`` becomes that row's answer by ``refuse``."""

    async def one(row: Row) -> Row:
        try:
            return await handle(row)
        except KafkaError as error:
            return refuse(row, error)

    return await together([one(row) for row in asked])
