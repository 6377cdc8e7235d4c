"""A cluster under load: three replicas, idempotent producers with acks=all, consumers; and what may be done to it.

Every event is followed by a check of the invariants.  ``storm`` does to it what a plan says; scripted tests do one
thing after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.service.composition.broker import Broker
from kreplica.settings.definitions.replication import RACK_AWARE_SELECTOR
from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.anomalies import report
from kreplica.testing.clients.idempotent_producer import IdempotentProducer, Load
from kreplica.testing.clients.pipelining_producer import PipeliningProducer, Style
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import Machine, SimulatedCluster
from kreplica.testing.cluster.invariants import Invariants
from kreplica.testing.cluster.state import ACTING, is_moving, state_of
from kreplica.testing.histories.record_history import History, check_nothing_lost, check_whole
from kreplica.testing.simulator.scheduler import Process
from kreplica.testing.storms.clients.companion import Companion
from kreplica.testing.storms.clients.readers import Readers
from kreplica.testing.storms.clients.side_topics import DELETE_DELAY_MS, SideTopics

TOPIC = "load"
REPLICAS = 3

QUICK = (
    "zookeeper.session.timeout.ms=6000",
    "log.flush.offset.checkpoint.interval.ms=2000",
    "log.retention.check.interval.ms=2000",
    "replica.lag.time.max.ms=3000",
    f"log.segment.delete.delay.ms={DELETE_DELAY_MS}",
)
"""Settings of every broker: sessions of 6 s, replicas that leave the in-sync set after 3 s, checkpoints that have
their say in every run; and what is deleted is gone soon, of topics too whose settings nobody knows any more."""

SAFE = {"segment.bytes": "5000", "min.insync.replicas": "2"}
"""Settings of a topic of which no single failure may lose anything; its segments are rolled often."""

SYNCED = {**SAFE, "flush.messages": "1"}
"""The same for failures of all machines at once."""

SHARED_PRODUCER = "producer-0"
"""The host of the one producer that writes all partitions."""

RACKS = ("north", "south", "west")
NEAREST = f"replica.selector.class={RACK_AWARE_SELECTOR}"

MODERATE = Load(TOPIC, interval_s=0.05)
"""What each partition's producer writes where nothing else is asked for."""


class ProgramFailed(AssertionError):
    """A program raised what none ever should."""


class ReplicatedRun:
    """A cluster, a topic, a producer and a consumer for each partition; every event is followed by a check.

    :param load: what the producer of each partition writes; its topic and partitions are not looked at.
    :param racks: whether brokers are in racks, and send consumers to the nearest replica (KIP-392).
    :param style: one producer writes all partitions and treats errors as that client does; None: one producer each.
    :param trace: called with one line per event, and one for each thing that is done to the cluster.
    :ivar synced: whether the topic has ``flush.messages=1``.
    :ivar story: what was done to the cluster and when, for whoever reads a failure.
    :ivar side_topics: topics that come and go; none unless somebody asks for one.  ``readers`` likewise.
    :ivar companions: these and others, who have to be well in the end too.
    :ivar lost: brokers whose machine or disk failed, maybe with the end of their logs, and that do not hold everything
        again yet.
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        partitions: int = 2,
        configs: Mapping[str, str] = SAFE,
        overrides: Sequence[str] = (),
        load: Load = MODERATE,
        racks: bool = False,
        style: Style | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.synced = configs.get("flush.messages") == "1"
        self.story: list[str] = []
        self.lost: dict[int, None] = {}
        self._supervisor = Process("supervisor")
        self._wanted: dict[int, None] = dict.fromkeys(range(1, brokers + 1))
        self._ready: dict[int, Broker] = {}
        self._trace = trace
        self.racks = {broker: RACKS[broker % len(RACKS)] for broker in self._wanted} if racks else {}
        settings = [*QUICK, *([NEAREST] if racks else []), *overrides]
        self.cluster = SimulatedCluster(seed, brokers=brokers, overrides=settings, racks=self.racks, trace=trace)
        self.network = self.cluster.simulation.network
        self.random = self.cluster.simulation.random
        self.keys = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
        self.history = History(partitions, lambda: self.cluster.simulation.now_s)
        self.cluster.start()
        self._ready.update((number, machine.program) for number, machine in self.cluster.brokers.items())
        admin = self.cluster.client()
        self.cluster.run_until(admin.create_topic(TOPIC, partitions, configs, replication_factor=REPLICAS))
        self.cluster.run_until(admin.close())
        self.invariants = Invariants(self.cluster, TOPIC, partitions, self.history)
        self.invariants.watch()
        self.side_topics = SideTopics(self)
        self.readers = Readers(self)
        self.companions: list[Companion] = [self.side_topics, self.readers]
        self.producers: list[IdempotentProducer | PipeliningProducer] = (
            [self._producer(key.partition, load) for key in self.keys]
            if style is None
            else [self._shared_producer(load, style)]
        )
        self.consumers = [self._consumer(key.partition) for key in self.keys]

    def _producer(self, partition: int, load: Load) -> IdempotentProducer:
        name = f"producer-{partition}"
        runtime = self.cluster.simulation.host(name).runtime
        client = self.cluster.leader_client(TOPIC, partition, name=name)
        own = replace(load, topic=TOPIC, partitions=[partition])
        producer = IdempotentProducer(runtime, client, own, self.history)
        producer.start()
        return producer

    def _shared_producer(self, load: Load, style: Style) -> PipeliningProducer:
        def client(partition: int) -> WireClient:
            return self.cluster.leader_client(TOPIC, partition, name=SHARED_PRODUCER)

        runtime = self.cluster.simulation.host(SHARED_PRODUCER).runtime
        own = replace(load, topic=TOPIC, partitions=[key.partition for key in self.keys])
        producer = PipeliningProducer(runtime, client, own, self.history, style)
        producer.start()
        return producer

    def _consumer(self, partition: int) -> TailingConsumer:
        name = f"consumer-{partition}"
        client = self.cluster.leader_client(TOPIC, partition, name=name)
        reactor = self.cluster.simulation.host(name).reactor
        consumer = TailingConsumer(reactor, client, TOPIC, partition, self.history)
        consumer.start()
        return consumer

    # --- looking -----------------------------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        """Note what is done, for whoever reads a failure."""
        now_s = self.cluster.simulation.now_s
        self.story.append(f"{now_s:10.3f} {text}")
        if self._trace is not None:
            self._trace(f"{now_s:.9f} * {text}")

    @property
    def clients(self) -> list[str]:
        """The hosts of producers and consumers."""
        producers = [f"producer-{index}" for index, _ in enumerate(self.producers)]
        consumers = [f"consumer-{key.partition}" for key in self.keys]
        return [*producers, *consumers, *(host for companion in self.companions for host in companion.hosts)]

    def machine(self, broker: int) -> Machine[Broker]:
        return self.cluster.brokers[broker]

    def leader(self, partition: int = 0) -> int:
        return self.cluster.leader_of(TOPIC, partition)

    def followers(self, partition: int = 0) -> list[int]:
        """The in-sync followers, as ZooKeeper has them."""
        state = state_of(self.cluster, self.keys[partition])
        return [broker for broker in state.isr if broker != state.leader] if state else []

    def survives(self, broker: int) -> bool:
        """Whether nothing that is committed may be lost, should this one lose power now.

        Another in-sync replica must have it; and of those that lost something one at most may count as in sync, since
        whoever has all may die, and leave the set, before the others are found to be dead.  That is what is promised:
        the loss of any one machine.
        """
        self.lost = {other: None for other in self.lost if not self._has_all(other)}
        lost = {*self.lost, broker}
        for key in self._committed_ends():
            state = state_of(self.cluster, key)
            if state is None or not set(state.isr) - lost or len(lost.intersection(state.isr)) > 1:
                return False
        return True

    def _has_all(self, broker: int) -> bool:
        """Whether it holds, again, all that was ever committed where it is in sync, and nothing of it is damaged."""
        machine = self.machine(broker)
        if self._is_damaged(broker) or machine.host.disk.is_failing:
            return False
        for key, end in self._committed_ends().items():
            state = state_of(self.cluster, key)
            if state is None or broker not in state.isr:
                continue
            partition = machine.program.partitions.get(key) if machine.running else None
            if partition is None or partition.role not in ACTING:
                return False
            if partition.log.log_end_offset < end:
                return False
        return True

    def _committed_ends(self) -> dict[TopicPartition, int]:
        """By partition, the first offset beyond what is known to be committed."""
        ends = {key: self.invariants.committed[key].end_offset for key in self.keys}
        for companion in self.companions:
            ends |= companion.committed_ends
        return ends

    # --- going on ----------------------------------------------------------------------------------------------------

    def acknowledge(self, count: int, timeout_s: float = 120.0) -> None:
        """Until so many more records are acknowledged."""
        wanted = self.history.acked_count + count
        self.cluster.run_until(lambda: self.history.acked_count >= wanted, timeout_s)

    def steps(self, count: int) -> None:
        """Let so many events happen."""
        for _ in range(count):
            self.cluster.simulation.step()

    def settle(self, timeout_s: float = 180.0) -> None:
        """Until no replica is on its way, every partition is led, and all replicas are in sync."""
        self.cluster.run_until(lambda: not is_moving(self.cluster, TOPIC), timeout_s)
        self.cluster.wait_in_sync(TOPIC, [key.partition for key in self.keys], timeout_s)
        self.lost.clear()

    def mend(self, timeout_s: float = 180.0) -> None:
        """Until no replica is damaged: all that flipped was found, and fetched again."""
        until_s = self.cluster.simulation.now_s + timeout_s
        while damaged := [broker for broker in self.cluster.brokers if self._is_damaged(broker)]:
            assert self.cluster.simulation.now_s < until_s, f"damaged still: {damaged}"
            self.cluster.run(1.0)
        self.settle()

    def _is_damaged(self, broker: int) -> bool:
        return any(path.endswith(LOG_SUFFIX) for path in self.machine(broker).host.disk.damaged_files())

    # --- machines ----------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        self.tell(f"broker {broker} is killed")
        self._wanted.pop(broker, None)
        self.machine(broker).kill()

    def lose_power(self, broker: int, random: Random | None = None) -> None:
        """
        :param random: what draws how much of what was not synced is lost; the host's own unless given.
        """
        self.tell(f"broker {broker} loses power")
        self._wanted.pop(broker, None)
        self.machine(broker).power_loss(random)
        self.lost[broker] = None

    def launch(self, broker: int) -> None:
        """Begin to start a broker; one that cannot start is started again after a second, as by any supervisor."""
        self._wanted[broker] = None
        if self.machine(broker).running:
            return
        self.tell(f"broker {broker} starts")
        starting = self.machine(broker).start()
        program = self.machine(broker).program
        starting.addCallbacks(lambda _: self._started(broker, program), lambda f: self._not_started(broker, program, f))

    def _started(self, broker: int, program: Broker) -> None:
        self._ready[broker] = program

    def _not_started(self, broker: int, program: Broker, failure: Failure) -> None:
        self.tell(f"broker {broker} did not start: {failure.getErrorMessage()}")
        if not failure.check(KreplicaError, OSError):
            self.failed(failure)
        if broker in self._wanted and self.machine(broker).running and self.machine(broker).program is program:
            self.machine(broker).kill()
            self.cluster.simulation.scheduler.post(self._supervisor, 1.0, self._launch_again, broker)

    def _launch_again(self, broker: int) -> None:
        if broker in self._wanted:
            self.launch(broker)

    def start(self, *brokers: int) -> None:
        """Start brokers at once, and wait until all of them serve."""
        for broker in brokers:
            self.launch(broker)
        self.cluster.run_until(lambda: all(self.serves(broker) for broker in brokers), timeout_s=120.0)

    def serves(self, broker: int) -> bool:
        """Whether a broker has started and runs."""
        machine = self.machine(broker)
        return machine.running and self._ready.get(broker) is machine.program

    def stop(self, broker: int) -> None:
        """Stop a broker in order."""
        self.cluster.run_until(self.begin_to_stop(broker), timeout_s=120.0)

    def begin_to_stop(self, broker: int) -> Deferred[None]:
        """Begin to stop a broker in order.

        :return: fires when it has ended; never, where it is killed before that.
        """
        self.tell(f"broker {broker} is stopped")
        self._wanted.pop(broker, None)
        return self.machine(broker).stop()

    def launch_coordinator(self) -> None:
        """Begin to start the coordinator."""
        if not self.cluster.coordinator.running:
            self.tell("the coordinator starts")
            self.cluster.coordinator.start().addErrback(self.failed)

    def failed(self, failure: Failure) -> None:
        """Something went wrong that never may: the run fails at its end."""
        self.cluster.simulation.failures.append(failure)

    def start_all(self) -> None:
        """Start whatever does not run."""
        self.launch_coordinator()
        self.start(*self.cluster.brokers)

    # --- the end -----------------------------------------------------------------------------------------------------

    def converge(self) -> None:
        """All faults are over: everything must be led, in sync, acknowledged, and readable once and in order."""
        self.tell("all faults are over")
        self.network.heal()
        self.start_all()
        self.settle()
        self.mend()
        for producer in self.producers:
            self.cluster.run_until(producer.finish(), timeout_s=300.0)
        for key, consumer in zip(self.keys, self.consumers, strict=True):
            end = self.history.ends(key.partition)[0]
            self.cluster.run_until(lambda c=consumer, e=end: c.position >= e, timeout_s=120.0)
            self.cluster.run_until(consumer.finish(), timeout_s=120.0)
        for companion in self.companions:
            companion.converge()
        self.check()

    def check(self) -> None:
        """What each partition must hold; then everything is stopped."""
        self.settle()
        assert not self.history.contradictions, "; ".join(self.history.contradictions)
        report(self.history.told).check()
        resets = [producer.resets for producer in self.producers]
        assert not any(resets), f"producers were told that their records are gone: {resets}"
        for key in self.keys:
            client = self.cluster.leader_client(TOPIC, key.partition, name="reader")
            records = self.cluster.run_until(client.read_all(TOPIC, key.partition), timeout_s=120.0)
            self.cluster.run_until(client.close())
            check_whole(records, key.partition)
            check_nothing_lost(records, self.history.acked[key.partition], "acknowledged")
            check_nothing_lost(records, self.history.seen[key.partition], "read")
            sent = self.history.sent[key.partition]
            assert len(records) == sent, f"{key}: {sent} records were sent, {len(records)} are there"
            self.cluster.wait_replicas_end(key, len(records))
        self.invariants.check()
        self.cluster.stop()
        failures = self.cluster.simulation.failures
        if failures:
            raise ProgramFailed(f"{failures[0].getErrorMessage()}\n{failures[0].getTraceback()}")
