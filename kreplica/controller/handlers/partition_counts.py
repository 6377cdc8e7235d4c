"""Handles requests in ZooKeeper to add or remove partitions."""

from __future__ import annotations

from kreplica.cluster import znodes
from kreplica.controller.handlers.partition_addition import handle_additions
from kreplica.controller.handlers.partition_removal import handle_removals
from kreplica.controller.handlers.partition_requests import remove_empty_parents
from kreplica.controller.term import ControllerTerm


async def handle_partition_requests(term: ControllerTerm) -> None:
    """Handle new and withdrawn requests, and removals that are due."""
    await handle_removals(term)
    await handle_additions(term)


async def resume(term: ControllerTerm) -> None:
    """Handle pending requests at the start of a term, and remove empty parents left by an earlier controller."""
    await handle_partition_requests(term)
    for root in (znodes.PARTITIONS_ADD, znodes.PARTITIONS_REMOVE):
        await remove_empty_parents(term, root)
