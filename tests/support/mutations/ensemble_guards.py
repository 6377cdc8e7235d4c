"""Guards against ZooKeeper servers that lag: each ``sync`` before a read; see ``guard``."""

from __future__ import annotations

from typing import Any

from tests.support.mutations.guard import Guard, Place
from tests.support.mutations.scenarios import ensemble


async def _not_synced(*_: Any) -> None:
    """Do not wait for the server; the following read may be stale."""


ENSEMBLE_GUARDS: tuple[Guard, ...] = (
    Guard(
        "sync before the settings of a new topic",
        (Place("kreplica.membership.dynamic_settings:DynamicSettings._sync", _not_synced),),
        ensemble.topic_created_on_other_servers,
        "uses the settings",
    ),
)
"""In the order of the table in the documentation."""
