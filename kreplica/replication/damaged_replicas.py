"""Rules for a replica whose stored bytes are damaged. Pure functions.

A damaged replica goes offline only if another replica has its records. Its files are discarded only when no broker
relies on them. The last copy stays in use.
"""

from __future__ import annotations

from kreplica.model import NO_LEADER
from kreplica.replication import controller_fence
from kreplica.replication.leadership import Leadership


def has_other_copy(leadership: Leadership, broker_id: int) -> bool:
    """True if another replica has every committed record, as far as this broker knows."""
    if leadership.leader == broker_id:
        return any(replica != broker_id for replica in leadership.isr)
    return leadership.leader != NO_LEADER


def may_discard_damaged_replica(leadership: Leadership, broker_id: int, known_epoch: int) -> bool:
    """True if no broker relies on this replica: another broker leads, and this one is not eligible to lead after it.

    Within one leader epoch the controller may not yet know that the leader added this replica to the ISR. In the next
    epoch no leader adds this replica before it has fetched.

    :param known_epoch: the last leader epoch in which this replica may have fetched.
    """
    if leadership.leader in (NO_LEADER, broker_id):
        return False
    if not controller_fence.is_new_epoch(leadership.leader_epoch, known_epoch):
        return False
    return broker_id not in leadership.isr and broker_id not in leadership.eligible


def is_last_copy(leadership: Leadership, broker_id: int) -> bool:
    """True if this replica is in the ISR and only an unclean election could make another replica the leader."""
    others = [replica for replica in (*leadership.isr, *leadership.eligible) if replica != broker_id]
    return leadership.leader in (NO_LEADER, broker_id) and broker_id in leadership.isr and not others
