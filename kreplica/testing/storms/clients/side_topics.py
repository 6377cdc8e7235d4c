"""Topics that are created, extended, reduced and deleted during a storm, with clients for each of their partitions.

The partitions are read from ZooKeeper after each of its events, so that clients start and stop with them.  At the
end, the results of the administrators' requests are compared with the topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.storage.formats.names import parse_directory_name
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.testing.cluster.state import active_replicas, assignment_of, is_in_sync, is_moving, replicas_of, znode
from kreplica.testing.simulator.scheduler import Process
from kreplica.testing.simulator.simulation import DATA_DIRECTORY
from kreplica.testing.storms.clients.side_partition import Incarnation, SidePartition, incarnations_of
from kreplica.testing.storms.cluster_run import DELETE_DELAY_MS, ClusterRun
from kreplica.testing.storms.expected_state import Expected, RequestResult

ZOOKEEPER_HOST = "coordinator"
ADMINISTRATOR = "administrator"
UNKNOWN_RESULT = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors of requests that may have taken effect."""

DELETED_CHECKED_MAX = 3
"""Maximum number of deleted partitions that are fetched at the end."""

Changes = Mapping[Expected[Any], Any]
"""The new values that a request sets."""

SETTINGS = ("segment.bytes", "min.insync.replicas", "flush.messages", "retention.bytes")
"""Topic settings that are changed."""


class SideTopic:
    """Expected state of the successive topics with the same name.

    :ivar settings: expected values of ``SETTINGS``.
    :ivar partitions_min: minimum number of partitions.
    :ivar may_shrink: True if a reduction was ever requested; then the number of partitions is unknown.
    :ivar current: the existing partitions.
    :ivar data: last seen content of the topic's znode.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.exists = Expected(False)
        self.settings: dict[str, Expected[str | None]] = {setting: Expected(None) for setting in SETTINGS}
        self.partitions_min = 1
        self.may_shrink = False
        self.current: dict[Incarnation, None] = {}
        self.data: bytes | None = None


class SideTopics:
    """The run's companion that manages its side topics; it watches ZooKeeper once a side topic is requested."""

    def __init__(self, run: ClusterRun) -> None:
        self._run = run
        self._cluster = run.cluster
        self._topics: dict[str, SideTopic] = {}
        self._partitions: dict[Incarnation, SidePartition] = {}
        self._pending_count = 0
        self._finishing = False

    # --- state -------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> SideTopic:
        """Return the topic with this name, which need not exist in the cluster."""
        if not self._topics:
            self._watch()
        return self._topics.setdefault(name, SideTopic(name))

    @property
    def existing(self) -> list[SideTopic]:
        """Topics that exist according to ZooKeeper."""
        return [topic for topic in self._topics.values() if topic.current]

    @property
    def keys(self) -> list[TopicPartition]:
        """The existing partitions."""
        return [incarnation.key for topic in self._topics.values() for incarnation in topic.current]

    @property
    def hosts(self) -> list[str]:
        return [*self._topics, ADMINISTRATOR] if self._topics else []

    def current(self) -> Iterator[SidePartition]:
        for topic in self._topics.values():
            for incarnation in topic.current:
                yield self._partitions[incarnation]

    def mark_trimmed(self, name: str) -> None:
        """Expect that old records of a topic may be deleted."""
        for incarnation in self._topics[name].current:
            self._partitions[incarnation].trimmed = True

    def _watch(self) -> None:
        scheduler = self._cluster.simulation.scheduler
        previous_hook = scheduler.after_event

        def after_event(process: Process) -> None:
            if process.name.startswith(ZOOKEEPER_HOST):
                self._update()
            if previous_hook is not None:
                previous_hook(process)

        scheduler.after_event = after_event

    def _update(self) -> None:
        """Start and stop clients if the znodes of topics have changed."""
        machine = self._cluster.zookeeper
        if self._finishing or not machine.running or machine.program.serving is None:
            return
        for topic in self._topics.values():
            node = znode(self._cluster, znodes.topic_path(topic.name))
            data = None if node is None else node.data
            if data is not topic.data:
                topic.data = data
                self._update_partitions(topic)

    def _update_partitions(self, topic: SideTopic) -> None:
        assignment = assignment_of(self._cluster, topic.name)
        previous = topic.current
        current = dict.fromkeys(incarnations_of(assignment) if assignment else ())
        if znode(self._cluster, znodes.delete_topic_path(topic.name)) is not None:
            # A crashed ZooKeeper server may have lost a deletion that was not acknowledged.  The replicas are already
            # deleted then, and the topic will be deleted again.
            current = {item: None for item in current if item in previous or item not in self._partitions}
        topic.current = current
        for incarnation in previous:
            if incarnation not in current:
                self._run.note(f"{self._partitions[incarnation]} is deleted")
                self._run.invariants.forget(incarnation.key)
                self._partitions[incarnation].abandon()
        for incarnation in current:
            if incarnation not in previous:
                self._add(topic, incarnation)

    def _add(self, topic: SideTopic, incarnation: Incarnation) -> None:
        partition = self._partitions.get(incarnation)
        if partition is None:
            label = len(self._partitions)
            partition = SidePartition(self._run, incarnation, label, self._exists, self._may_be_late)
            self._partitions[incarnation] = partition
        if topic.settings["retention.bytes"].values != {None: None}:
            partition.trimmed = True
        self._run.note(f"{partition} exists")
        self._run.invariants.add(incarnation.key, partition.history, incarnation.topic_id, partition.committed)
        partition.start()

    def _exists(self, incarnation: Incarnation) -> bool:
        return incarnation in self._topics[incarnation.key.topic].current

    def _may_be_late(self, value: bytes) -> bool:
        return any(partition.may_be_late(value) for partition in self._partitions.values())

    # --- requests ----------------------------------------------------------------------------------------------------

    def administrator(self, random: Random) -> WireClient:
        """Return a client of the controller, or of a random broker if no controller is known."""
        controller = self._cluster.controller()
        return self._client_of(controller if controller is not None else random.choice(sorted(self._cluster.brokers)))

    def _client_of(self, broker: int) -> WireClient:
        host = self._cluster.simulation.host(ADMINISTRATOR)
        return WireClient(host.reactor, f"broker-{broker}", BROKER_PORT, client_id=ADMINISTRATOR)

    def send(
        self, client: WireClient, request: Awaitable[object], changes: Changes | None = None
    ) -> Deferred[RequestResult]:
        """Send an administrator's request, and update the expected state according to its result."""
        expected = list((changes or {}).items())
        for state, value in expected:
            state.requested(value)
        self._pending_count += 1
        sending = Deferred.fromCoroutine(self._send(client, request))

        def completed(result: RequestResult) -> RequestResult:
            self._pending_count -= 1
            for state, value in expected:
                state.completed(value, result)
            return result

        return sending.addCallback(completed)

    async def _send(self, client: WireClient, request: Awaitable[object]) -> RequestResult:
        try:
            await request
        except ConnectionFailed:
            result = RequestResult.REJECTED
        except ClientError:
            result = RequestResult.UNKNOWN
        except KafkaError as error:
            result = RequestResult.UNKNOWN if error.code in UNKNOWN_RESULT else RequestResult.REJECTED
        else:
            result = RequestResult.DONE
        await client.close()
        return result

    # --- end of the run ----------------------------------------------------------------------------------------------

    def settle(self, timeout_s: float = 180.0) -> None:
        """Run until all requests are completed, every partition has a leader and all replicas are in sync."""
        run_until = self._cluster.run_until
        run_until(lambda: self._pending_count == 0, timeout_s)
        run_until(lambda: not self._pending_znodes(), timeout_s)
        for topic in self.existing:
            run_until(lambda name=topic.name: not is_moving(self._cluster, name), timeout_s)
            run_until(lambda name=topic.name: not self._has_replicas_to_delete(name), timeout_s)
        for key in self.keys:
            run_until(lambda key=key: is_in_sync(self._cluster, key), timeout_s)

    def _pending_znodes(self) -> list[str]:
        """Return the request znodes that the controller has not processed.

        The parent znode of a topic's additions and removals may exist without requests.
        """
        paths = [
            f"{root}/{topic}/{number}"
            for root in (znodes.PARTITIONS_ADD, znodes.PARTITIONS_REMOVE)
            for topic in self._children(root)
            for number in self._children(f"{root}/{topic}")
            if root == znodes.PARTITIONS_REMOVE or not self._lacks_predecessor(topic, int(number))
        ]
        return [*self._children(znodes.DELETE_TOPICS), *paths]

    def _lacks_predecessor(self, topic: str, number: int) -> bool:
        """Return True if the addition of a partition cannot proceed, because a smaller number was not requested."""
        assignment = assignment_of(self._cluster, topic)
        requested = self._children(f"{znodes.PARTITIONS_ADD}/{topic}")
        first = 0 if assignment is None else len(assignment.partitions)
        return assignment is not None and any(str(smaller) not in requested for smaller in range(first, number))

    def _children(self, path: str) -> list[str]:
        node = znode(self._cluster, path)
        return sorted(node.children or ()) if node else []

    def _has_replicas_to_delete(self, name: str) -> bool:
        """Return True if moved replicas or removed partitions still have files."""
        assignment = assignment_of(self._cluster, name)
        return assignment is not None and (
            bool(assignment.removing) or any(removed.replicas for removed in assignment.removed.values())
        )

    def converge(self) -> None:
        """Check that existing partitions are complete, and that nothing is left of deleted partitions."""
        if not self._topics:
            return
        self.settle()
        for partition in list(self.current()):
            partition.finish()
        self._finishing = True
        self._cluster.run(DELETE_DELAY_MS / 1000 + 1.0)
        self._check()

    def _check(self) -> None:
        current = dict.fromkeys(self.current())
        for partition in self._partitions.values():
            partition.check(caught_up=partition in current)
        for partition in current:
            partition.check_log()
        for topic in self._topics.values():
            self._check_expected_state(topic)
        self._check_leftovers()
        self._check_unreadable()

    def _check_expected_state(self, topic: SideTopic) -> None:
        exists = bool(topic.current)
        assert exists in topic.exists.values, f"{topic.name} exists: {exists}; expected: {list(topic.exists.values)}"
        config = self._settings(topic.name)
        if not exists:
            assert config is None, f"the settings of the deleted topic {topic.name} still exist: {config}"
            return
        if not topic.may_shrink:
            count = len(topic.current)
            assert count >= topic.partitions_min, f"{topic.name} has {count} partitions, not {topic.partitions_min}"
        for name, expected in topic.settings.items():
            value = (config or {}).get(name)
            assert value in expected.values, f"{name} of {topic.name} is {value}, expected {list(expected.values)}"
        self._check_effective_settings(topic, config or {})

    def _settings(self, name: str) -> dict[str, str] | None:
        path = znodes.config_path("topics", name)
        node = znode(self._cluster, path)
        return None if node is None else documents.decode_config(path, node.data or b"")

    def _check_effective_settings(self, topic: SideTopic, config: Mapping[str, str]) -> None:
        for incarnation in topic.current:
            for broker, partition in active_replicas(self._cluster, incarnation.key):
                used = partition.log.config.segment_bytes, partition.min_insync_replicas
                expected = int(config["segment.bytes"]), int(config["min.insync.replicas"])
                assert used == expected, f"{incarnation.key} on broker {broker} uses {used}, not {expected}"

    def _check_leftovers(self) -> None:
        """Check that brokers have only the files of their replicas."""
        prefixes = tuple(f"{name}-" for name in self._topics)
        for number, machine in self._cluster.brokers.items():
            for name in machine.host.disk.list_directory(f"{DATA_DIRECTORY}/logs"):
                if not name.startswith(prefixes):
                    continue
                key = parse_directory_name(name)
                replicas = () if key is None else replicas_of(self._cluster, key)
                assert number in replicas, f"broker {number} has not deleted {name}"

    def _check_unreadable(self) -> None:
        """Check that no broker returns records of deleted topics for fetches by topic ID."""
        ids = {incarnation.topic_id for topic in self._topics.values() for incarnation in topic.current}
        deleted = [incarnation for incarnation in self._partitions if incarnation.topic_id not in ids]
        for incarnation in deleted[-DELETED_CHECKED_MAX:]:
            for broker in self._cluster.brokers:
                client = self._client_of(broker)
                row = self._cluster.run_until(client.fetch_row(incarnation.topic_id, incarnation.key.partition, 0))
                self._cluster.run_until(client.close())
                assert row["error_code"], f"broker {broker} serves {incarnation}: {row}"
