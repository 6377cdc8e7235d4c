"""More or fewer partitions, by requests in ZooKeeper: ``partition_addition``, ``partition_removal``."""

from __future__ import annotations

from kreplica.cluster import znodes
from kreplica.controller.handlers.partition_addition import additions_asked
from kreplica.controller.handlers.partition_removal import removals_asked
from kreplica.controller.handlers.partition_requests import tidy_empty
from kreplica.controller.term import Office


async def partitions_asked(office: Office) -> None:
    """Requests came or went, or one of them is due."""
    await removals_asked(office)
    await additions_asked(office)


async def carry_on(office: Office) -> None:
    """Take up what an earlier controller was asked; it may have met requests and not tidied up behind them."""
    await partitions_asked(office)
    for root in (znodes.PARTITIONS_ADD, znodes.PARTITIONS_REMOVE):
        await tidy_empty(office, root)
