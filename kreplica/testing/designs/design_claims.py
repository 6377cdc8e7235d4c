"""Numbers in the design documents, each compared with the measurement of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kreplica.testing.designs import znode_paths as znodes
from kreplica.testing.designs.clients import PIPELINED, AgentClient
from kreplica.testing.designs.counts import Counts
from kreplica.testing.designs.layout import Shape
from kreplica.testing.designs.light_zookeeper import LightZooKeeper
from kreplica.testing.designs.measure import Case, CaseRun
from kreplica.testing.simulator.scheduler import Process, Scheduler
from kreplica.zookeeper import Create

WATCHED = Shape(partitions=3000, brokers=3, replication_factor=2, partitions_per_topic=3)
"""1,000 topics with 3 partitions on 3 brokers.  The documents give no replication factor; 2 yields both numbers."""

CHANGED_PARTITIONS = 15_000
"""With two replicas on three brokers, a broker's death changes the states of two thirds of the partitions: 10,000."""

QUICK_SCALE = 10
"""Divisor of the sizes in a quick run."""

RTT_MS = 4.0


@dataclass(frozen=True, slots=True)
class DesignClaim:
    """One claim.

    :param claimed: the number in the document; empty if it has none for this design.
    :param measured: the number measured in a run.
    """

    claim: str
    design: str
    claimed: str
    measured: str

    def row(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "design": self.design,
            "claimed": self.claimed,
            "measured": self.measured,
        }


def design_claims(*, quick: bool = False) -> list[DesignClaim]:
    """Measure all claims.

    :param quick: True for clusters of a tenth of the size, and without a second replication factor.
    """
    if quick:
        return [*_watches(2, QUICK_SCALE), *_messages(), *_failover(QUICK_SCALE)]
    return [*_watches(2, 1), *_watches(3, 1), *_messages(), *_failover(1)]


# --- watches ----------------------------------------------------------------------------------------------------------


def _watches(replication_factor: int, scale: int) -> list[DesignClaim]:
    partitions, per_topic = WATCHED.partitions // scale, WATCHED.partitions_per_topic
    shape = Shape(partitions, WATCHED.brokers, replication_factor, per_topic)
    claimed = {}
    if replication_factor == WATCHED.replication_factor:
        claimed = {"race": f"{15_000 // scale:,}", "leader": f"{3_000 // scale:,}"}
    claim = (
        f"watches: {shape.brokers} brokers, {partitions // per_topic:,} topics x {per_topic} partitions, "
        f"replication factor {replication_factor}"
    )
    claims = []
    for design in ("race", "leader", "controller"):
        result = CaseRun(Case(design, shape, 1.0)).run(())
        on_partitions, total = result.partition_watches, result.events[0].watches_at_end
        text = f"{on_partitions:,} on partitions, {total - on_partitions:,} others"
        claims.append(DesignClaim(claim, design, claimed.get(design, ""), text))
    return claims


# --- messages ---------------------------------------------------------------------------------------------------------


def _messages() -> list[DesignClaim]:
    claim = "messages for one state change of one broker"
    by_queue, one = _queue_messages(), "1 for any number of partitions"
    return [
        DesignClaim(claim, "race", "6", by_queue),
        DesignClaim(claim, "leader", "6", by_queue),
        DesignClaim(claim, "controller", "1", one),
    ]


def _queue_messages() -> str:
    """Send a request through a queue znode and count as the document does: 2 for a write, 1 for a read or an event."""
    scheduler, counts = Scheduler(), Counts()
    zookeeper = LightZooKeeper(scheduler, 0.001, counts)
    queue = znodes.queue_path(1)
    zookeeper.put(queue)
    leader = AgentClient(zookeeper, Process("leader"), PIPELINED)
    follower = AgentClient(zookeeper, Process("follower"), PIPELINED)

    def handle_command(names: list[str] | None) -> None:
        for name in names or ():
            path = f"{queue}/{name}"
            follower.get(path, None, partial(delete, path))

    def delete(path: str, _: object) -> None:
        follower.delete(path)

    def listen(_: object = None) -> None:
        follower.children(queue, listen, handle_command)

    listen()
    scheduler.run(1.0)
    counts.reset()
    leader.write(Create(f"{queue}/{znodes.REQUEST_PREFIX}", b"start-replica t 0 1", sequence=True))
    scheduler.run(0.004)
    reads, writes, events = counts.reads, counts.writes, counts.watches_fired
    total = 2 * writes + reads + events
    return f"{total} (writes {writes} x 2, reads {reads}, events {events})"


# --- fail-over --------------------------------------------------------------------------------------------------------


def _failover(scale: int) -> list[DesignClaim]:
    shape = Shape(CHANGED_PARTITIONS // scale, 3, 2)
    changes = CHANGED_PARTITIONS * 2 // 3 // scale
    claim = f"a broker's death changes {changes:,} states, round trip {RTT_MS:g} ms: all partitions have leaders after"
    claimed = f"{changes * RTT_MS / 1000:g} s"
    claims = []
    runs: list[tuple[str, bool, Callable[[], str]]] = [
        ("one write at a time", True, lambda: claimed),
        ("batched and pipelined", False, lambda: ""),
    ]
    for text, one_by_one, expected in runs:
        result = CaseRun(Case("controller", shape, RTT_MS, one_by_one)).run(("broker dies",))
        seconds = result.events[-1].outages.last_s
        claims.append(DesignClaim(claim, f"controller, {text}", expected(), f"{seconds:.2f} s"))
    return claims
