"""Limits on connections: their number and creation rate, per address, per listener and for the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from server_scene import ENVIRONMENTS, Client, Scenario, Scene, play, produce_frame
from twisted.internet.task import Clock

from kreplica.model import Endpoint
from kreplica.server.quotas import connection_limits
from kreplica.server.quotas.connection_limits import (
    Admission,
    ConnectionLimits,
    ConnectionSettings,
    Decision,
    ListenerLimit,
)
from kreplica.server.transport import accept_gate, connections

Play = Callable[[Scenario], None]

CLIENTS, BROKERS = "PLAINTEXT", "BROKERS"


@pytest.fixture(params=ENVIRONMENTS)
def play_scenario(request: pytest.FixtureRequest) -> Play:
    """Return a function that runs a test in each environment."""
    return lambda scenario: play(request.param, scenario)


def limits_of(scene: Scene, settings: ConnectionSettings, windows: tuple[int, float] = (11, 1.0)) -> ConnectionLimits:
    limits = ConnectionLimits(scene.runtime.reactor.seconds, windows)
    limits.configure(settings)
    return limits


async def assert_served(*clients: Client) -> None:
    for client in clients:
        client.send(produce_frame(1, b"x"))
        assert await client.next_ids(1) == [1]


class TestNumber:
    """``max.connections`` of the broker and of listeners, and ``max.connections.per.ip``."""

    def test_connections_of_an_address(self, play_scenario: Play) -> None:
        """A connection above the limit is closed at once; after another has closed, a new one is accepted."""

        async def scenario(scene: Scene) -> None:
            scene.start(limits=limits_of(scene, ConnectionSettings(per_address=2)))
            first = await scene.connect()
            await scene.connect()
            refused = await scene.connect()
            await refused.wait_until_closed()
            first.close()
            await scene.until(lambda: scene.server.metrics.connections == 1)
            await assert_served(await scene.connect())
            assert scene.server.metrics.connections_refused == 1

        play_scenario(scenario)

    def test_override_of_an_address(self, play_scenario: Play) -> None:
        """A number in ``max.connections.per.ip.overrides`` applies only to its address."""

        async def scenario(scene: Scene) -> None:
            limits = limits_of(scene, ConnectionSettings(per_address=0))
            scene.start(limits=limits)
            await (await scene.connect()).wait_until_closed()
            limits.override_addresses({"192.0.2.1": 5})
            await (await scene.connect()).wait_until_closed()
            limits.override_addresses({"127.0.0.1": 1, "client": 1})
            await assert_served(await scene.connect())
            await (await scene.connect()).wait_until_closed()

        play_scenario(scenario)

    @pytest.mark.parametrize(
        "settings", [ConnectionSettings(2), ConnectionSettings(listeners={CLIENTS: ListenerLimit(2)})]
    )
    def test_connections_wait_for_a_slot(self, play_scenario: Play, settings: ConnectionSettings) -> None:
        """A connection above the limit is neither closed nor served until another closes or the limit changes."""

        async def scenario(scene: Scene) -> None:
            limits = limits_of(scene, settings)
            scene.start(limits=limits)
            first, second = await scene.connect(), await scene.connect()
            third, fourth = await scene.connect(), await scene.connect()
            third.send(produce_frame(1, b"x"))
            await scene.pause(0.05)
            await assert_served(first, second)
            assert scene.server.metrics.connections == 2
            first.close()
            assert await third.next_ids(1) == [1]
            await scene.pause(0.05)
            assert scene.server.metrics.connections == 2
            limits.configure(ConnectionSettings())
            await assert_served(fourth)
            assert scene.server.metrics.connections == 3
            assert scene.server.metrics.connections_refused == 0

        play_scenario(scenario)

    def test_other_brokers_are_protected(self, play_scenario: Play, monkeypatch: pytest.MonkeyPatch) -> None:
        """A connection to the inter-broker listener closes the connection of another listener that was idle longest."""
        monkeypatch.setattr(connections, "CLOSED_AT_ONCE", 1)

        async def scenario(scene: Scene) -> None:
            limits = limits_of(scene, ConnectionSettings(3, protected=BROKERS))
            scene.start(limits=limits)
            brokers = scene.server.listen(Endpoint(BROKERS, scene.host, 0))
            clients = [await scene.connect() for _ in range(3)]
            for client in reversed(clients):
                await assert_served(client)
                await scene.pause(0.001)
            first, second = await scene.connect(brokers), await scene.connect(brokers)
            await assert_served(first, second)
            await clients[2].wait_until_closed()
            await clients[1].wait_until_closed()
            await assert_served(clients[0])
            await scene.until(lambda: scene.server.metrics.connections == 3)
            assert limits.excess_closed == 2

        play_scenario(scenario)

    def test_the_inter_broker_listener_has_its_own_limit(self) -> None:
        """The limit of the inter-broker listener applies to it; the broker's limit does not."""
        limits = ConnectionLimits(Clock().seconds)
        limits.configure(ConnectionSettings(1, listeners={BROKERS: ListenerLimit(2)}, protected=BROKERS))
        limits.opened(CLIENTS, "client")
        assert not limits.has_slot(CLIENTS)
        assert limits.has_slot(BROKERS)
        limits.opened(BROKERS, "one")
        assert limits.has_slot(BROKERS)
        limits.opened(BROKERS, "two")
        assert not limits.has_slot(BROKERS)


class TestRate:
    """``max.connection.creation.rate`` of the broker and of listeners."""

    @pytest.mark.parametrize(
        "settings", [ConnectionSettings(rate=50), ConnectionSettings(listeners={CLIENTS: ListenerLimit(rate=50)})]
    )
    def test_accepting_is_delayed(self, play_scenario: Play, settings: ConnectionSettings) -> None:
        """All connections are served, at the limited rate."""

        async def scenario(scene: Scene) -> None:
            limits = limits_of(scene, settings, (2, 0.1))
            scene.start(limits=limits)
            seconds = scene.runtime.reactor.seconds
            started_s = seconds()
            await assert_served(*[await scene.connect() for _ in range(20)])
            # The first window of a tenth of a second is not delayed; the last connection is served before its delay.
            assert seconds() - started_s > (20 - 50 * 0.1 - 2) / 50
            counters = limits.listeners[CLIENTS]
            assert counters.accepted == 20
            assert counters.delays > 5
            assert counters.delayed_s > 0.1
            assert scene.server.metrics.connections_refused == 0

        play_scenario(scenario)

    def test_no_delay_is_longer_than_a_window(self) -> None:
        """Kafka has the same bound, so that a raised limit takes effect soon."""
        clock = Clock()
        limits = ConnectionLimits(clock.seconds, (11, 1.0))
        limits.configure(ConnectionSettings(rate=1))
        delays = [limits.admit(CLIENTS, "client").delay_s for _ in range(30)]
        assert delays[9] == 0.0
        assert delays[10:] == [1.0] * 20
        clock.advance(30)
        assert limits.admit(CLIENTS, "client") == Admission(Decision.ACCEPTED)

    def test_other_brokers_are_protected(self) -> None:
        """The broker's rate neither counts nor delays connections of other brokers."""
        limits = ConnectionLimits(Clock().seconds)
        limits.configure(ConnectionSettings(rate=1, protected=BROKERS))
        assert [limits.admit(BROKERS, "one").delay_s for _ in range(20)] == [0.0] * 20
        assert limits.admit(CLIENTS, "client").delay_s == 0.0
        assert [limits.admit(CLIENTS, "client").delay_s for _ in range(10)][-1] > 0.0
        assert limits.admit(BROKERS, "one").delay_s == 0.0


class TestRateOfAddress:
    """``connection_creation_rate`` for IP addresses."""

    def test_connections_are_held(self, play_scenario: Play) -> None:
        """A connection above the rate gets no response, and is closed later; other listeners' rates do not count it."""

        async def scenario(scene: Scene) -> None:
            limits = limits_of(scene, ConnectionSettings(), (2, 0.2))
            limits.limit_addresses({"192.0.2.1": 0.0}, 10.0)
            scene.start(limits=limits)
            served = [await scene.connect() for _ in range(2)]
            held = await scene.connect()
            held.send(produce_frame(1, b"x"))
            await scene.until(lambda: len(scene.server.resources.connections.held) == 1)
            await assert_served(*served)
            assert not held.is_closed
            await held.wait_until_closed()
            assert not held.frames
            await scene.until(lambda: not len(scene.server.resources.connections.held))
            assert limits.listeners[CLIENTS].held == 1
            assert limits.listeners[CLIENTS].rate.rate(scene.runtime.reactor.seconds()) > 0.0
            await scene.pause(0.2)
            await assert_served(await scene.connect())

        play_scenario(scenario)

    def test_held_connections_are_bounded(self, play_scenario: Play, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beyond the limit, connections are closed at once; stopping the server closes all."""
        monkeypatch.setattr(accept_gate, "HELD_MAX", 2)

        async def scenario(scene: Scene) -> None:
            limits = limits_of(scene, ConnectionSettings(), (2, 1000.0))
            limits.limit_addresses({}, 0.0)
            scene.start(limits=limits)
            held = [await scene.connect(), await scene.connect()]
            await (await scene.connect()).wait_until_closed()
            assert not any(client.is_closed for client in held)
            await scene.server.stop()
            for client in held:
                await client.wait_until_closed()

        play_scenario(scenario)

    def test_quota_of_an_address_overrides_the_default(self) -> None:
        """An address with its own quota is not limited by the default, and each address is measured separately."""
        limits = ConnectionLimits(Clock().seconds)
        limits.limit_addresses({"192.0.2.1": 5.0, "192.0.2.2": 0.0}, 1.0)
        for address, allowed in (("192.0.2.1", 50), ("192.0.2.2", 0), ("192.0.2.3", 10), ("192.0.2.4", 10)):
            decisions = [limits.admit(CLIENTS, address).decision for _ in range(60)]
            assert decisions == [Decision.ACCEPTED] * allowed + [Decision.HELD] * (60 - allowed)
        limits.limit_addresses({}, None)
        assert limits.admit(CLIENTS, "192.0.2.2") == Admission(Decision.ACCEPTED)

    def test_memory_does_not_grow_with_the_number_of_addresses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Above a maximum number of addresses, the oldest ones are forgotten."""
        monkeypatch.setattr(connection_limits, "ADDRESSES_MAX", 10)
        limits = ConnectionLimits(Clock().seconds)
        limits.limit_addresses({}, 1.0)
        for number in range(1000):
            limits.admit(CLIENTS, f"192.0.2.{number}")
            assert len(limits._rates) <= 10
        limits.limit_addresses({}, None)
        assert not limits._rates
