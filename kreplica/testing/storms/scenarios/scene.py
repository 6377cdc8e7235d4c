"""The cluster that every scenario begins with: who leads and who follows does not depend on the seed.

Broker 1 is the controller and holds nothing of the partition, so that links to it carry nothing but commands.  Broker 2
leads, 3 and 4 follow; all are in sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kreplica.replication import Partition
from kreplica.testing.cluster_state import state_of
from kreplica.testing.storms.replicated_run import SAFE, TOPIC, ReplicatedRun
from kreplica.testing.wire_client import WireClient

CONTROLLER, LEADER, FOLLOWER, OTHER = 1, 2, 3, 4
COORDINATOR = "coordinator"
SESSION_S = 6.0
"""The session time-out; the coordinator looks once a second."""
LAG_S = 3.0

PATIENT = ("replica.lag.time.max.ms=60000",)
"""Settings with which nobody leaves the in-sync set because it is slow."""


@contextmanager
def scene(
    seed: int, *, configs: Mapping[str, str] = SAFE, overrides: Sequence[str] = (), first: int = LEADER
) -> Iterator[ReplicatedRun]:
    """A run that is arranged so, and that tells its story when it fails.

    :param first: the preferred replica.
    """
    run = ReplicatedRun(seed, brokers=4, partitions=1, configs=configs, overrides=overrides)
    try:
        _arrange(run, first)
        yield run
    except Exception as error:
        story = "\n".join(run.story)
        error.add_note(f"seed {seed}, at {run.cluster.simulation.now_s:.3f} s of virtual time:\n{story}")
        raise


def _arrange(run: ReplicatedRun, first: int) -> None:
    cluster = run.cluster
    assert cluster.controller() == CONTROLLER
    client = cluster.client(broker=CONTROLLER)
    replicas = [LEADER, FOLLOWER, OTHER]
    cluster.run_until(client.reassign(TOPIC, 0, replicas))
    run.settle()
    if run.leader() != LEADER:
        prefer(run, client)
    if first != LEADER:
        cluster.run_until(client.reassign(TOPIC, 0, [first, *(other for other in replicas if other != first)]))
    run.settle()
    assert run.leader() == LEADER
    cluster.run_until(client.close())
    run.acknowledge(20)


def prefer(run: ReplicatedRun, client: WireClient | None = None) -> None:
    """Have the preferred replica lead; returns when the state znode says so, whoever has heard of it."""
    client = client or run.cluster.client(broker=CONTROLLER)
    run.tell("the preferred replica is to lead")
    run.cluster.run_until(client.elect_preferred(TOPIC, 0))


def name(broker: int) -> str:
    """Its host."""
    return f"broker-{broker}"


def held(run: ReplicatedRun, broker: int) -> Partition:
    """The partition as that broker holds it."""
    partition = run.machine(broker).program.partitions.get(run.keys[0])
    assert partition is not None, f"broker {broker} holds nothing"
    return partition


def isr(run: ReplicatedRun) -> tuple[int, ...]:
    """The in-sync set, as the state znode has it."""
    state = state_of(run.cluster, run.keys[0])
    return () if state is None else state.isr


def end(run: ReplicatedRun, broker: int) -> int:
    """Where that broker's log ends."""
    return held(run, broker).log.log_end_offset


def high_watermark(run: ReplicatedRun, broker: int) -> int:
    """What that broker knows to be committed."""
    return held(run, broker).high_watermark


def cut(run: ReplicatedRun, a: int, b: int) -> None:
    """Let nothing pass between two brokers."""
    run.tell(f"brokers {a} and {b} are cut off from each other")
    run.network.cut(name(a), name(b))


def cut_off(run: ReplicatedRun, broker: int) -> None:
    """Let nothing pass between a broker and ZooKeeper."""
    run.tell(f"broker {broker} is cut off from ZooKeeper")
    run.network.cut(name(broker), COORDINATOR)


def heal(run: ReplicatedRun, *brokers: int) -> None:
    """Undo what was cut: between two brokers, or between one and all others."""
    run.tell(f"all passes again at {brokers}")
    run.network.heal(*map(name, brokers))


def delay(run: ReplicatedRun, source: int, destination: int, seconds: float) -> None:
    """Let everything from one broker to another, but not back, take so long."""
    run.tell(f"what broker {source} sends to {destination} takes {seconds} s")
    run.network.link(name(source), name(destination)).latency_s = (seconds, seconds)


def leave(run: ReplicatedRun, broker: int) -> None:
    """Cut a follower off from the leader for longer than the lag limit, until it is in sync no more."""
    cut(run, broker, LEADER)
    run.cluster.run_until(lambda: broker not in isr(run), timeout_s=3 * LAG_S)


def write(run: ReplicatedRun, count: int) -> None:
    """Until the leader's log is so much longer, committed or not."""
    wanted = end(run, LEADER) + count
    run.cluster.run_until(lambda: end(run, LEADER) >= wanted)


def hush(run: ReplicatedRun) -> None:
    """Stop the producer where it is."""
    run.tell("the producer stands still")
    run.cluster.simulation.host("producer-0").pause()


def speak(run: ReplicatedRun) -> None:
    """Let the producer go on."""
    run.tell("the producer goes on")
    run.cluster.simulation.host("producer-0").resume()
