"""From ZooKeeper's trouble to what a Kafka client is told."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from kreplica.errors import ErrorCode, KafkaError
from kreplica.zookeeper import BadVersion, MultiFailed, NodeExists, NoNode, RequestTooLarge, ZooKeeperError

T = TypeVar("T")


async def translate_errors(answer: Awaitable[T]) -> T:
    """What ZooKeeper answers; conflicts with other writers are the caller's to understand.

    :raise KafkaError: REQUEST_TIMED_OUT where it cannot be reached, so that the client tries again; INVALID_REQUEST
        where what the client asks does not fit into a znode.
    """
    try:
        return await answer
    except (NoNode, NodeExists, BadVersion, MultiFailed):
        raise
    except RequestTooLarge as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than ZooKeeper takes in one piece: {error}") from error
    except ZooKeeperError as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error
