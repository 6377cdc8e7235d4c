"""Cluster under load: three replicas per partition, idempotent producers with acks=all, and consumers.

``storm`` executes a plan of faults on it; scripted tests call single operations.
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
from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.testing.anomalies import report
from kreplica.testing.clients.idempotent_producer import IdempotentProducer, Load
from kreplica.testing.clients.pipelining_producer import PipeliningProducer, Style
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import Machine
from kreplica.testing.cluster.health_check import wait_until_health_agrees
from kreplica.testing.cluster.secured_listeners import SESSION_LIFETIME_MS
from kreplica.testing.cluster.state import active_replicas, is_moving, state_of
from kreplica.testing.ensemble.ensemble import EnsembleOptions
from kreplica.testing.histories.record_history import check_complete, check_nothing_lost
from kreplica.testing.simulator.scheduler import Process
from kreplica.testing.storms.clients.companion import Companion
from kreplica.testing.storms.clients.readers import Readers
from kreplica.testing.storms.clients.side_topics import SideTopics
from kreplica.testing.storms.cluster_run import TOPIC, ClusterRun, ProgramFailed

SAFE = {"segment.bytes": "5000", "min.insync.replicas": "2"}
"""Settings of a topic whose data survives any single failure; its segments roll often."""

SYNCED = {**SAFE, "flush.messages": "1"}
"""Settings of a topic whose data survives if all machines lose power at once."""

SHARED_PRODUCER = "producer-0"
"""Host of the shared producer of all partitions."""

MODERATE = Load(TOPIC, interval_s=0.05)


class ReplicatedRun(ClusterRun):
    """Run of a cluster with a producer and a consumer for each partition of the main topic.

    :param load: load of each partition's producer; its topic and partitions are ignored.
    :param racks: assign brokers to racks, and let consumers read from the nearest replica (KIP-392).
    :param style: client whose error handling the single producer of all partitions imitates; None for one
        simple producer per partition.
    :param ensemble: options of an ensemble of ZooKeeper servers; None for one server without lag.
    :param protected: brokers authenticate to ZooKeeper and protect their znodes.
    :param secured: adds listeners with authentication and ACLs.
    :param session_lifetime_ms: lifetime of authenticated sessions on these listeners.
    :ivar side_topics: topics that are created and deleted during the run; empty until a fault or test creates one.
    :ivar readers: additional readers of the main topic; none until a fault or test starts one.
    :ivar companions: ``side_topics``, ``readers`` and other topics and clients, which must converge as well.
    :ivar maybe_incomplete: brokers whose logs may lack records after a failure of their machine or disk.
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
        ensemble: EnsembleOptions | None = None,
        protected: bool = False,
        secured: bool = False,
        session_lifetime_ms: int = SESSION_LIFETIME_MS,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(
            seed,
            brokers=brokers,
            partitions=partitions,
            configs=configs,
            overrides=overrides,
            racks=racks,
            ensemble=ensemble,
            protected=protected,
            secured=secured,
            session_lifetime_ms=session_lifetime_ms,
            trace=trace,
        )
        self.maybe_incomplete: dict[int, None] = {}
        self._supervisor = Process("supervisor")
        self._brokers_to_run: dict[int, None] = dict.fromkeys(self.cluster.brokers)
        self._ready: dict[int, Broker] = {number: machine.program for number, machine in self.cluster.brokers.items()}
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
        own_load = replace(load, topic=TOPIC, partitions=[partition])
        producer = IdempotentProducer(runtime, client, own_load, self.history)
        producer.start()
        return producer

    def _shared_producer(self, load: Load, style: Style) -> PipeliningProducer:
        def client(partition: int) -> WireClient:
            return self.cluster.leader_client(TOPIC, partition, name=SHARED_PRODUCER)

        runtime = self.cluster.simulation.host(SHARED_PRODUCER).runtime
        own_load = replace(load, topic=TOPIC, partitions=[key.partition for key in self.keys])
        producer = PipeliningProducer(runtime, client, own_load, self.history, style)
        producer.start()
        return producer

    def _consumer(self, partition: int) -> TailingConsumer:
        name = f"consumer-{partition}"
        client = self.cluster.leader_client(TOPIC, partition, name=name)
        reactor = self.cluster.simulation.host(name).reactor
        consumer = TailingConsumer(reactor, client, TOPIC, partition, self.history)
        consumer.start()
        return consumer

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def client_hosts(self) -> list[str]:
        producers = [f"producer-{index}" for index, _ in enumerate(self.producers)]
        consumers = [f"consumer-{key.partition}" for key in self.keys]
        return [*producers, *consumers, *(host for companion in self.companions for host in companion.hosts)]

    def machine(self, broker: int) -> Machine[Broker]:
        return self.cluster.brokers[broker]

    def leader(self, partition: int = 0) -> int:
        return self.cluster.leader_of(TOPIC, partition)

    def in_sync_followers(self, partition: int = 0) -> list[int]:
        """Return the in-sync followers according to ZooKeeper."""
        state = state_of(self.cluster, self.keys[partition])
        return [broker for broker in state.isr if broker != state.leader] if state else []

    def can_lose(self, broker: int) -> bool:
        """Return True if all committed data survives a power loss of this broker now.

        Another complete replica must be in sync.  At most one incomplete replica may be in the ISR: otherwise a
        complete replica could die and leave the ISR before the incomplete ones are detected.  Only the loss of a single
        machine is tolerated.
        """
        self.maybe_incomplete = {other: None for other in self.maybe_incomplete if not self._is_complete(other)}
        incomplete = {*self.maybe_incomplete, broker}
        for key in self._committed_ends():
            state = state_of(self.cluster, key)
            if state is None or not set(state.isr) - incomplete or len(incomplete.intersection(state.isr)) > 1:
                return False
        return True

    def can_lose_power(self, broker: int) -> bool:
        """Return True if a power loss or a failed sync of this broker would leave a replica that can lead.

        If records are synced before they are acknowledged, the broker keeps them, but the controller still treats its
        replicas as incomplete: another replica must lead, and it must not be damaged.
        """
        self.maybe_incomplete = {other: None for other in self.maybe_incomplete if not self._is_complete(other)}
        is_another_incomplete = bool(self.maybe_incomplete.keys() - {broker})
        return self.can_lose(broker) if is_another_incomplete else self.synced or self.can_lose(broker)

    def _is_complete(self, broker: int) -> bool:
        """Return True if the broker's in-sync replicas hold all committed records, and none is damaged."""
        machine = self.machine(broker)
        if self.is_damaged(broker) or machine.host.disk.is_failing:
            return False
        for key, end in self._committed_ends().items():
            state = state_of(self.cluster, key)
            if state is None:
                return False  # unknown while ZooKeeper is down
            if broker not in state.isr:
                continue
            partition = machine.program.partitions.get(key) if machine.running else None
            if partition is None or not partition.role.is_active:
                return False
            if partition.log.log_end_offset < end:
                return False
        return True

    def is_copied(self, broker: int, partition: str) -> bool:
        """Return True if another in-sync replica has all records of this replica, or if this replica is not active.

        The tail of a leader's log may not be replicated yet.  If a bit of it flips and only the leader remains in the
        ISR, followers cannot copy the damaged batch, and the damaged log is kept (decision 11).
        """
        for key in self.keys:
            if str(key) != partition:
                continue
            state = state_of(self.cluster, key)
            ends = {other: replica.log.log_end_offset for other, replica in active_replicas(self.cluster, key)}
            follower_ends = [ends[other] for other in (state.isr if state else ()) if other != broker and other in ends]
            return broker not in ends or max(follower_ends, default=-1) >= ends[broker]
        return False

    def _committed_ends(self) -> dict[TopicPartition, int]:
        """Return the end of the committed records of each partition, according to the invariants."""
        keys = [*self.keys, *(key for companion in self.companions for key in companion.keys)]
        return {key: self.invariants.committed[key].end_offset for key in keys}

    # --- progress ----------------------------------------------------------------------------------------------------

    def run_until_acknowledged(self, count: int, timeout_s: float = 120.0) -> None:
        """Run until ``count`` more records are acknowledged."""
        target_count = self.history.acked_count + count
        self.cluster.run_until(lambda: self.history.acked_count >= target_count, timeout_s)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.cluster.simulation.step()

    def settle(self, timeout_s: float = 180.0) -> None:
        """Run until reassignments are complete, every partition has a leader and all replicas are in sync."""
        self.cluster.run_until(lambda: not is_moving(self.cluster, TOPIC), timeout_s)
        self.cluster.wait_in_sync(TOPIC, [key.partition for key in self.keys], timeout_s)
        self.maybe_incomplete.clear()

    def _wait_undamaged(self, timeout_s: float = 180.0) -> None:
        """Run until all flipped bits are detected, and the damaged replicas have been fetched again."""
        until_s = self.cluster.simulation.now_s + timeout_s
        while damaged := [broker for broker in self.cluster.brokers if self.is_damaged(broker)]:
            assert self.cluster.simulation.now_s < until_s, f"brokers with damaged segments: {damaged}"
            self.cluster.run(1.0)
        self.settle()

    def is_damaged(self, broker: int) -> bool:
        return any(path.endswith(LOG_SUFFIX) for path in self.machine(broker).host.disk.damaged_files())

    # --- machines ----------------------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        self.note(f"broker {broker} is killed")
        self._brokers_to_run.pop(broker, None)
        self.machine(broker).kill()

    def lose_power(self, broker: int, random: Random | None = None) -> None:
        """Cut the power of a broker's machine.

        :param random: determines how much unsynced data is lost; None for the host's generator.
        """
        self.note(f"broker {broker} loses power")
        self._brokers_to_run.pop(broker, None)
        self.machine(broker).power_loss(random)
        self.maybe_incomplete[broker] = None

    def launch(self, broker: int) -> None:
        """Start a broker without waiting; a failed start is retried after one second, as a supervisor would do."""
        self._brokers_to_run[broker] = None
        if self.machine(broker).running:
            return
        self.note(f"broker {broker} starts")
        starting = self.machine(broker).start()
        program = self.machine(broker).program
        starting.addCallbacks(lambda _: self._started(broker, program), lambda f: self._not_started(broker, program, f))

    def _started(self, broker: int, program: Broker) -> None:
        self._ready[broker] = program

    def _not_started(self, broker: int, program: Broker, failure: Failure) -> None:
        self.note(f"broker {broker} did not start: {failure.getErrorMessage()}")
        if not failure.check(KreplicaError, OSError):
            self.record_failure(failure)
        if broker in self._brokers_to_run and self.machine(broker).running and self.machine(broker).program is program:
            self.machine(broker).kill()
            self.cluster.simulation.scheduler.post(self._supervisor, 1.0, self._launch_again, broker)

    def _launch_again(self, broker: int) -> None:
        if broker in self._brokers_to_run:
            self.launch(broker)

    def start(self, *brokers: int) -> None:
        """Start brokers in parallel, and wait until all of them serve requests."""
        for broker in brokers:
            self.launch(broker)
        self.cluster.run_until(lambda: all(self.serves(broker) for broker in brokers), timeout_s=120.0)

    def serves(self, broker: int) -> bool:
        machine = self.machine(broker)
        return machine.running and self._ready.get(broker) is machine.program

    def stop(self, broker: int) -> None:
        self.cluster.run_until(self.shut_down(broker), timeout_s=120.0)

    def shut_down(self, broker: int) -> Deferred[None]:
        """Stop a broker gracefully, without waiting.

        :return: fires when it has ended; never if it is killed first.
        """
        self.note(f"broker {broker} is shut down")
        self._brokers_to_run.pop(broker, None)
        return self.machine(broker).stop()

    def launch_zookeeper(self) -> None:
        ensemble = self.cluster.ensemble
        if ensemble is not None:
            ensemble.start().addErrback(self.record_failure)
        elif not self.cluster.zookeeper.running:
            self.note("the ZooKeeper server starts")
            self.cluster.zookeeper.start().addErrback(self.record_failure)

    def launch_server(self, number: int) -> None:
        """Start a server of the ensemble without waiting."""
        assert self.cluster.ensemble is not None, "the cluster has no ensemble"
        if not self.cluster.ensemble.is_running(number):
            self.note(f"ZooKeeper server {number} starts")
            self.cluster.ensemble.start_server(number).addErrback(self.record_failure)

    def start_all(self) -> None:
        """Start the ZooKeeper server and all brokers that are not running."""
        self.launch_zookeeper()
        self.start(*self.cluster.brokers)

    # --- end of the run ----------------------------------------------------------------------------------------------

    def converge(self) -> None:
        """End all faults; check that the cluster recovers and all records are acknowledged and read once, in order."""
        self.note("all faults end")
        self.network.heal()
        if self.cluster.ensemble is not None:
            self.cluster.ensemble.ensemble.heal()
        self.start_all()
        self.settle()
        self._wait_undamaged()
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
        """Check the content of each partition, and stop the cluster."""
        self.settle()
        assert not self.history.contradictions, "; ".join(self.history.contradictions)
        report(self.history.observations).check()
        resets = [producer.resets for producer in self.producers]
        assert not any(resets), f"brokers had lost the state of producers: {resets}"
        for key in self.keys:
            client = self.cluster.leader_client(TOPIC, key.partition, name="reader")
            records = self.cluster.run_until(client.read_all(TOPIC, key.partition), timeout_s=120.0)
            self.cluster.run_until(client.close())
            check_complete(records, key.partition)
            check_nothing_lost(records, self.history.acked[key.partition], "acknowledged")
            check_nothing_lost(records, self.history.seen[key.partition], "read")
            sent = self.history.sent[key.partition]
            assert len(records) == sent, f"{key}: {sent} records were sent, the log has {len(records)}"
            self.cluster.wait_log_end_offsets(key, len(records))
        wait_until_health_agrees(self.cluster)
        self.invariants.check()
        self.cluster.stop()
        failures = self.cluster.simulation.failures
        if failures:
            raise ProgramFailed(f"{failures[0].getErrorMessage()}\n{failures[0].getTraceback()}")
