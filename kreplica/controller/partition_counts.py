"""More or fewer partitions, by requests in ZooKeeper: ``partition_addition``, ``partition_removal``."""

from __future__ import annotations

from kreplica.controller.office import Office
from kreplica.controller.partition_addition import additions_asked
from kreplica.controller.partition_removal import removals_asked


async def partitions_asked(office: Office) -> None:
    """Requests came or went, or one of them is due."""
    await removals_asked(office)
    await additions_asked(office)
