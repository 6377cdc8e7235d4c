"""Guards against lagging ZooKeeper servers: each ``sync`` before a read; see ``guard``."""

from __future__ import annotations

from typing import Any

from tests.support.mutations.guard import Guard, Place
from tests.support.mutations.scenarios import ensemble


async def _not_synced(*_: Any) -> None:
    """Do not wait for the server; the following read may be stale."""


ENSEMBLE_GUARDS: tuple[Guard, ...] = (
    Guard(
        "sync before the settings of a new topic are read",
        (Place("kreplica.membership.settings.dynamic_settings:DynamicSettings._sync", _not_synced),),
        ensemble.topic_created_on_other_servers,
        "uses the settings",
    ),
    Guard(
        "sync before the ISR is read",
        (Place("kreplica.replication.leader.isr_writes:IsrWrites._sync", _not_synced),),
        ensemble.lost_response_to_isr_expansion,
        "without all",
    ),
    Guard(
        "sync before the controller is read",
        (Place("kreplica.membership.controller_lookup:_sync", _not_synced),),
        ensemble.command_of_unknown_controller,
        "rejected",
    ),
    Guard(
        "sync before a follower's registration is read",
        (Place("kreplica.membership.follower_incarnations:FollowerIncarnations._sync", _not_synced),),
        ensemble.fetch_of_newly_registered_follower,
        "was rejected",
    ),
    Guard(
        "sync before stray logs are deleted",
        (Place("kreplica.membership.stray_logs:_sync", _not_synced),),
        ensemble.stray_search_without_newest_topic,
        "would be deleted",
    ),
    Guard(
        "sync before delegation tokens are read",
        (Place("kreplica.membership.delegation_tokens.token_store:TokenStore._sync", _not_synced),),
        ensemble.token_created_on_other_servers,
        "does not know",
    ),
    Guard(
        "sync before the ACLs to delete are read",
        (Place("kreplica.membership.acl_store:AclStore._sync", _not_synced),),
        ensemble.acl_created_on_other_servers,
        "does not find",
    ),
    Guard(
        "write before the outcome of a lost write is read",
        (Place("kreplica.controller.effects.resumption:ResumingClient._catch_up", _not_synced),),
        ensemble.lost_response_to_election,
        "was elected, but",
    ),
    Guard(
        "write before a term continues",
        (Place("kreplica.controller.controller_election:Election._catch_up", _not_synced),),
        ensemble.term_continues_after_lost_connections,
        "was elected, but",
    ),
)
"""The guards, in the order of the table in the documentation."""
