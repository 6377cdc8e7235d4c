"""The cluster that every scenario begins with: who leads and who follows does not depend on the seed.

Broker 1 is the controller and holds nothing of the partition, so that links to it carry nothing but commands.  Broker 2
leads, 3 and 4 follow; all are in sync.
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
from kreplica.testing.histories.record_history import check_nothing_lost
from kreplica.testing.storms.replicated_run import MODERATE, SAFE, TOPIC, ReplicatedRun
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder

CONTROLLER, LEADER, FOLLOWER, OTHER, BYSTANDER = 1, 2, 3, 4, 5
REPLICAS = (LEADER, FOLLOWER, OTHER)
COORDINATOR = "coordinator"
LOGS = "/data/logs"
SESSION_S = 6.0
"""The session time-out; the coordinator looks once a second."""
LAG_S = 3.0

TOGETHER = {**SAFE, "segment.bytes": "1000000"}
"""A topic's settings with which all records are in one segment, and nothing of it is synced."""

PATIENT = ("replica.lag.time.max.ms=60000",)
"""Settings with which nobody leaves the in-sync set because it is slow."""


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
) -> Iterator[ReplicatedRun]:
    """A run that is arranged so, and that tells its story when it fails.

    :param first: the preferred replica.
    :param bystanders: brokers besides that hold nothing.
    :param style: one producer writes all partitions, as that client does.
    """
    run = ReplicatedRun(
        seed,
        brokers=4 + bystanders,
        partitions=partitions,
        configs=configs,
        overrides=overrides,
        load=load,
        style=style,
    )
    try:
        _arrange(run, first)
        yield run
    except Exception as error:
        story = "\n".join(run.story)
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
    run.acknowledge(20)


def order(run: ReplicatedRun, first: int, partition: int = 0) -> None:
    """Have the replicas be these three, and one of them the preferred leader."""
    client = run.cluster.client(broker=CONTROLLER)
    replicas = [first, *(other for other in REPLICAS if other != first)]
    run.cluster.run_until(client.reassign(TOPIC, partition, replicas))
    run.cluster.run_until(client.close())


def prefer(run: ReplicatedRun, partition: int = 0) -> None:
    """Have the preferred replica lead; returns when the state znode says so, whoever has heard of it."""
    client = run.cluster.client(broker=CONTROLLER)
    run.tell("the preferred replica is to lead")
    run.cluster.run_until(client.elect_preferred(TOPIC, partition))
    run.cluster.run_until(client.close())


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


def undelay(run: ReplicatedRun, source: int, destination: int) -> None:
    """Undo ``delay``."""
    run.network.link(name(source), name(destination)).latency_s = run.network.latency_s


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


FAREWELL = b"written to a leader of the past"


class LosesAll(Random):
    """Draws for a power loss that nothing is left of what was not synced."""

    def random(self) -> float:
        return 0.75

    def choice(self, seq: Any) -> Any:
        return max(seq)


def lose_unsynced(run: ReplicatedRun, broker: int) -> None:
    """A broker loses power, and all that it had not synced."""
    run.lose_power(broker, LosesAll(0))


def hears_late(run: ReplicatedRun, broker: int, seconds: float) -> None:
    """Let everything from ZooKeeper to a broker, but not back, take so long."""
    run.tell(f"broker {broker} hears of ZooKeeper {seconds} s late")
    run.network.link(COORDINATOR, name(broker)).latency_s = (seconds, seconds)


def recover(run: ReplicatedRun, broker: int) -> None:
    """Undo ``hears_late``."""
    run.network.link(COORDINATOR, name(broker)).latency_s = run.network.latency_s


def depose(run: ReplicatedRun, successor: int, late_s: float) -> None:
    """Have another controller elected, as an operator may; the old one hears of it so much later."""
    hears_late(run, CONTROLLER, late_s)
    run.tell(f"the controller's znode is removed; broker {successor} is the first to see it")
    _take_office(run, successor, lambda: run.machine(successor).program.client.delete(znodes.CONTROLLER))


def hand_office_over(run: ReplicatedRun, successor: int) -> None:
    """Let the controller's session expire, and one broker be the first to see it."""
    run.tell(f"the controller's session expires, and broker {successor} takes the office")
    _take_office(run, successor, lambda: run.cluster.expire_session(CONTROLLER))


def _take_office(run: ReplicatedRun, successor: int, vacate: Callable[[], object]) -> None:
    others = [other for other in run.cluster.brokers if other not in (CONTROLLER, successor)]
    for other in others:
        hears_late(run, other, 0.2)
    vacate()
    run.cluster.run_until(lambda: run.machine(successor).program.controller.active)
    for other in others:
        recover(run, other)


def alter_topic(run: ReplicatedRun, setting: str, value: str) -> None:
    """Change a setting of the topic."""
    run.tell(f"{setting}={value}")
    change = {"name": setting, "config_operation": 0, "value": value}
    body = {
        "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": [change]}],
        "validate_only": False,
    }
    client = run.cluster.client(broker=CONTROLLER)
    answer = run.cluster.run_until(client.request(messages.INCREMENTAL_ALTER_CONFIGS, body))
    assert not answer["responses"][0]["error_code"], answer
    run.cluster.run_until(client.close())


def write_to_the_past(run: ReplicatedRun) -> None:
    """Have broker 2, which leads no more, acknowledge a record if it will; it has to be there in the end."""
    hush(run)
    builder = BatchBuilder()
    builder.append(0, None, FAREWELL)
    client = run.cluster.client(broker=LEADER)
    told: dict[int, bytes] = {}
    try:
        offset = run.cluster.run_until(client.produce(TOPIC, 0, builder.build(), acks=1))
        run.tell(f"broker {LEADER} has acknowledged {offset}")
        told[offset] = FAREWELL
    except (ClientError, KafkaError) as error:
        run.tell(f"broker {LEADER} refuses: {error}")
    run.cluster.run_until(client.close())
    undelay(run, CONTROLLER, LEADER)
    recover(run, LEADER)
    run.network.heal()
    run.settle()
    reader = run.cluster.leader_client(TOPIC, 0, name="reader")
    check_nothing_lost(run.cluster.run_until(reader.read_all(TOPIC, 0)), told, "acknowledged")
    run.cluster.run_until(reader.close())
    speak(run)
    run.converge()
