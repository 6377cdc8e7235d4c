"""Each fault is reported with its cause by health, cluster, broker, explanation, metric and timeline until it ends."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from why_scenes import Scene

from kreplica.admin.cluster_state.counts import CachedCounts
from kreplica.admin.health.cluster_faults import under_min_isr_fault, under_replicated_fault
from kreplica.admin.health.cluster_health import ClusterHealth
from kreplica.admin.health.faults import BROKER_KINDS, BROKER_ONLY_KINDS, CLUSTER_KINDS, KINDS
from kreplica.admin.http.api import Call
from kreplica.admin.peers.registrations import REUSE_SECONDS
from kreplica.model import TopicPartition
from kreplica.runtime.stalls import StallWatch
from kreplica.service.metrics.broker_metrics import BrokerMetrics
from kreplica.service.metrics.directory_faults import directory_faults
from kreplica.service.metrics.health_watch import HealthWatch
from kreplica.service.metrics.local_health import LocalHealth, LocalReport
from kreplica.testing.cluster.health_check import wait_until_health_agrees
from kreplica.testing.simulator.disk import CAPACITY_BYTES
from kreplica.testing.simulator.disk_faults import Operation
from kreplica.testing.simulator.offload import DELAY_S
from kreplica.testing.simulator.simulation import DATA_DIRECTORY
from kreplica.zookeeper import OperationTimeout
from tests.support.broker_scene import batch

LOGS = f"{DATA_DIRECTORY}/logs"
SYNCED = {"flush.messages": "1", "segment.bytes": "5000"}

LEADER, FOLLOWER, OTHER = 2, 3, 1
"""Brokers of ``orders-0``; the controller has no replica."""

End = Callable[[], Any]


class HealthScene(Scene):
    """A scene with methods that wait until a fault is reported or has ended."""

    def __init__(self, **more):
        super().__init__(**more)
        self.pending_produce = None

    def disk(self, broker):
        return self.cluster.brokers[broker].host.disk

    def send(self, count=1):
        """Send records without waiting for an acknowledgement."""
        leader = self.cluster.leader_client("orders", 0, name="sender")
        self.pending_produce = Deferred.fromCoroutine(leader.produce("orders", 0, batch(*[b"x" * 1000] * count)))
        self.pending_produce.addErrback(lambda _: None)
        self.cluster.run(2)

    def health(self, via=LEADER):
        return self.apis[via].document("GET", "/v1/health")

    def fault(self, kind, via=LEADER, timeout_s=60.0):
        """Run until a fault of this kind is reported, and return it."""
        until_s = self.cluster.simulation.now_s + timeout_s
        while True:
            for number, machine in self.cluster.brokers.items():
                if machine.running and not machine.host.is_paused:
                    assert self.apis[number]
                    self.run(Deferred.fromCoroutine(self.apis.watches[number].check()))
            health = self.health(via)
            found = [fault for fault in health["faults"] if fault["kind"] == kind]
            if found:
                return found[0]
            assert self.cluster.simulation.now_s < until_s, (kind, health)
            self.cluster.run(1)

    def wait_ended(self, kind, via=LEADER, timeout_s=150.0):
        """Run until no fault of this kind is reported."""
        until_s = self.cluster.simulation.now_s + timeout_s
        while any(fault["kind"] == kind for fault in self.health(via)["faults"]):
            assert self.cluster.simulation.now_s < until_s, self.health(via)
            self.cluster.run(2)
        for number, machine in self.cluster.brokers.items():
            if machine.running:
                assert self.apis[number]
                self.run(Deferred.fromCoroutine(self.apis.watches[number].check()))

    def restart(self, broker):
        if self.cluster.brokers[broker].running:
            self.cluster.brokers[broker].kill()
        self.run(self.cluster.brokers[broker].start(), 120.0)
        self.cluster.wait_in_sync("orders", [0])

    def metric_of_api(self, broker, kind):
        """Return the number of faults of this kind in a broker's metrics."""
        program = self.cluster.brokers[broker].program

        async def collect():
            metrics = BrokerMetrics(program, self.apis.stalls_of(broker), self.apis.health_of(broker))
            return [each async for each in metrics.families() if each.name == "kreplica_faults"]

        (family,) = self.run(Deferred.fromCoroutine(collect()))
        return {sample.labels[0]: sample.value for sample in family.samples}[kind]

    def timeline(self, kind, via=OTHER):
        entries = self.apis[via].document("GET", "/v1/timeline")["entries"]
        return [entry for entry in entries if entry["kind"] == kind]


# --- faults, each as a function that begins it and returns a function that ends it ------------------------------------


def full_disk(scene: HealthScene) -> End:
    disk = scene.disk(LEADER)
    total, free = disk.usage(DATA_DIRECTORY)
    disk.capacity_bytes = total - free
    scene.send()
    return lambda: setattr(disk, "capacity_bytes", CAPACITY_BYTES)


def full_disk_of_a_follower(scene: HealthScene) -> End:
    disk = scene.disk(FOLLOWER)
    total, free = disk.usage(DATA_DIRECTORY)
    disk.capacity_bytes = total - free
    scene.send()
    return lambda: setattr(disk, "capacity_bytes", CAPACITY_BYTES)


def failed_disk(scene: HealthScene) -> End:
    repair = scene.disk(FOLLOWER).fail("write", f"{LOGS}/*", errno.EIO)
    scene.send()

    def end():
        repair()
        scene.restart(FOLLOWER)

    return end


def damaged_log(scene: HealthScene) -> End:
    """Damage the leader's log while the follower is down, so that it is the only copy."""
    scene.produce(5)
    scene.cluster.run(2)
    scene.cluster.brokers[FOLLOWER].kill()
    scene.cluster.run(20)
    scene.produce(5)
    disk = scene.disk(LEADER)
    (path,) = [f"{LOGS}/orders-0/{name}" for name in disk.list_directory(f"{LOGS}/orders-0") if name.endswith(".log")]
    scene.cluster.run(10)
    disk.flip_bit(path, 1000)

    def end():
        disk.flip_bit(path, 1000)
        scene.cluster.run(120)
        scene.restart(FOLLOWER)

    return end


def few_in_sync(scene: HealthScene) -> End:
    scene.cluster.brokers[FOLLOWER].kill()
    scene.cluster.run(20)
    return lambda: scene.restart(FOLLOWER)


def lost_zookeeper(scene: HealthScene) -> End:
    network = scene.cluster.simulation.network
    network.cut("coordinator", f"broker-{LEADER}")
    return lambda: network.heal("coordinator", f"broker-{LEADER}")


def slow_disk(scene: HealthScene) -> End:
    offload = scene.cluster.brokers[LEADER].host.offload
    offload.delay_s = (2.5, 3.0)
    scene.send()
    return lambda: setattr(offload, "delay_s", DELAY_S)


def throttled_plan(scene: HealthScene) -> End:
    for _ in range(6):
        scene.produce(500, 1000)
    plan = scene.move(throttle_bytes_per_second=1000)
    return lambda: scene.apis[FOLLOWER].document("POST", f"/v1/plans/{plan}/cancel", {"rollback": False})


def cut_link(scene: HealthScene) -> End:
    network = scene.cluster.simulation.network
    network.cut(f"broker-{LEADER}", f"broker-{FOLLOWER}")
    return lambda: network.heal(f"broker-{LEADER}", f"broker-{FOLLOWER}")


def no_descriptors(scene: HealthScene) -> End:
    scene.produce(3)
    repair = scene.disk(LEADER).fail("open", f"{LOGS}/orders-0/*", errno.EMFILE)
    scene.send()
    scene.send()
    return repair


def gone_broker(scene: HealthScene) -> End:
    scene.cluster.brokers[FOLLOWER].kill()
    scene.cluster.run(20)
    return lambda: scene.restart(FOLLOWER)


def paused_broker(scene: HealthScene) -> End:
    host = scene.cluster.brokers[FOLLOWER].host
    host.pause()
    return host.resume


def no_leader(scene: HealthScene) -> End:
    for broker in (FOLLOWER, LEADER):
        scene.cluster.brokers[broker].kill()
        scene.cluster.run(20)
    return lambda: scene.restart(LEADER)


def no_controller(scene: HealthScene) -> End:
    """Disconnect all brokers from ZooKeeper, and delete the controller from the metadata of one of them."""
    scene.cluster.zookeeper.kill()
    scene.cluster.brokers[OTHER].kill()
    scene.cluster.run(20)
    metadata = scene.cluster.brokers[LEADER].program.metadata
    metadata.controller_id = -1

    def end():
        scene.run(scene.cluster.zookeeper.start())
        scene.run(scene.cluster.brokers[OTHER].start(), 120.0)

    return end


def expired_certificate(scene: HealthScene) -> End:
    scene.add_certificate(LEADER, "SASL_SSL", days=-2)
    return lambda: scene.add_certificate(LEADER, "SASL_SSL", days=300)


def expiring_certificate(scene: HealthScene) -> End:
    scene.add_certificate(LEADER, "SASL_SSL", days=3)
    return lambda: scene.add_certificate(LEADER, "SASL_SSL", days=300)


def no_space_for_a_replica(scene: HealthScene) -> End:
    disk = scene.disk(LEADER)
    total, free = disk.usage(DATA_DIRECTORY)
    disk.capacity_bytes = total - free
    creating = Deferred.fromCoroutine(scene.cluster.client().create_topic("new", assignment=((LEADER,),)))
    creating.addErrback(lambda _: None)
    scene.cluster.run(5)

    def end():
        disk.capacity_bytes = CAPACITY_BYTES
        scene.cluster.run(60)

    return end


@dataclass(frozen=True)
class Case:
    """A fault, and where it must be reported.

    :param broker: the broker that has the fault; None for a fault of the cluster.
    :param words: parts of the sentence that reports it: the object and the cause.
    :param asked: the broker whose admin API is used.
    :param state: the state that the explanation of ``orders-0`` has; None if the fault does not affect ``orders-0``.
    """

    begin: Callable[[HealthScene], End]
    kind: str
    broker: int | None
    words: tuple[str, ...]
    via: int = LEADER
    state: str | None = None
    configs: dict[str, str] | None = None


CASES = (
    Case(full_disk, "full_disk", 2, ("Broker 2", f"{LOGS} is full"), via=FOLLOWER, state="full_disk"),
    Case(full_disk_of_a_follower, "full_disk", 3, ("Broker 3", f"{LOGS} is full")),
    Case(failed_disk, "failed_disk", 3, ("Broker 3", LOGS, "EIO, Input/output error"), state="under_replicated"),
    Case(damaged_log, "damaged_log", 2, ("Broker 2", "orders-0", "position"), state="damaged_log"),
    Case(few_in_sync, "under_min_isr", None, ("orders-0", "acks=all are rejected"), state="under_min_isr",
         configs={"min.insync.replicas": "2"}),
    Case(gone_broker, "under_replicated", None, ("orders-0", "under-replicated"), state="under_replicated"),
    Case(lost_zookeeper, "zookeeper_lost", 2, ("Broker 2", "no connection to ZooKeeper")),
    Case(slow_disk, "slow_disk", 2, ("Broker 2", LOGS, " s in the last minute"), state="healthy", configs=SYNCED),
    Case(throttled_plan, "throttled_replicas", 1, ("Broker 1", "orders-0", "1,000 bytes per second"), state="moving"),
    Case(cut_link, "leader_unreachable", 3, ("Broker 3", "orders-0", "from broker 2"), via=OTHER),
    Case(no_descriptors, "rejected_appends", 2, ("Broker 2", "orders-0", "EMFILE"), state="rejected_appends",
         configs={"segment.bytes": "4000"}),
    Case(no_space_for_a_replica, "unopened_replicas", 2, ("Broker 2", "new-0"), via=FOLLOWER),
    Case(gone_broker, "broker_gone", 3, ("Broker 3", "is not registered")),
    Case(paused_broker, "broker_silent", 3, ("Broker 3", "does not respond")),
    Case(no_leader, "no_leader", None, ("orders-0", "has no leader"), via=OTHER, state="offline"),
    Case(no_controller, "no_controller", None, ("No broker is the controller",)),
    Case(expired_certificate, "certificate_expired", 2, ("Broker 2", "SASL_SSL expired 2 days ago")),
    Case(expiring_certificate, "certificate_expiring", 2, ("Broker 2", "SASL_SSL expires in")),
)  # fmt: skip


def test_every_kind_of_fault_has_a_case():
    assert {case.kind for case in CASES} | set(BROKER_ONLY_KINDS) == KINDS.keys()
    assert set(BROKER_KINDS) | set(CLUSTER_KINDS) == KINDS.keys()


@pytest.mark.parametrize("case", CASES, ids=[case.begin.__name__ + "-" + case.kind for case in CASES])
def test_a_fault_is_named_everywhere_and_ends(case):
    """All sources report a fault with the same sentence, and none of them does after it has ended."""
    scene = HealthScene(configs=case.configs)
    api = scene.apis[case.via]
    assert scene.health(case.via)["summary"].startswith("All is well: 3 brokers")
    end = case.begin(scene)
    fault = scene.fault(case.kind, case.via)
    assert all(words in fault["text"] for words in case.words), fault
    cluster = api.document("GET", "/v1/cluster")["health"]
    assert fault["text"] in [each["text"] for each in cluster["faults"]] or case.kind in ("slow_disk",), cluster
    assert cluster["state"] == ("bad" if any(f["severity"] == "bad" for f in cluster["faults"]) else "warn")
    if case.broker is not None:
        assert fault["subject"] == f"broker {case.broker}"
        assert fault["why"] == f"/v1/why/brokers/{case.broker}"
        row = api.document("GET", f"/v1/brokers/{case.broker}")
        assert case.kind in [each["kind"] for each in row["faults"]]
        rows = api.document("GET", "/v1/brokers", fields="faults")["brokers"]
        assert row["faults"] in [each["faults"] for each in rows if each["broker_id"] == case.broker]
        why = scene.why(f"brokers/{case.broker}", via=case.via)
        assert all(words in why["summary"] for words in case.words), why["summary"]
    if case.kind in BROKER_KINDS and case.broker is not None:
        assert scene.metric_of_api(case.broker, case.kind) >= 1
        if case.kind != "zookeeper_lost":
            begun = scene.timeline("fault_started", case.via)
            assert case.kind in [entry["details"]["fault"] for entry in begun], begun
    if case.state is not None:
        why = scene.why(via=case.via)
        assert why["state"] == case.state, why
        if case.broker is not None:
            assert all(words in str(why) for words in case.words), why
    end()
    scene.wait_ended(case.kind, case.via)
    if case.kind in BROKER_KINDS and case.kind not in ("zookeeper_lost", "under_replicated", "failed_disk"):
        ended = scene.timeline("fault_ended", case.via)
        assert case.kind in [entry["details"]["fault"] for entry in ended], ended


def test_a_stall_is_named_by_its_broker_only():
    """Stalls appear only in their broker's explanation: they are not faults, because busy machines always have some."""
    scene = HealthScene()
    scene.apis.stall(LEADER, "Metadata v4 (90000 bytes) from client 'a' at 10.0.0.8:1", 0.24)
    scene.cluster.run(1)
    assert scene.why(f"brokers/{LEADER}", via=FOLLOWER)["state"] == "stalling"
    assert scene.metric_of_api(LEADER, "stalling") == 1
    assert scene.health()["faults"] == []
    assert scene.why()["state"] == "healthy"


def failed_directory(path):
    """Return the fault of a failed log directory without replicas."""
    directory = SimpleNamespace(path=path, offline=OSError(errno.EIO, "Input/output error"), logs={})
    (fault,) = directory_faults(LEADER, directory, {})
    return fault


FIRST, SECOND = (TopicPartition("orders", number) for number in range(2))


KEYS = [TopicPartition("orders", number) for number in range(3)]


@pytest.mark.parametrize(
    ("rejecting", "consequence"),
    [
        (0, "all records can be written and read, but fewer failures are tolerated."),
        (1, "all records can be written and read in 2 of them, but fewer failures are tolerated."),
        (3, "records can be read, but fewer failures are tolerated."),
    ],
)
def test_consequence_of_missing_replicas(rejecting, consequence):
    """The fault does not say that records can be written to partitions that reject them."""
    assert under_replicated_fault(KEYS, KEYS[:rejecting]).text.endswith(f"): {consequence}")


@pytest.mark.parametrize(
    ("checks", "recorded"),
    [
        (
            [["/a"], ["/a", "/b"], ["/b"], []],
            [("fault_started", "/a"), ("fault_started", "/b"), ("fault_ended", "/a"), ("fault_ended", "/b")],
        ),
        ([[[FIRST]], [[FIRST, SECOND]], [[SECOND]], []], [("fault_started", "orders-0"), ("fault_ended", "orders-1")]),
    ],
    ids=["two directories", "one kind of fault with changing partitions"],
)
def test_timeline_has_one_entry_for_each_begin_and_end(checks, recorded):
    """Faults of two directories are separate entries, and one fault whose partitions change is one entry."""
    entries = []
    local = SimpleNamespace()
    history = SimpleNamespace(record=lambda kind, subject, text, **_: entries.append((kind, text)))
    watch = HealthWatch(Clock(), local, history)
    for each in checks:
        faults = [failed_directory(of) if isinstance(of, str) else under_min_isr_fault(of) for of in each]
        local.report = partial(succeed, LocalReport(faults))
        assert Deferred.fromCoroutine(watch.check()).called
    assert [kind for kind, _ in entries] == [kind for kind, _ in recorded]
    assert all(name in text for (_, text), (_, name) in zip(entries, recorded, strict=True)), entries


def test_certificates_of_two_listeners_are_two_entries():
    scene = HealthScene()
    for listener in ("SASL_SSL", "SSL"):
        scene.add_certificate(LEADER, listener, days=-2)
        scene.cluster.run(1)
        scene.fault("certificate_expired")
    begun = [entry["text"] for entry in scene.timeline("fault_started", LEADER)]
    assert len(begun) == 2
    assert ["SASL_SSL" in text for text in begun] == [False, True]


OPERATIONS = get_args(Operation)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failing_operation_of_a_disk_is_named(operation):
    """Whichever disk operation fails, the broker's explanation names the directory and the error."""
    scene = HealthScene(configs={**SYNCED, "file.delete.delay.ms": "0"})
    scene.run(scene.cluster.client().create_topic("old", assignment=((3, 2),)))
    scene.produce(3)
    scene.disk(FOLLOWER).fail(operation, f"{LOGS}/*", errno.EIO)
    if operation in ("rename", "remove"):
        deleting = Deferred.fromCoroutine(scene.cluster.client().delete_topic("old"))
        deleting.addErrback(lambda _: None)
    for _ in range(3):
        scene.send(3)
    kinds = ("failed_disk", "damaged_log")
    until_s = scene.cluster.simulation.now_s + 120
    while (why := scene.why(f"brokers/{FOLLOWER}", via=OTHER))["state"] not in kinds:
        assert scene.cluster.simulation.now_s < until_s, why
        scene.send(3)
    assert LOGS in why["summary"]
    assert "Input/output error" in why["summary"]


def test_figures_agree_while_brokers_fail():
    """While brokers fail, metadata, leaders, metrics and ZooKeeper agree on all figures."""
    scene = HealthScene(assignment=((2, 3), (3, 2), (1, 3), (2, 1)), configs={"min.insync.replicas": "2"})
    scene.run(scene.cluster.client().create_topic("single", assignment=((3,), (1,))))
    wait_until_health_agrees(scene.cluster)
    for broker in (3, 2):
        scene.cluster.brokers[broker].kill()
        scene.cluster.run(20)
        wait_until_health_agrees(scene.cluster)
        figures = scene.health(1)["figures"]
        cluster = scene.apis[1].document("GET", "/v1/cluster")
        for name in ("offline_partitions", "under_min_isr_partitions", "under_replicated_partitions"):
            assert cluster[name] == figures[name]
        names = [*(f"orders/{number}" for number in range(4)), "single/0", "single/1"]
        states = [scene.why(f"partitions/{name}", via=1)["state"] for name in names]
        assert states.count("offline") == figures["offline_partitions"]
        assert states.count("under_min_isr") == figures["under_min_isr_partitions"]
        rows = scene.apis[1].document("GET", "/v1/brokers")["brokers"]
        assert sum(row["under_replicated_leaders"] for row in rows) == figures["under_replicated_partitions"]
        live = scene.apis[1].document("GET", "/v1/live-metrics")["brokers"]
        for name in ("under_replicated", "under_min_isr"):
            assert sum(row[name] or 0 for row in live) == figures[f"{name}_partitions"]
        lists = scene.apis[1].document("GET", "/v1/partitions", state="offline")["partitions"]
        assert len(lists) == figures["offline_partitions"]


def test_a_silent_broker_delays_a_report_by_a_second_at_most():
    scene = HealthScene()
    scene.health()
    paused_broker(scene)
    before_s = scene.cluster.simulation.now_s
    scene.health()
    assert scene.cluster.simulation.now_s - before_s <= 1.1


def test_brokers_are_not_silent_because_zookeeper_does_not_respond():
    """Without registrations, no broker can be queried, and the report says that their faults are not known."""

    async def request(*arguments, **more):
        raise OperationTimeout("/brokers/ids")

    scene = HealthScene()
    broker, others = scene.cluster.brokers[LEADER].program, SimpleNamespace(request=request)
    counts = CachedCounts(broker.runtime.reactor, broker.metadata, broker.dynamic_settings.min_insync_replicas)
    local = LocalHealth(broker, StallWatch(Clock()))
    health = ClusterHealth(broker.runtime.reactor, LEADER, broker.metadata, counts, local, others)
    report = scene.run(Deferred.fromCoroutine(health.current(Call())))
    assert report.faults == []
    assert [problem.partition(" (")[0] for problem in report.problems] == [
        f"the faults of broker {broker} are unknown: ZooKeeper cannot be read" for broker in (OTHER, FOLLOWER)
    ]


@pytest.mark.parametrize("known", [True, False], ids=["read before", "never read"])
def test_brokers_and_cluster_answer_while_zookeeper_is_unreachable(known):
    """The last known state is returned within two seconds, with a notice once the loss of ZooKeeper is detected."""
    scene = HealthScene()
    if known:
        scene.apis[LEADER].document("GET", "/v1/brokers")
    lost_zookeeper(scene)
    scene.cluster.run(REUSE_SECONDS)
    for _ in range(4):
        for path in ("/v1/brokers", f"/v1/brokers/{LEADER}", "/v1/cluster", "/v1/health"):
            before_s = scene.cluster.simulation.now_s
            document = scene.apis[LEADER].document("GET", path)
            assert scene.cluster.simulation.now_s - before_s < 2, path
            if path.startswith("/v1/brokers"):
                assert "ZooKeeper" in " ".join(document["problems"])
        assert [row["live"] for row in scene.apis[LEADER].document("GET", "/v1/brokers")["brokers"]][1:] == [True, True]
        scene.cluster.run(5)
    assert document["faults"][0]["kind"] == "zookeeper_lost"
