"""Topics that come, grow, shrink and go while a storm blows, each with clients of its own for as long as it lives.

Which partitions there are is looked up in the coordinator after each of its events, so that clients begin and end with
them.  What administrators were answered is compared at the end with what there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.storage.formats.names import parse_directory_name
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.testing.cluster.state import acting, assignment_of, is_in_sync, is_moving, replicas_of, znode
from kreplica.testing.simulator.scheduler import Process
from kreplica.testing.simulator.simulation import DATA_DIRECTORY
from kreplica.testing.storms.clients.side_partition import Life, SidePartition, lives_of
from kreplica.testing.storms.expected_state import Answer, Expected

if TYPE_CHECKING:
    from kreplica.testing.storms.replicated_run import ReplicatedRun

COORDINATOR = "coordinator"
ADMINISTRATOR = "administrator"
UNSURE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors with which a broker does not say that nothing was done."""

DELETE_DELAY_MS = 2000
UNREADABLE_MAX = 3
"""So many partitions that are gone are asked for at the end."""

Changes = Mapping[Expected[Any], Any]
"""What a request changes, and to which values."""

SETTINGS = ("segment.bytes", "min.insync.replicas", "flush.messages", "retention.bytes")
"""Those that are changed while topics live."""


class SideTopic:
    """All that bears one name, one after the other.

    :ivar exists: whether there is such a topic.
    :ivar settings: of those in ``SETTINGS``, by name.
    :ivar partitions_min: it has at least so many partitions.
    :ivar may_shrink: whether it was ever asked to: then nobody can say how many it has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.exists = Expected(False)
        self.settings: dict[str, Expected[str | None]] = {each: Expected(None) for each in SETTINGS}
        self.partitions_min = 1
        self.may_shrink = False
        self.current: dict[Life, None] = {}
        self.data: bytes | None = None


class SideTopics:
    """None at first: the first one that is asked for begins the watching."""

    def __init__(self, run: ReplicatedRun) -> None:
        self._run = run
        self._cluster = run.cluster
        self._topics: dict[str, SideTopic] = {}
        self._partitions: dict[Life, SidePartition] = {}
        self._under_way = 0
        self._finishing = False

    # --- what there is -----------------------------------------------------------------------------------------------

    def topic(self, name: str) -> SideTopic:
        """The topic of that name, whether there is one now or not."""
        if not self._topics:
            self._watch()
        return self._topics.setdefault(name, SideTopic(name))

    @property
    def living(self) -> list[SideTopic]:
        """Those that exist, as the coordinator has it."""
        return [topic for topic in self._topics.values() if topic.current]

    @property
    def keys(self) -> list[TopicPartition]:
        """Of the partitions that there are now."""
        return [life.key for topic in self._topics.values() for life in topic.current]

    @property
    def hosts(self) -> list[str]:
        """Where their clients are."""
        return [*self._topics, ADMINISTRATOR] if self._topics else []

    def current(self) -> Iterator[SidePartition]:
        """The partitions that there are now."""
        for topic in self._topics.values():
            for life in topic.current:
                yield self._partitions[life]

    @property
    def committed_ends(self) -> dict[TopicPartition, int]:
        return {key: self._run.invariants.committed[key].end_offset for key in self.keys}

    def trimmed(self, name: str) -> None:
        """Old records of that topic may be deleted from now on."""
        for life in self._topics[name].current:
            self._partitions[life].trimmed = True

    def _watch(self) -> None:
        scheduler = self._cluster.simulation.scheduler
        check = scheduler.after_event

        def after(process: Process) -> None:
            if process.name.startswith(COORDINATOR):
                self._look()
            if check is not None:
                check(process)

        scheduler.after_event = after

    def _look(self) -> None:
        """Begin and end with the partitions that came and went; while no coordinator serves, none does."""
        machine = self._cluster.coordinator
        if self._finishing or not machine.running or machine.program.serving is None:
            return
        for topic in self._topics.values():
            node = znode(self._cluster, znodes.topic_path(topic.name))
            data = None if node is None else node.data
            if data is not topic.data:
                topic.data = data
                self._change(topic)

    def _change(self, topic: SideTopic) -> None:
        assignment = assignment_of(self._cluster, topic.name)
        before = topic.current
        now = dict.fromkeys(lives_of(assignment) if assignment else ())
        if znode(self._cluster, znodes.delete_topic_path(topic.name)) is not None:
            # A coordinator that crashed may not have kept that a topic is gone, of which nobody was told yet.  Its
            # replicas are deleted by then, and it is about to go again.
            now = {life: None for life in now if life in before or life not in self._partitions}
        topic.current = now
        for life in before:
            if life not in now:
                self._run.tell(f"{self._partitions[life]} is gone")
                self._run.invariants.forget(life.key)
                self._partitions[life].abandon()
        for life in now:
            if life not in before:
                self._come(topic, life)

    def _come(self, topic: SideTopic, life: Life) -> None:
        partition = self._partitions.get(life)
        if partition is None:
            label = len(self._partitions)
            partition = SidePartition(self._run, life, label, self._lives, self._is_late)
            self._partitions[life] = partition
        if topic.settings["retention.bytes"].values != {None: None}:
            partition.trimmed = True
        self._run.tell(f"{partition} is there")
        self._run.invariants.add(life.key, partition.history, life.topic_id, partition.committed)
        partition.begin()

    def _lives(self, life: Life) -> bool:
        return life in self._topics[life.key.topic].current

    def _is_late(self, value: bytes) -> bool:
        return any(partition.may_come_late(value) for partition in self._partitions.values())

    # --- what is asked for -------------------------------------------------------------------------------------------

    def administrator(self, random: Random) -> WireClient:
        """A client of the controller, or of any other broker."""
        controller = self._cluster.controller()
        return self._client_of(controller if controller is not None else random.choice(sorted(self._cluster.brokers)))

    def _client_of(self, broker: int) -> WireClient:
        host = self._cluster.simulation.host(ADMINISTRATOR)
        return WireClient(host.reactor, f"broker-{broker}", BROKER_PORT, client_id=ADMINISTRATOR)

    def ask(
        self, client: WireClient, asked: Awaitable[object], expected: Changes | None = None
    ) -> Deferred[Answer]:
        """Let an administrator ask for something.

        :return: fires when it is answered, or never will be.
        """
        changes = list((expected or {}).items())
        for each, value in changes:
            each.asked(value)
        self._under_way += 1
        answered = Deferred.fromCoroutine(self._ask(client, asked))

        def over(answer: Answer) -> Answer:
            self._under_way -= 1
            for each, value in changes:
                each.answered(value, answer)
            return answer

        return answered.addCallback(over)

    async def _ask(self, client: WireClient, asked: Awaitable[object]) -> Answer:
        try:
            await asked
        except ConnectionFailed:
            answer = Answer.REFUSED
        except ClientError:
            answer = Answer.UNKNOWN
        except KafkaError as error:
            answer = Answer.UNKNOWN if error.code in UNSURE else Answer.REFUSED
        else:
            answer = Answer.DONE
        await client.close()
        return answer

    # --- the end -----------------------------------------------------------------------------------------------------

    def settle(self, timeout_s: float = 180.0) -> None:
        """Until nothing is asked for any more, and every partition is led and has all its replicas in sync.

        :raise TimeoutError: it does not come to that.
        """
        run_until = self._cluster.run_until
        run_until(lambda: self._under_way == 0, timeout_s)
        run_until(lambda: not self._requests(), timeout_s)
        for topic in self.living:
            run_until(lambda name=topic.name: not is_moving(self._cluster, name), timeout_s)
            run_until(lambda name=topic.name: not self._leaving(name), timeout_s)
        for key in self.keys:
            run_until(lambda key=key: is_in_sync(self._cluster, key), timeout_s)

    def _requests(self) -> list[str]:
        """What the controller has not done yet.  Of a topic for which nothing is asked any more a znode may be left."""
        asked = [
            f"{root}/{topic}/{number}"
            for root in (znodes.PARTITIONS_ADD, znodes.PARTITIONS_REMOVE)
            for topic in self._children(root)
            for number in self._children(f"{root}/{topic}")
            if root == znodes.PARTITIONS_REMOVE or not self._waits(topic, int(number))
        ]
        return [*self._children(znodes.DELETE_TOPICS), *asked]

    def _waits(self, topic: str, number: int) -> bool:
        """Whether an addition waits for a partition that nobody asks for any more."""
        assignment = assignment_of(self._cluster, topic)
        asked = self._children(f"{znodes.PARTITIONS_ADD}/{topic}")
        first = 0 if assignment is None else len(assignment.partitions)
        return assignment is not None and any(str(before) not in asked for before in range(first, number))

    def _children(self, path: str) -> list[str]:
        node = znode(self._cluster, path)
        return sorted(node.children or ()) if node else []

    def _leaving(self, name: str) -> bool:
        """Whether files of replicas that moved away, or of partitions that were removed, are still to be deleted."""
        assignment = assignment_of(self._cluster, name)
        return assignment is not None and (
            bool(assignment.removing) or any(gone.replicas for gone in assignment.removed.values())
        )

    def converge(self) -> None:
        """All faults are over: everything that lives must be whole, of what is gone nothing may be left."""
        if not self._topics:
            return
        self.settle()
        for partition in self.current():
            partition.finish()
        self._finishing = True
        self._cluster.run(DELETE_DELAY_MS / 1000 + 1.0)
        self._check()

    def _check(self) -> None:
        living = dict.fromkeys(self.current())
        for partition in self._partitions.values():
            partition.check(caught_up=partition in living)
        for partition in living:
            partition.check_log()
        for topic in self._topics.values():
            self._check_answers(topic)
        self._check_leftovers()
        self._check_unreadable()

    def _check_answers(self, topic: SideTopic) -> None:
        exists = bool(topic.current)
        assert exists in topic.exists.values, f"{topic.name} exists: {exists}; of what was asked: {topic.exists.values}"
        config = self._settings(topic.name)
        if not exists:
            assert config is None, f"the settings of {topic.name} are left: {config}"
            return
        if not topic.may_shrink:
            count = len(topic.current)
            assert count >= topic.partitions_min, f"{topic.name} has {count} partitions of {topic.partitions_min}"
        for name, expected in topic.settings.items():
            value = (config or {}).get(name)
            assert value in expected.values, f"{name} of {topic.name} is {value}; asked for was {expected.values}"
        self._check_obeyed(topic, config or {})

    def _settings(self, name: str) -> dict[str, str] | None:
        path = znodes.config_path("topics", name)
        node = znode(self._cluster, path)
        return None if node is None else documents.decode_config(path, node.data or b"")

    def _check_obeyed(self, topic: SideTopic, config: Mapping[str, str]) -> None:
        """Whether every replica goes by the settings."""
        for life in topic.current:
            for broker, partition in acting(self._cluster, life.key):
                obeyed = partition.log.config.segment_bytes, partition.min_insync_replicas
                asked = int(config["segment.bytes"]), int(config["min.insync.replicas"])
                assert obeyed == asked, f"{life.key} on {broker} goes by {obeyed}, not by {asked}"

    def _check_leftovers(self) -> None:
        """Whether brokers have files of nothing but their replicas."""
        ours = tuple(f"{name}-" for name in self._topics)
        for number, machine in self._cluster.brokers.items():
            for name in machine.host.disk.list_directory(f"{DATA_DIRECTORY}/logs"):
                if not name.startswith(ours):
                    continue
                key = parse_directory_name(name)
                replicas = () if key is None else replicas_of(self._cluster, key)
                assert number in replicas, f"broker {number} has left {name}"

    def _check_unreadable(self) -> None:
        """Whether no broker gives anything of topics that are gone, to who asks by their ids."""
        ids = {life.topic_id for topic in self._topics.values() for life in topic.current}
        gone = [life for life in self._partitions if life.topic_id not in ids]
        for life in gone[-UNREADABLE_MAX:]:
            for broker in self._cluster.brokers:
                client = self._client_of(broker)
                row = self._cluster.run_until(client.fetch_row(life.topic_id, life.key.partition, 0))
                self._cluster.run_until(client.close())
                assert row["error_code"], f"broker {broker} serves {life}: {row}"
