"""All that a controller learns from and acts upon, in one place: whoever notes its run, or repeats it, stands here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from kreplica.controller.effects.broker_channels import Answered, BrokerChannel
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.state.context import Preference
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.runtime import Runtime
from kreplica.runtime.turns import Turns
from kreplica.zookeeper import Created, Operation, OperationResult, Read, ReadResult, SessionState, Stat, WatchEvent

Watcher = Callable[[WatchEvent], None]


class Client(Protocol):
    """The part of the ZooKeeper client that a controller uses."""

    @property
    def session_id(self) -> int: ...

    def on_session_event(self, listener: Callable[[SessionState], None]) -> Callable[[], None]: ...

    def exists(self, path: str, watch: Watcher | None = None) -> Deferred[Stat | None]: ...

    def get_data(self, path: str, watch: Watcher | None = None) -> Deferred[tuple[bytes, Stat]]: ...

    def get_children(self, path: str, watch: Watcher | None = None) -> Deferred[list[str]]: ...

    def create(self, path: str, data: bytes = b"") -> Deferred[Created]: ...

    def delete(self, path: str, version: int = -1) -> Deferred[None]: ...

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]: ...

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]: ...


class Channel(Protocol):
    """What carries commands to one process of one broker (``channels.BrokerChannel``)."""

    def send(self, command: Command) -> None: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class Connect(Protocol):
    """Opens a channel; what it is told with is explained at ``channels.BrokerChannel``."""

    def __call__(
        self,
        registration: BrokerRegistration,
        endpoint: Endpoint,
        *,
        client_id: str,
        timeout_s: float,
        answered: Answered,
        overflowed: Callable[[int], None],
        stopping: Callable[[], bool],
        sent: Callable[[Command, dict[str, Any]], None],
        late: Callable[[int, Command], None],
    ) -> Channel: ...


async def nothing_to_learn(_: Sequence[str]) -> None:
    return


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller is told once.

    :param listener: the name of the listener by which brokers speak to each other.
    :param unclean_allowed: whether a topic's settings allow a replica that is not in sync to lead.
    :param request_timeout_s: how long a broker may take to answer one command.
    :param min_insync_replicas: ``min.insync.replicas`` of a topic.
    :param learn: reads the settings of these topics, so that the two above know them: a new topic's are not told of.
    :param rebalance: whether preferred replicas are to lead without being asked for
        (``auto.leader.rebalance.enable``).
    :param rebalance_interval_s: ``leader.imbalance.check.interval.seconds``.
    :param imbalance_percentage: ``leader.imbalance.per.broker.percentage``: of the partitions that a broker is to
        lead, so many may be led by others.
    :param removal_wait_s: how long a partition that is to be removed is read-only, where its request does not say.
    :param preference: says who should lead rather than another; None goes by the order of the assignment.
    """

    broker_id: int
    listener: str
    unclean_allowed: Callable[[str], bool]
    request_timeout_s: float = 30.0
    min_insync_replicas: Callable[[str], int] = lambda _: 1
    learn: Callable[[Sequence[str]], Coroutine[Deferred[Any], Any, None]] = nothing_to_learn
    rebalance: bool = True
    rebalance_interval_s: float = 300.0
    imbalance_percentage: int = 10
    removal_wait_s: float = 60.0
    preference: Preference | None = None


class LongLoop(Protocol):
    """When loops over many partitions give up their turn (``runtime.turns.Turns``)."""

    @property
    def is_over(self) -> bool: ...

    def next(self) -> Deferred[None]: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one controller is given, for all its terms.

    :param runtime: its timers, randomness and wall clock.  The reactor's time is for figures alone.
    :param client: the broker's session with ZooKeeper.
    :param now_s: the time by which it decides; of the reactor.
    :param long_loop: for each term.
    :param connect: opens channels to brokers.
    :param dates_ms: the wall clock as it is told to people; nothing is decided by it, so no journal has it.
    """

    runtime: Runtime
    client: Client
    config: ControllerConfig
    now_s: Callable[[], float]
    long_loop: Callable[[], LongLoop]
    connect: Connect
    dates_ms: Callable[[], int] = lambda: 0

    @classmethod
    def real(cls, runtime: Runtime, client: Client, config: ControllerConfig) -> Surroundings:
        """Those of a broker that runs."""
        reactor = runtime.reactor
        return cls(
            runtime,
            client,
            config,
            now_s=reactor.seconds,
            long_loop=partial(Turns, reactor),
            connect=partial(BrokerChannel, reactor, runtime.random),
            dates_ms=runtime.wall_clock_ms,
        )
