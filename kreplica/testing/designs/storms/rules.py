"""Replication rules that are defective in the design documents and were repaired later."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Rules:
    """One flag per repaired rule; if all are False, the rules are those of the document.

    :param truncate_by_epoch: a fetch carries the epoch of the follower's last record, and the follower truncates to
        the common prefix of the logs (KIP-101, KIP-320); otherwise it truncates to its high watermark when it starts
        to follow.
    :param wait_for_in_sync: a new leader waits for every live in-sync replica, without a time limit.
    :param conditional_writes: a write of the in-sync replicas fails if they were changed since the writer read them.
        The creation of the leader znode has the same condition and counts as a change, so that it fences earlier
        leaders.
    """

    truncate_by_epoch: bool = False
    wait_for_in_sync: bool = False
    conditional_writes: bool = False

    def repaired(self, *names: str) -> Rules:
        """Return these rules with the named ones repaired, too."""
        return replace(self, **dict.fromkeys(names, True))


RULE_NAMES = tuple(field.name for field in fields(Rules))
ALL_REPAIRED = Rules().repaired(*RULE_NAMES)


@dataclass(frozen=True, slots=True)
class StormDesign:
    """The properties of a design that affect the logs.

    :param queued: True if a replica follows at the request of the leader, from its persistent queue (second design);
        False if it follows when its watch reports the leader (first design).
    """

    name: str
    queued: bool


STORM_DESIGNS = {
    design.name: design for design in (StormDesign("race", queued=False), StormDesign("leader", queued=True))
}
