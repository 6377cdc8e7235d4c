"""Controlled shutdown: leadership moves to other brokers, and the broker does not wait needlessly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode
from kreplica.membership.controlled_shutdown import ControlledShutdown, ControlledShutdownConfig
from kreplica.model import Endpoint, TopicPartition
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.request import Request
from kreplica.server.transport.listeners import Server
from kreplica.testing.simulator.simulation import Simulation
from kreplica.wire.messages import CONTROLLED_SHUTDOWN

Row = dict[str, Any]
ORDERS = TopicPartition("orders", 0)
REMAINING = {"error_code": 0, "remaining_partitions": [{"topic_name": "orders", "partition_index": 0}]}
NONE_REMAINING: Row = {"error_code": 0, "remaining_partitions": []}
NOT_CONTROLLER: Row = {"error_code": int(ErrorCode.NOT_CONTROLLER), "remaining_partitions": []}


class Controller:
    """Scripted controller, which repeats its last response."""

    def __init__(self, simulation: Simulation, name: str, *answers: Row) -> None:
        self.endpoint = Endpoint("PLAINTEXT", name, 9092)
        self.requests: list[Row] = []
        self._answers = list(answers)
        table = {CONTROLLED_SHUTDOWN.key: HandlerEntry(CONTROLLED_SHUTDOWN, 0, 3, self._answer)}
        Server(simulation.host(name).runtime, table, Bounds()).listen(self.endpoint)

    def _answer(self, request: Request) -> None:
        self.requests.append(request.body)
        request.respond(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])


class World:
    """A stopping broker and its view of the other brokers."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.reactor = self.simulation.host("broker").runtime.reactor
        self.metadata = MetadataCache(self.reactor)
        self.controller_endpoint: Endpoint | None = None
        self.others_are_live = True
        self.replicas_live = True

    def set_controller(self, *answers: Row, name: str = "controller") -> Controller:
        """Set the current controller and its responses."""
        controller = Controller(self.simulation, name, *answers)
        self.controller_endpoint = controller.endpoint
        return controller

    def stop(self, **config: Any) -> float:
        """Run the controlled shutdown; return its duration in seconds."""
        started_s = self.simulation.now_s
        shutdown = ControlledShutdown(self.reactor, 7, 70, self, ControlledShutdownConfig(**config))
        self.simulation.run_until(shutdown.hand_over(), timeout_s=300)
        assert self.reactor.getDelayedCalls() == []
        return self.simulation.now_s - started_s

    def schedule_change(self, seconds: float, change: Callable[[], None]) -> None:
        """Change the cluster's metadata after a delay."""

        def apply() -> None:
            change()
            self.metadata.recheck()

        self.simulation.host("world").runtime.reactor.callLater(seconds, apply)

    # State of the cluster as the broker sees it.

    def controller(self) -> Endpoint | None:
        return self.controller_endpoint

    def others_live(self) -> bool:
        return self.others_are_live

    def may_take_over(self, partitions: Iterable[TopicPartition]) -> bool:
        assert list(partitions) == [ORDERS]
        return self.replicas_live

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        return self.metadata.wait_until(condition, timeout_s)


@pytest.fixture
def world() -> World:
    return World()


def test_all_partitions_are_taken_over(world: World) -> None:
    """The controller gets one request, which contains the broker's epoch."""
    controller = world.set_controller(NONE_REMAINING)
    assert world.stop() < 1
    assert controller.requests == [{"broker_id": 7, "broker_epoch": 70}]


def test_followers_are_catching_up(world: World) -> None:
    """While followers catch up, the request is repeated after the backoff."""
    controller = world.set_controller(REMAINING, REMAINING, NONE_REMAINING)
    assert 10 <= world.stop(backoff_s=5) < 11
    assert len(controller.requests) == 3


def test_followers_never_catch_up(world: World) -> None:
    """If followers never catch up, the broker stops after all retries."""
    controller = world.set_controller(REMAINING)
    assert 10 <= world.stop(retries_max=2, backoff_s=5) < 11
    assert len(controller.requests) == 3


def test_single_broker(world: World) -> None:
    """The only broker of a cluster sends no request."""
    controller = world.set_controller(REMAINING)
    world.others_are_live = False
    assert world.stop() == 0
    assert controller.requests == []


def test_no_other_replica_is_live(world: World) -> None:
    """The broker does not wait for partitions without another live replica."""
    controller = world.set_controller(REMAINING)
    world.replicas_live = False
    assert world.stop() < 1
    assert len(controller.requests) == 1


def test_last_other_replica_stops_during_the_wait(world: World) -> None:
    """The wait ends when the last other replica stops."""
    world.set_controller(REMAINING)
    world.schedule_change(1, lambda: setattr(world, "replicas_live", False))
    assert 1 <= world.stop(backoff_s=60) < 2


def test_other_controller_is_elected(world: World) -> None:
    """A new controller gets the request as soon as it is elected."""
    former = world.set_controller(NOT_CONTROLLER, name="former")
    world.schedule_change(2, lambda: world.set_controller(NONE_REMAINING, name="next") and None)
    assert 2 <= world.stop(backoff_s=60) < 3
    assert len(former.requests) == 1


def test_controller_is_unreachable(world: World) -> None:
    """Without a reachable controller the broker stops after its retries."""
    world.controller_endpoint = Endpoint("PLAINTEXT", world.simulation.host("gone").name, 9092)
    assert 3 <= world.stop(retries_max=3, backoff_s=1) < 4


def test_no_controller_is_known(world: World) -> None:
    """The broker waits for a controller to be elected."""
    world.schedule_change(1, lambda: world.set_controller(NONE_REMAINING) and None)
    assert 1 <= world.stop(retries_max=1, backoff_s=60) < 2
