"""A controller with scripted brokers, a real coordinator and real connections, in virtual time.

scene = ControllerScene(brokers=3)
scene.start()
scene.make_topic("orders", {0: (1, 2, 3)})
scene.brokers[1].kill()
scene.settle()
assert scene.state("orders", 0).leader == 2

The scripted brokers only register, listen and record the controller's commands.  The test sets their responses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.cluster.uuids import random_uuid
from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import ControllerConfig, ControllerDependencies
from kreplica.controller.event_types import ControllerRequest
from kreplica.controller.journal.files import JournalSettings
from kreplica.controller.journal.journaled_controller import journaled
from kreplica.controller.state.context import ControllerContext
from kreplica.errors import ErrorCode
from kreplica.membership.registration import create_persistent_paths
from kreplica.model import (
    NO_BROKER_EPOCH,
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    TopicAssignment,
    TopicPartition,
)
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.request import Request
from kreplica.server.transport.listeners import Server
from kreplica.testing.simulator.simulation import DATA_DIRECTORY, Host, Simulation
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kreplica.zookeeper import Create, SessionExpired, ZooKeeperClient
from kreplica.zookeeper.embedded.disk_store import DiskStore
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper

T = TypeVar("T")

LISTENER = "PLAINTEXT"
PORT = 9092
COORDINATOR = "coordinator:2181"


@dataclass(frozen=True, slots=True)
class ReceivedCommand:
    """A controller command that a broker has received."""

    name: str
    body: dict[str, Any]

    @property
    def partitions(self) -> dict[TopicPartition, dict[str, Any]]:
        """The command's fields for each partition."""
        return {
            TopicPartition(topic["topic_name"], row["partition_index"]): row
            for topic in self.body["topic_states"]
            for row in topic["partition_states"]
        }


class ScriptedBroker:
    """A broker on its own host, started and killed by the test.

    :ivar received: commands that this process received, in order.
    :ivar errors: error codes in responses to LeaderAndIsr and StopReplica, by partition.
    :ivar whole_error: top-level error code of every response.
    :ivar silent: True to respond to no commands.
    """

    def __init__(self, host: Host, broker_id: int) -> None:
        self.broker_id = broker_id
        self._host = host
        self._endpoints = (Endpoint(LISTENER, host.name, PORT),)
        self._client: ZooKeeperClient | None = None
        self._server: Server | None = None
        self._previous: tuple[int, bytes] | None = None
        self.epoch = NO_BROKER_EPOCH
        self.received: list[ReceivedCommand] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.whole_error = ErrorCode.NONE
        self.silent = False

    @property
    def client(self) -> ZooKeeperClient:
        assert self._client is not None, f"broker {self.broker_id} does not run"
        return self._client

    async def start(self, *, intact_since: int = NO_BROKER_EPOCH) -> None:
        """Listen and register, after ending the session of a killed process, as a real broker does."""
        await self.end_session()
        runtime = self._host.runtime
        self.received, self.errors, self.whole_error, self.silent = [], {}, ErrorCode.NONE, False
        commands = (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA)
        handlers = {api.key: HandlerEntry.of(api, self._obey) for api in commands}
        self._server = Server(runtime, handlers, Bounds())
        self._server.listen(Endpoint(LISTENER, self._host.name, PORT))
        self._client = ZooKeeperClient(runtime.reactor, COORDINATOR, random=runtime.random, session_timeout_ms=6000)
        await self._client.start()
        data = documents.encode_broker(self._registration(intact_since))
        await self._client.create(znodes.broker_path(self.broker_id), data, ephemeral=True)
        _, stat = await self._client.get_data(znodes.broker_path(self.broker_id))
        self.epoch = stat.czxid

    def _registration(self, intact_since: int) -> BrokerRegistration:
        return BrokerRegistration(self.broker_id, self._endpoints, intact_since=intact_since)

    async def move(self, port: int) -> None:
        """Listen on another endpoint in the same session and change the registration accordingly."""
        assert self._server is not None
        self._endpoints = (Endpoint(LISTENER, self._host.name, port),)
        self._server.listen(self._endpoints[0])
        data = documents.encode_broker(self._registration(NO_BROKER_EPOCH))
        await self.client.set_data(znodes.broker_path(self.broker_id), data)

    def kill(self) -> None:
        """Kill the process; its session remains until it expires or the broker starts again."""
        self._previous = (self.client.session_id, self.client.session_password)
        self._client = self._server = None
        self._host.kill()

    async def end_session(self) -> None:
        """End the session of the killed process."""
        previous, self._previous = self._previous, None
        if previous is not None:
            runtime = self._host.runtime
            client = ZooKeeperClient(runtime.reactor, COORDINATOR, random=runtime.random, resume=previous)
            try:
                await client.start()
            except SessionExpired:
                pass
            await client.close()

    def received_of(self, name: str) -> list[ReceivedCommand]:
        """Return the received commands with this name."""
        return [command for command in self.received if command.name == name]

    async def write_isr(self, partition: TopicPartition, isr: tuple[int, ...], *, notify: bool = True) -> None:
        """Change an ISR as a leader does, and notify the controller."""
        path = znodes.partition_state_path(*partition)
        data, stat = await self.client.get_data(path)
        state = documents.decode_partition_state(path, data, stat.version)
        changed = LeaderAndIsr(state.leader, state.leader_epoch, isr, state.controller_epoch)
        await self.client.set_data(path, documents.encode_partition_state(changed), stat.version)
        if notify:
            parent = f"{znodes.ISR_CHANGE_NOTIFICATION}/{znodes.ISR_CHANGE_PREFIX}"
            await self.client.create(parent, documents.encode_partitions([partition]), sequence=True)

    def _obey(self, request: Request) -> None:
        received = ReceivedCommand(request.api.name, request.body)
        self.received.append(received)
        if self.silent:
            return
        answer: dict[str, Any] = {"error_code": int(self.whole_error)}
        if received.name != "UpdateMetadata":
            rows = [
                {"topic_name": p.topic, "partition_index": p.partition, "error_code": int(self.errors.get(p, 0))}
                for p in received.partitions
            ]
            ids = {topic["topic_name"]: topic.get("topic_id") for topic in received.body["topic_states"]}
            answer["partition_errors"] = rows
            answer["topics"] = [
                {"topic_id": ids[topic], "partition_errors": [row for row in rows if row["topic_name"] == topic]}
                for topic in ids
            ]
        request.respond(answer)


class ScriptedController:
    """A controller on its own host, whose broker id differs from those of the scripted brokers.

    :ivar config: configuration for the next start.
    :ivar journal: settings of its journal, or None.
    """

    def __init__(self, host: Host, broker_id: int) -> None:
        self._host = host
        self.config = ControllerConfig(broker_id, LISTENER, lambda _: False, 2.0, lambda _: 2, rebalance=False)
        self.journal: JournalSettings | None = None
        self._controller: Controller | None = None

    @property
    def controller(self) -> Controller:
        assert self._controller is not None, "the controller does not run"
        return self._controller

    @property
    def is_active(self) -> bool:
        """True if the controller was elected and has handled all events."""
        return self._controller is not None and self._controller.active and self._controller.queue.idle

    async def start(self) -> None:
        runtime = self._host.runtime
        client = ZooKeeperClient(runtime.reactor, COORDINATOR, random=runtime.random, session_timeout_ms=6000)
        await client.start()
        dependencies = ControllerDependencies.real(runtime, client, self.config)
        self._controller, _ = journaled(dependencies, self.journal)
        self._controller.start()

    def kill(self) -> None:
        """Kill the process; the next controller is elected when its session expires."""
        self._controller = None
        self._host.kill()

    @property
    def host(self) -> Host:
        return self._host


class ControllerScene:
    """Brokers 1 to N, and controllers from 101; ``start`` lets the first controller be elected.

    :param controllers: number of controllers.
    """

    def __init__(self, *, brokers: int = 3, controllers: int = 1, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        runtime = self.simulation.host("coordinator").runtime
        self.coordinator = EmbeddedZooKeeper(
            runtime,
            DATA_DIRECTORY,
            port=2181,
            interface="coordinator",
            store=DiskStore(DATA_DIRECTORY, runtime.disk, runtime.offload),
        )
        host = self.simulation.host
        self.brokers = {n: ScriptedBroker(host(f"broker-{n}"), n) for n in range(1, brokers + 1)}
        self.controllers = {n: ScriptedController(host(f"controller-{n}"), n) for n in range(101, 101 + controllers)}
        operator = host("operator").runtime
        self.zookeeper = ZooKeeperClient(operator.reactor, COORDINATOR, random=operator.random)

    def start(self) -> None:
        """Start the coordinator, the brokers and the controllers, and wait until they are idle."""
        self.run(self.coordinator.start())
        self.run(self.zookeeper.start())
        self.run(create_persistent_paths(self.zookeeper))
        for broker in self.brokers.values():
            self.run(broker.start())
        for controller in self.controllers.values():
            self.run(controller.start())
            self.settle()

    # --- time --------------------------------------------------------------------------------------------------------

    def run(self, work: Awaitable[T] | Deferred[T]) -> Any:
        """Run the simulation until this work is done, and return its result."""
        return self.simulation.run_until(work if isinstance(work, (Deferred, Coroutine)) else _awaited(work))

    def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        self.simulation.run_until(condition, timeout_s)

    def settle(self, seconds: float = 1.0) -> None:
        """Let enough time pass for the controller to handle all changes and for brokers to receive its commands."""
        self.simulation.run(seconds)

    def await_expiry(self) -> None:
        """Let enough time pass for the sessions of killed processes to expire."""
        self.simulation.run(15.0)

    @contextmanager
    def unnoticed(self) -> Iterator[None]:
        """Pause the controllers in this context, so that they notice all changes together at its end."""
        for scripted in self.controllers.values():
            scripted.host.pause()
        yield
        for scripted in self.controllers.values():
            scripted.host.resume()
        self.settle()

    # --- the controller ----------------------------------------------------------------------------------------------

    @property
    def controller(self) -> Controller:
        """The active controller."""
        for scripted in self.controllers.values():
            if scripted.is_active:
                return scripted.controller
        raise AssertionError("no controller is active")

    @property
    def context(self) -> ControllerContext:
        """The context of the active controller."""
        context = self.controller.context
        assert context is not None
        return context

    def ask(self, question: ControllerRequest) -> Any:
        """Send a request to the active controller, and run until it responds."""
        return self.run(self.controller.submit(question))

    # --- the cluster -------------------------------------------------------------------------------------------------

    def make_topic(
        self, name: str, partitions: Mapping[int, tuple[int, ...]], *, topic_id: UUID | None = None
    ) -> TopicAssignment:
        """Write a topic's znode, and let the controller bring its partitions online."""
        made = topic_id or random_uuid(self.simulation.random)
        assignment = TopicAssignment(name, made, dict(partitions))
        self.run(self.zookeeper.multi([Create(znodes.topic_path(name), documents.encode_topic(assignment))]))
        self.settle()
        return assignment

    def state(self, topic: str, partition: int) -> LeaderAndIsr:
        """Return a partition's state from ZooKeeper."""
        path = znodes.partition_state_path(topic, partition)
        data, stat = self.run(self.zookeeper.get_data(path))
        return documents.decode_partition_state(path, data, stat.version)

    def clear_received(self) -> None:
        """Clear the recorded commands."""
        for broker in self.brokers.values():
            broker.received.clear()


async def _awaited(work: Awaitable[T]) -> T:
    return await work
