"""The cluster of most scenarios, whose leader and followers do not depend on the seed.

Broker 1 is the controller and has no replica, so that its links carry only commands.  Broker 2 is the leader, brokers 3
and 4 are followers; all are in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from kreplica.client.errors import ClientError
from kreplica.cluster import znodes
from kreplica.errors import KafkaError
from kreplica.replication import Partition
from kreplica.testing.clients.idempotent_producer import Load
from kreplica.testing.clients.pipelining_producer import Style
from kreplica.testing.cluster.state import state_of
from kreplica.testing.ensemble.ensemble import EnsembleOptions
from kreplica.testing.histories.record_history import check_nothing_lost
from kreplica.testing.storms.cluster_run import TOPIC
from kreplica.testing.storms.replicated_run import MODERATE, SAFE, ReplicatedRun
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder

CONTROLLER, LEADER, FOLLOWER, OTHER, BYSTANDER = 1, 2, 3, 4, 5
REPLICAS = (LEADER, FOLLOWER, OTHER)
COORDINATOR = "coordinator"
LOGS = "/data/logs"
SESSION_S = 6.0
"""The session timeout; the coordinator checks once per second."""
LAG_S = 3.0

TOGETHER = {**SAFE, "segment.bytes": "1000000"}
"""Topic settings that keep all records in one segment and never sync it."""

PATIENT = ("replica.lag.time.max.ms=60000",)
"""Settings that prevent slow replicas from leaving the ISR."""


@contextmanager
def scene(
    seed: int,
    *,
    configs: Mapping[str, str] = TOGETHER,
    overrides: Sequence[str] = (),
    first: int = LEADER,
    bystanders: int = 0,
    partitions: int = 1,
    load: Load = MODERATE,
    style: Style | None = None,
    ensemble: EnsembleOptions | None = None,
) -> Iterator[ReplicatedRun]:
    """Prepare a cluster, and add the run's event list to any exception.

    :param first: the preferred replica.
    :param bystanders: number of additional brokers without replicas.
    :param style: client library whose behaviour the producer imitates; one producer writes to all partitions.
    :param ensemble: lagging ZooKeeper servers; None for one server without lag.
    """
    run = ReplicatedRun(
        seed,
        brokers=4 + bystanders,
        partitions=partitions,
        configs=configs,
        overrides=overrides,
        load=load,
        style=style,
        ensemble=ensemble,
    )
    try:
        _arrange(run, first)
        yield run
    except Exception as error:
        story = "\n".join(run.timeline)
        error.add_note(f"seed {seed}, at {run.cluster.simulation.now_s:.3f} s of virtual time:\n{story}")
        raise


def _arrange(run: ReplicatedRun, first: int) -> None:
    assert run.cluster.controller() == CONTROLLER
    for key in run.keys:
        order(run, LEADER, key.partition)
        run.settle()
        if run.leader(key.partition) != LEADER:
            prefer(run, key.partition)
    if first != LEADER:
        order(run, first)
    run.settle()
    assert all(run.leader(key.partition) == LEADER for key in run.keys)
    run.run_until_acknowledged(20)


def order(run: ReplicatedRun, first: int, partition: int = 0) -> None:
    """Reassign the partition to its three replicas, in an order that makes one of them preferred."""
    client = run.cluster.client(broker=CONTROLLER)
    replicas = [first, *(other for other in REPLICAS if other != first)]
    run.cluster.run_until(client.reassign(TOPIC, partition, replicas))
    run.cluster.run_until(client.close())


def prefer(run: ReplicatedRun, partition: int = 0) -> None:
    """Elect the preferred replica; return when the state znode shows it, before the brokers receive the command."""
    client = run.cluster.client(broker=CONTROLLER)
    run.note("the preferred replica is elected")
    run.cluster.run_until(client.elect_preferred(TOPIC, partition))
    run.cluster.run_until(client.close())


def name(broker: int) -> str:
    return f"broker-{broker}"


def partition_on(run: ReplicatedRun, broker: int) -> Partition:
    """Return the broker's partition object."""
    partition = run.machine(broker).program.partitions.get(run.keys[0])
    assert partition is not None, f"broker {broker} has no replica"
    return partition


def isr(run: ReplicatedRun) -> tuple[int, ...]:
    """Return the ISR in the state znode."""
    state = state_of(run.cluster, run.keys[0])
    return () if state is None else state.isr


def end(run: ReplicatedRun, broker: int) -> int:
    """Return the log end offset on this broker."""
    return partition_on(run, broker).log.log_end_offset


def high_watermark(run: ReplicatedRun, broker: int) -> int:
    """Return the high watermark on this broker."""
    return partition_on(run, broker).high_watermark


def cut(run: ReplicatedRun, a: int, b: int) -> None:
    """Drop all packets between two brokers."""
    run.note(f"brokers {a} and {b} are disconnected from each other")
    run.network.cut(name(a), name(b))


def cut_off(run: ReplicatedRun, broker: int) -> None:
    """Drop all packets between a broker and ZooKeeper."""
    run.note(f"broker {broker} is disconnected from ZooKeeper")
    run.network.cut(name(broker), COORDINATOR)


def heal(run: ReplicatedRun, *brokers: int) -> None:
    """Undo ``cut`` between two brokers, or between one broker and all others."""
    run.note(f"brokers {brokers} are connected again")
    run.network.heal(*map(name, brokers))


def delay(run: ReplicatedRun, source: int, destination: int, seconds: float) -> None:
    """Delay all packets from one broker to another, but not in the other direction."""
    run.note(f"packets from broker {source} to {destination} take {seconds} s")
    run.network.link(name(source), name(destination)).latency_s = (seconds, seconds)


def undelay(run: ReplicatedRun, source: int, destination: int) -> None:
    """Undo ``delay``."""
    run.network.link(name(source), name(destination)).latency_s = run.network.latency_s


def leave(run: ReplicatedRun, broker: int) -> None:
    """Disconnect a follower from the leader until it leaves the ISR."""
    cut(run, broker, LEADER)
    run.cluster.run_until(lambda: broker not in isr(run), timeout_s=3 * LAG_S)


def write(run: ReplicatedRun, count: int) -> None:
    """Produce until the leader's log has grown by ``count`` records, committed or not."""
    wanted = end(run, LEADER) + count
    run.cluster.run_until(lambda: end(run, LEADER) >= wanted)


def pause_producer(run: ReplicatedRun) -> None:
    run.note("the producer pauses")
    run.cluster.simulation.host("producer-0").pause()


def resume_producer(run: ReplicatedRun) -> None:
    run.note("the producer resumes")
    run.cluster.simulation.host("producer-0").resume()


LATE_RECORD = b"written to a leader of the past"


class LosesAll(Random):
    """Random numbers that make a power loss discard everything unsynced."""

    def random(self) -> float:
        return 0.75

    def choice(self, seq: Any) -> Any:
        return max(seq)


def lose_unsynced(run: ReplicatedRun, broker: int) -> None:
    """Cut a broker's power, so that everything that it has not synced is lost."""
    run.lose_power(broker, LosesAll(0))


def delay_zookeeper(run: ReplicatedRun, broker: int, seconds: float) -> None:
    """Delay all packets from ZooKeeper to a broker, but not in the other direction."""
    run.note(f"packets from ZooKeeper to broker {broker} take {seconds} s")
    run.network.link(COORDINATOR, name(broker)).latency_s = (seconds, seconds)


def recover(run: ReplicatedRun, broker: int) -> None:
    """Undo ``delay_zookeeper``."""
    run.network.link(COORDINATOR, name(broker)).latency_s = run.network.latency_s


def depose(run: ReplicatedRun, successor: int, late_s: float) -> None:
    """Let another controller be elected, as an operator can; the old one learns of it after ``late_s`` seconds."""
    delay_zookeeper(run, CONTROLLER, late_s)
    run.note(f"the controller's znode is removed; broker {successor} is the first to see it")
    _become_controller(run, successor, lambda: run.machine(successor).program.client.delete(znodes.CONTROLLER))


def transfer_controller(run: ReplicatedRun, successor: int) -> None:
    """Let the controller's session expire and one broker be the first to notice."""
    run.note(f"the controller's session expires, and broker {successor} becomes controller")
    _become_controller(run, successor, lambda: run.cluster.expire_session(CONTROLLER))


def _become_controller(run: ReplicatedRun, successor: int, vacate: Callable[[], object]) -> None:
    others = [other for other in run.cluster.brokers if other not in (CONTROLLER, successor)]
    for other in others:
        delay_zookeeper(run, other, 0.2)
    vacate()
    run.cluster.run_until(lambda: run.machine(successor).program.controller.active)
    for other in others:
        recover(run, other)


def alter_topic(run: ReplicatedRun, setting: str, value: str) -> None:
    """Change a setting of the topic."""
    run.note(f"{setting}={value}")
    change = {"name": setting, "config_operation": 0, "value": value}
    body = {
        "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": [change]}],
        "validate_only": False,
    }
    client = run.cluster.client(broker=CONTROLLER)
    answer = run.cluster.run_until(client.request(messages.INCREMENTAL_ALTER_CONFIGS, body))
    assert not answer["responses"][0]["error_code"], answer
    run.cluster.run_until(client.close())


def write_to_deposed_leader(run: ReplicatedRun) -> None:
    """Send a record to broker 2, which is no longer leader; if it acknowledges the record, readers must see it."""
    pause_producer(run)
    builder = BatchBuilder()
    builder.append(0, None, LATE_RECORD)
    client = run.cluster.client(broker=LEADER)
    acknowledged: dict[int, bytes] = {}
    try:
        offset = run.cluster.run_until(client.produce(TOPIC, 0, builder.build(), acks=1))
        run.note(f"broker {LEADER} has acknowledged {offset}")
        acknowledged[offset] = LATE_RECORD
    except (ClientError, KafkaError) as error:
        run.note(f"broker {LEADER} rejects the record: {error}")
    run.cluster.run_until(client.close())
    undelay(run, CONTROLLER, LEADER)
    recover(run, LEADER)
    run.network.heal()
    run.settle()
    reader = run.cluster.leader_client(TOPIC, 0, name="reader")
    check_nothing_lost(run.cluster.run_until(reader.read_all(TOPIC, 0)), acknowledged, "acknowledged")
    run.cluster.run_until(reader.close())
    resume_producer(run)
    run.converge()
