"""Handles requests in ZooKeeper to add or remove partitions."""

from __future__ import annotations

from kreplica.cluster import znodes
from kreplica.controller.handlers.partition_addition import additions_asked
from kreplica.controller.handlers.partition_removal import removals_asked
from kreplica.controller.handlers.partition_requests import remove_empty_parents
from kreplica.controller.term import ControllerTerm


async def partitions_asked(term: ControllerTerm) -> None:
    """Handle created or deleted requests, and removals that are due."""
    await removals_asked(term)
    await additions_asked(term)


async def resume(term: ControllerTerm) -> None:
    """Handle pending requests at the start of a term, and remove empty parents that an earlier controller left."""
    await partitions_asked(term)
    for root in (znodes.PARTITIONS_ADD, znodes.PARTITIONS_REMOVE):
        await remove_empty_parents(term, root)
