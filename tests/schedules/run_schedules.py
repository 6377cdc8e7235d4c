"""Fault schedules on real processes: ``python tests/schedules/run_schedules.py --seeds 1-100``.

Three broker processes and a ZooKeeper ensemble of three, each in its own network namespace; idempotent, plain and
transactional producers, an exactly-once pipeline, readers and a consumer group; faults by a schedule that depends only
on the seed.  Requires root, ``iproute2`` and ``nftables``; clocks jump if ``libfaketime`` is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from checks import check_acknowledged, check_copy, check_prefix, check_replicas, check_transactions
from faults import World
from hosts import BROKERS, Hosts
from loads import PARTITIONS, GroupMember, GroupPositions, Pipeline, Transactions, read_all
from schedule import Schedule, Step, plan

from kreplica.testing.histories.record_history import number_of
from tests.support.outside_clients import SteadyProducer, TailingReader
from tests.support.process_cluster import ProcessCluster, wait_until
from tests.support.real_zookeeper import RealZooKeeper
from tests.support.server_process import ServerFailed

SETTINGS = {
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "group.initial.rebalance.delay.ms": 0,
    "zookeeper.session.timeout.ms": 4500,
    "zookeeper.connection.timeout.ms": 60_000,
    "log.segment.bytes": 1 << 20,
}
TOPICS = ("once", "plain", "parts", "copy")
RECORDS_BETWEEN_FAULTS = 100
CONVERGE_S_MAX = 120.0
CREATE_ATTEMPTS_MAX = 5


@dataclass
class Result:
    """Result of one schedule; ``violations`` is empty if all invariants held."""

    schedule: str
    seed: int
    seconds: float = 0.0
    acknowledged: int = 0
    transactions: int = 0
    copied: int = 0
    stall_s: float = 0.0
    client_errors: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class Run:
    """One schedule on its own cluster."""

    def __init__(self, schedule: Schedule, hosts: Hosts, zookeeper: RealZooKeeper, directory: Path) -> None:
        self._schedule = schedule
        self._hosts = hosts
        self._zookeeper = zookeeper
        self._directory = directory
        self._result = Result(str(schedule), schedule.seed)

    def run(self) -> Result:
        """Start the cluster and its clients, inject and end the faults, and check the invariants.

        :return: the result; a cluster or client that does not recover is also a violation.
        """
        started_s = time.monotonic()
        places = self._hosts.broker_places(f"{self._zookeeper.connect_string}/schedule-{self._schedule.seed}")
        cluster = ProcessCluster(self._directory, places, settings=SETTINGS, links=self._hosts.links)
        for broker in cluster.brokers.values():
            broker.settings["log.dirs"] = self._hosts.disk(broker.broker_id) / f"logs-{self._schedule.seed}"
        try:
            cluster.start(CONVERGE_S_MAX)
            for topic in TOPICS:
                _create(cluster, topic)
            self._run_clients(cluster)
            self._result.violations += [f"traceback: {text}" for text in cluster.tracebacks()]
        except Exception as error:
            self._result.violations.append("".join(traceback.format_exception(error))[-3000:])
        finally:
            cluster.kill()
            (self._directory / "brokers.txt").write_text(cluster.output_ends())
        self._result.seconds = round(time.monotonic() - started_s, 1)
        return self._result

    def _run_clients(self, cluster: ProcessCluster) -> None:
        servers, result = cluster.bootstrap_servers, self._result
        transactions = Transactions(servers, "parts", self._schedule.seed)
        pipeline = Pipeline(servers, "once", "copy", self._directory / "pipeline.txt")
        positions = GroupPositions()
        members = [GroupMember(servers, "once", positions) for _ in range(2)]
        plain_settings = {"enable.idempotence": False}
        with (
            SteadyProducer(servers, "once", PARTITIONS, records_per_second=300) as once,
            SteadyProducer(servers, "plain", PARTITIONS, records_per_second=150, settings=plain_settings) as plain,
            TailingReader(servers, "once", PARTITIONS) as tail,
            _run_workers(transactions, pipeline, *members),
        ):
            once.wait_for_more(RECORDS_BETWEEN_FAULTS, 60)
            world = World(self._hosts, self._zookeeper, cluster, "once", Random(self._schedule.seed))
            for step in self._schedule.steps:
                self._inject(world, step, once)
            once.finish()
            plain.finish()
            _finish(transactions)
            tail.finish(once.sent, CONVERGE_S_MAX)
            final = _numbers_by_offset(read_all(servers, "once", "read_committed"))
            result.violations += check_acknowledged(once, final, once=True)
            result.violations += check_prefix(tail.read, final)
            final_plain = _numbers_by_offset(read_all(servers, "plain", "read_committed"))
            result.violations += check_acknowledged(plain, final_plain, once=False)
            self._check_transactions(servers, transactions)
            self._check_copy(servers, final, pipeline)
            self._check_group(members, positions, final)
            result.acknowledged = once.acknowledged_count + plain.acknowledged_count
            result.transactions = transactions.committed
            result.stall_s = round(once.longest_silence_s, 1)
            result.client_errors = dict(transactions.errors)
        for topic in TOPICS:
            result.violations += check_replicas(cluster, topic)

    def _inject(self, world: World, step: Step, producer: SteadyProducer) -> None:
        """Inject one fault, or two at once, end them, and wait until every replica is in sync again."""
        heals = [step.kind.begin(world)]
        if step.second is not None:
            heals.append(step.second.begin(world))
        time.sleep(step.duration_s)
        for heal in reversed(heals):
            heal()
        self._hosts.links.heal()
        world.cluster.start(CONVERGE_S_MAX)
        for topic in TOPICS:
            world.cluster.wait_until_in_sync(topic, CONVERGE_S_MAX)
        producer.wait_for_more(RECORDS_BETWEEN_FAULTS, CONVERGE_S_MAX)

    def _check_transactions(self, servers: str, transactions: Transactions) -> None:
        def received() -> list[list[int]]:
            return [[int(m.value()) for m in rows] for rows in read_all(servers, "parts", "read_committed")]

        def are_transactions_ended() -> bool:
            return not list(check_transactions(transactions, received()))

        # The coordinator aborts a producer's open transaction after its timeout (20 s).
        with contextlib.suppress(AssertionError):
            wait_until(are_transactions_ended, "open transactions to end", 60)
        self._result.violations += check_transactions(transactions, received())

    def _check_copy(self, servers: str, final: list[dict[int, int]], pipeline: Pipeline) -> None:
        expected = sum(map(len, final))

        def copied_count() -> int:
            return sum(map(len, read_all(servers, "copy", "read_committed")))

        with contextlib.suppress(AssertionError):
            wait_until(lambda: copied_count() >= expected, "the pipeline to copy everything", CONVERGE_S_MAX)
        pipeline.finish()
        source = [[m.value() for m in rows] for rows in read_all(servers, "once", "read_committed")]
        target = [[m.value() for m in rows] for rows in read_all(servers, "copy", "read_committed")]
        self._result.copied = sum(map(len, target))
        self._result.violations += check_copy(source, target)

    def _check_group(self, members: list[GroupMember], positions: GroupPositions, final: list[dict[int, int]]) -> None:
        expected = {(partition, offset) for partition, records in enumerate(final) for offset in records}

        def read() -> set[tuple[int, int]]:
            return set().union(*(set(member.read) for member in members))

        with contextlib.suppress(AssertionError):
            wait_until(lambda: read() >= expected, "the group to read everything", CONVERGE_S_MAX)
        _finish(*members)
        missing = len(expected - read())
        if missing:
            self._result.violations.append(f"{missing} records were not delivered to the group")
        self._result.violations += positions.jumps


@contextlib.contextmanager
def _run_workers(*workers: Transactions | Pipeline | GroupMember) -> Iterator[None]:
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            with contextlib.suppress(Exception):
                worker.finish()


def _create(cluster: ProcessCluster, topic: str) -> None:
    """Create a topic; retry if the controller changes or ZooKeeper is slow, as on a busy machine."""
    for attempt in range(CREATE_ATTEMPTS_MAX):
        try:
            cluster.create_topic(topic, PARTITIONS)
            return
        except ServerFailed as error:
            if "TOPIC_ALREADY_EXISTS" in str(error):
                cluster.wait_until_in_sync(topic)
                return
            if attempt == CREATE_ATTEMPTS_MAX - 1:
                raise


def _finish(*workers: Transactions | GroupMember) -> None:
    for worker in workers:
        worker.finishing.set()
    for worker in workers:
        worker.finish()


def _numbers_by_offset(messages: list[list[object]]) -> list[dict[int, int]]:
    return [
        {message.offset(): number_of(message.value(), partition) for message in rows}  # type: ignore[attr-defined]
        for partition, rows in enumerate(messages)
    ]


def run_schedules(seeds: list[int], directory: Path) -> Iterator[Result]:
    """Run the schedules of these seeds one after another, on one set of hosts and one ensemble."""
    with (
        Hosts(directory) as hosts,
        RealZooKeeper(directory / "zookeeper", places=hosts.zookeeper_places(), sync_to_disk=False) as zookeeper,
    ):
        for seed in seeds:
            yield Run(plan(seed), hosts, zookeeper, directory / f"seed-{seed}").run()
            for broker_id in BROKERS:
                hosts.free_disk(broker_id)
                hosts.restore_network(broker_id)
                hosts.set_clock(broker_id, 0)
                for path in hosts.disk(broker_id).iterdir():
                    shutil.rmtree(path)


def parse_seeds(text: str) -> list[int]:
    """Parse ``7`` or ``1-100``."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    """Run the schedules, and print a line of JSON for each and a summary.

    :return: 1 if an invariant was violated.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("1-100"), help="such as 7 or 1-100")
    parser.add_argument("--directory", type=Path, help="directory of the logs (default: a temporary directory)")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="schedules-"))
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that namespaces, disks and brokers are removed
    results = []
    for result in run_schedules(options.seeds, directory):
        print(json.dumps(asdict(result)), flush=True)
        results.append(result)
    broken = [result.seed for result in results if result.violations]
    acknowledged = sum(result.acknowledged for result in results)
    transactions = sum(result.transactions for result in results)
    print(
        f"{len(results)} schedules, {acknowledged:,} acknowledged records, {transactions:,} transactions; "
        f"violations in: {broken or 'none'}"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
