"""What a replica with damaged bytes may do.  Pure.

It is taken out only where the records are elsewhere; it sets its copy aside only once nobody relies on that; and where
there is no other, it goes on with what it has.
"""

from __future__ import annotations

from kreplica.model import NO_LEADER
from kreplica.replication import fencing
from kreplica.replication.leadership import Leadership


def others_have_it(leadership: Leadership, broker_id: int) -> bool:
    """Whether another replica has every committed record, as far as this broker knows."""
    if leadership.leader == broker_id:
        return any(replica != broker_id for replica in leadership.isr)
    return leadership.leader != NO_LEADER


def may_begin_anew(leadership: Leadership, broker_id: int, known_epoch: int) -> bool:
    """Whether nobody counts on what this replica has: another leads, and it could not lead after that one.

    Within one leader epoch the controller may not know yet that the leader has let this replica in; in the next one
    no leader does that before the replica has fetched.

    :param known_epoch: the last leader epoch in which it may have fetched.
    """
    if leadership.leader in (NO_LEADER, broker_id) or not fencing.is_new_epoch(leadership.leader_epoch, known_epoch):
        return False
    return broker_id not in leadership.isr and broker_id not in leadership.eligible


def is_last_copy(leadership: Leadership, broker_id: int) -> bool:
    """Whether the partition is not there at all unless with this replica."""
    others = [replica for replica in (*leadership.isr, *leadership.eligible) if replica != broker_id]
    return leadership.leader in (NO_LEADER, broker_id) and broker_id in leadership.isr and not others
