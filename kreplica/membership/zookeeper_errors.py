"""Maps ZooKeeper errors to Kafka error codes."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from kreplica.errors import ErrorCode, KafkaError
from kreplica.zookeeper import BadVersion, MultiFailed, NodeExists, NoNode, RequestTooLarge, ZooKeeperError

T = TypeVar("T")


async def translate_errors(request: Awaitable[T]) -> T:
    """Await a ZooKeeper request; conflicts with other writers are raised unchanged.

    :raise KafkaError: REQUEST_TIMED_OUT if ZooKeeper cannot be reached, so that the client retries; INVALID_REQUEST if
        the data does not fit into a znode.
    """
    try:
        return await request
    except (NoNode, NodeExists, BadVersion, MultiFailed):
        raise
    except RequestTooLarge as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the data exceeds ZooKeeper's size limit: {error}") from error
    except ZooKeeperError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error
