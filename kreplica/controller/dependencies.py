"""Dependencies of a controller; a journal wraps them to record a run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.controller.effects.broker_channels import BrokerChannel, ResponseCallback
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.state.context import Preference
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice
from kreplica.zookeeper import Created, Operation, OperationResult, Read, ReadResult, SessionState, Stat, WatchEvent

Watcher = Callable[[WatchEvent], None]


class Client(Protocol):
    """The subset of the ZooKeeper client's methods that a controller uses."""

    @property
    def session_id(self) -> int: ...

    @property
    def last_zxid(self) -> int: ...

    def on_session_event(self, listener: Callable[[SessionState], None]) -> Callable[[], None]: ...

    def exists(self, path: str, watch: Watcher | None = None) -> Deferred[Stat | None]: ...

    def get_data(self, path: str, watch: Watcher | None = None) -> Deferred[tuple[bytes, Stat]]: ...

    def get_children(self, path: str, watch: Watcher | None = None) -> Deferred[list[str]]: ...

    def create(self, path: str, data: bytes = b"") -> Deferred[Created]: ...

    def delete(self, path: str, version: int = -1) -> Deferred[None]: ...

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]: ...

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]: ...


class Channel(Protocol):
    """Sends commands to one process of one broker; see ``effects.broker_channels.BrokerChannel``."""

    def send(self, command: Command) -> None: ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class Connect(Protocol):
    """Opens a channel; for the parameters, see ``effects.broker_channels.BrokerChannel``."""

    def __call__(
        self,
        registration: BrokerRegistration,
        endpoint: Endpoint,
        *,
        client_id: str,
        timeout_s: float,
        answered: ResponseCallback,
        overflowed: Callable[[int], None],
        stopping: Callable[[], bool],
        sent: Callable[[Command, dict[str, Any]], None],
        late: Callable[[int, Command], None],
    ) -> Channel: ...


async def no_configurations_to_load(_: Sequence[str]) -> None:
    return


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Configuration of a controller, fixed when it starts.

    :param listener: name of the inter-broker listener.
    :param unclean_allowed: returns True if a topic's configuration allows unclean leader election.
    :param request_timeout_s: time within which a broker must respond to a command.
    :param min_insync_replicas: returns ``min.insync.replicas`` of a topic.
    :param read_topic_settings: loads topic configurations for ``unclean_allowed`` and ``min_insync_replicas``, because
        no notification announces the configuration of a new topic.
    :param rebalance: True to move leadership back to preferred replicas periodically
        (``auto.leader.rebalance.enable``).
    :param rebalance_interval_s: ``leader.imbalance.check.interval.seconds``.
    :param imbalance_percentage: ``leader.imbalance.per.broker.percentage``: tolerated percentage of a broker's
        preferred partitions that are led by other brokers.
    :param removal_wait_s: default time that a partition is read-only before it is removed.
    :param preference: orders the candidates for leadership; None for the order of the assignment.
    :param endpoint_maker: creates the endpoints of connections to brokers.
    :param control_plane_listener: name of the listener to which commands are sent; None for ``listener``.
    """

    broker_id: int
    listener: str
    unclean_allowed: Callable[[str], bool]
    request_timeout_s: float = 30.0
    min_insync_replicas: Callable[[str], int] = lambda _: 1
    read_topic_settings: Callable[[Sequence[str]], Coroutine[Deferred[Any], Any, None]] = no_configurations_to_load
    rebalance: bool = True
    rebalance_interval_s: float = 300.0
    imbalance_percentage: int = 10
    removal_wait_s: float = 60.0
    preference: Preference | None = None
    endpoint_maker: EndpointMaker = tcp_endpoint
    control_plane_listener: str | None = None


class LongLoop(Protocol):
    """Decides when a loop over many partitions yields to the reactor (``runtime.time_slice.TimeSlice``)."""

    @property
    def is_over(self) -> bool: ...

    def next(self) -> Deferred[None]: ...


@dataclass(frozen=True, slots=True)
class ControllerDependencies:
    """Dependencies of one controller, shared by all of its terms.

    :param runtime: timers, randomness and wall clock.  Its reactor's time is used for metrics only.
    :param client: the broker's ZooKeeper session.
    :param now_s: clock for decisions: the reactor's clock, in seconds.
    :param long_loop: creates the ``LongLoop`` of a term.
    :param connect: opens channels to brokers.
    :param audit_clock_ms: wall clock for audit events.  No decision depends on it, so the journal omits it.
    """

    runtime: Runtime
    client: Client
    config: ControllerConfig
    now_s: Callable[[], float]
    long_loop: Callable[[], LongLoop]
    connect: Connect
    audit_clock_ms: Callable[[], int] = lambda: 0

    @classmethod
    def real(cls, runtime: Runtime, client: Client, config: ControllerConfig) -> ControllerDependencies:
        """Return the dependencies of a running broker."""
        reactor = runtime.reactor
        return cls(
            runtime,
            client,
            config,
            now_s=reactor.seconds,
            long_loop=partial(TimeSlice, reactor),
            connect=partial(BrokerChannel, reactor, runtime.random, endpoint_maker=config.endpoint_maker),
            audit_clock_ms=runtime.wall_clock_ms,
        )
