"""Client metrics subscriptions, and the metrics that clients push (KIP-714)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from test_server_apis_configs import DELETE, SET, alter, describe
from twisted.internet.defer import Deferred

from kreplica.cluster.uuids import uuid_text
from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.membership.settings.client_metrics import ClientMetrics
from kreplica.model import ZERO_UUID
from kreplica.server.handlers.cluster.client_telemetry import WAITING_MAX, PushTelemetry
from kreplica.server.telemetry import clients as telemetry_clients
from kreplica.server.telemetry.clients import Push, TelemetryClients
from kreplica.server.telemetry.otlp import InvalidTelemetry, MetricValue, count_metrics, read_metrics
from kreplica.wire.compression import Codec, DecompressedTooLarge, compress
from kreplica.wire.messages import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    LIST_CONFIG_RESOURCES,
    PUSH_TELEMETRY,
)
from tests.support.broker_scene import Row, Scene, on_broker

CLIENT_METRICS = 16
INVALID_CONFIG, INVALID_REQUEST, UNSUPPORTED_VERSION, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 40, 42, 35, 76, 87
THROTTLED, UNKNOWN_SUBSCRIPTION, TOO_LARGE = 89, 117, 118

METRICS = bytes.fromhex(
    "0a 64"  # MetricsData.resource_metrics, 100 bytes
    "  0a 0e"  # resource, 14 bytes
    "    0a 0c  0a 05 67726f7570  12 03 0a 01 67"  # attribute "group": "g"
    "  12 52"  # scope_metrics, 82 bytes
    "    12 2a"  # metrics, 42 bytes
    "      0a 05 62797465 73"  # name "bytes"
    "      1a 01 42"  # unit "B"
    "      3a 1e"  # sum, 30 bytes
    "        0a 18  19 00e1f505 00000000  31 2a00000000000000  3a 04 0a 02 6964"  # at 100 ms: 42, "id": no value
    "        10 02  18 01"  # cumulative, monotonic
    "    12 24"  # metrics, 36 bytes
    "      0a 03 617667"  # name "avg"
    "      2a 1d"  # gauge, 29 bytes
    "        0a 09  21 000000000000f83f"  # 1.5
    "        0a 09  21 000000000000f87f"  # not a number
    "        0a 05  3a 03 0a 01 78"  # no value
)


async def list_resources(scene: Scene, *types: int) -> Any:
    """Return the listed resources by type and name, or the error code."""
    answer = await scene.ask(LIST_CONFIG_RESOURCES, {"resource_types": list(types)}, 1)
    if answer["error_code"]:
        return answer["error_code"]
    return [(row["resource_type"], row["resource_name"]) for row in answer["config_resources"]]


async def get(scene: Scene, instance_id: UUID = ZERO_UUID) -> Row:
    return await scene.ask(GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": instance_id}, 0)


async def push(
    scene: Scene, subscription: Row, metrics: bytes, codec: int = Codec.NONE, *, terminating: bool = False, **other: Any
) -> int:
    body = {
        "client_instance_id": subscription["client_instance_id"],
        "subscription_id": subscription["subscription_id"],
        "terminating": terminating,
        "compression_type": codec,
        "metrics": metrics,
        **other,
    }
    code: int = (await scene.ask(PUSH_TELEMETRY, body, 0))["error_code"]
    return code


def test_subscriptions_are_changed_like_other_settings(tmp_path: Path) -> None:
    """Subscriptions are validated as in Kafka, listed, described, and deleted along with their last setting."""

    async def scenario(scene: Scene) -> None:
        async def change(*settings: tuple[str, int, str | None], name: str = "sub") -> int:
            return await alter(scene, name, *settings, kind=CLIENT_METRICS)

        assert await change(("metrics", SET, "a.,b."), ("interval.ms", SET, "100")) == 0
        assert await change(("match", SET, "client_id=sc.*,client_source_port=[0-9]+")) == 0
        for setting, code in (
            (("unknown", SET, "1"), INVALID_REQUEST),
            (("interval.ms", SET, "99"), INVALID_REQUEST),
            (("interval.ms", SET, "3600001"), INVALID_REQUEST),
            (("interval.ms", SET, "often"), INVALID_REQUEST),
            (("match", SET, "client_id"), INVALID_CONFIG),
            (("match", SET, "host=a"), INVALID_CONFIG),
            (("match", SET, "client_id=a=b"), INVALID_CONFIG),
            (("match", SET, "client_id=("), INVALID_CONFIG),
        ):
            assert await change(setting) == code, setting
        assert await change(("metrics", SET, "a."), name="") == INVALID_REQUEST
        code, rows = await describe(scene, CLIENT_METRICS, "sub", full=True)
        assert (code, {name: (row["value"], row["config_source"]) for name, row in rows.items()}) == (
            0,
            {
                "metrics": ("a.,b.", 7),
                "interval.ms": ("100", 7),
                "match": ("client_id=sc.*,client_source_port=[0-9]+", 7),
            },
        )
        assert await describe(scene, CLIENT_METRICS, "absent") == (0, {})
        assert (await describe(scene, CLIENT_METRICS, ""))[0] == INVALID_REQUEST
        await scene.make_topic("t")
        assert await list_resources(scene) == [(2, "t"), (4, "1"), (16, "sub")]
        assert await list_resources(scene, 16, 32, 8, 16) == [(16, "sub")]
        assert await list_resources(scene, 3) == UNSUPPORTED_VERSION
        keys = {GET_TELEMETRY_SUBSCRIPTIONS.key, PUSH_TELEMETRY.key}
        assert not keys & set(scene.connection.versions), "clients look for a subscription only if there is one"
        assert keys <= set((await scene.connect()).versions)
        assert await change(*((name, DELETE, None) for name in rows)) == 0
        assert not keys & set((await scene.connect()).versions)
        assert await change(("match", DELETE, None)) == 0
        assert await list_resources(scene, 16) == []
        assert await scene.zookeeper.get_children("/config/client-metrics") == []
        assert await scene.zookeeper.get_children("/config/changes") == [], "Kafka's brokers could not read it"

    on_broker(tmp_path, scenario)


def test_change_on_another_broker_takes_effect(tmp_path: Path) -> None:
    """All brokers follow the subscriptions in ZooKeeper; one that cannot be read is ignored."""

    async def scenario(scene: Scene) -> None:
        assert await alter(scene, "of another", ("metrics", SET, "*"), kind=CLIENT_METRICS) == 0
        other = scene.standalone.brokers[1]
        other_metrics = other.dynamic_settings.client_metrics
        await scene.until(lambda: other_metrics.names == ["of another"], "the other broker follows")
        await scene.zookeeper.create("/config/client-metrics/bad", b'{"version":1,"config":{"match":"x"}}')
        await scene.zookeeper.create("/config/client-metrics/worse", b"{not json")
        await scene.zookeeper.set_data("/config/client-metrics", b"changed")
        await scene.until(lambda: other_metrics.names == ["bad", "of another"], "the other broker follows")
        connection = await scene.connect(other)
        answer = await scene.ask(
            GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": ZERO_UUID}, 0, connection=connection
        )
        assert (answer["requested_metrics"], answer["push_interval_ms"]) == (["*"], 300_000)

    on_broker(tmp_path, scenario, brokers=2, errors_logged=True)


def test_pushed_metrics_are_kept(tmp_path: Path) -> None:
    """A client may compress its metrics in any format; the errors for bad requests are Kafka's."""

    async def scenario(scene: Scene) -> None:
        for name, metrics, interval, match in (
            ("one", "b.,a.", "100", "client_id=scene,client_software_name=.*"),
            ("two", "c.", "200", ""),
            ("other", "d.", "150", "client_id=other"),
        ):
            settings = (("metrics", SET, metrics), ("interval.ms", SET, interval), ("match", SET, match))
            assert await alter(scene, name, *settings, kind=CLIENT_METRICS) == 0
        subscription = await get(scene)
        instance_id = subscription["client_instance_id"]
        assert subscription["error_code"] == 0
        assert instance_id != ZERO_UUID
        assert (subscription["requested_metrics"], subscription["push_interval_ms"]) == (["a.", "b.", "c."], 100)
        assert list(subscription["accepted_compression_types"]) == [4, 3, 1, 2]
        assert (subscription["telemetry_max_bytes"], subscription["delta_temporality"]) == (1000, False)
        assert (await get(scene, instance_id))["error_code"] == THROTTLED
        assert await push(scene, subscription, METRICS) == 0, "the first push need not wait"
        client = scene.broker.telemetry.find(instance_id)
        assert client is not None
        assert client.push is not None
        assert (client.push.metrics, client.pushes, client.subscribed.names) == (2, 1, ("one", "two"))
        (connection,) = (each for each in scene.broker.server.resources.connections if each.names.client_instance_id)
        assert connection.names.client_instance_id == uuid_text(instance_id)
        for codec in Codec:
            fresh = await get(scene)
            assert await push(scene, fresh, compress(codec, METRICS), codec) == 0
        fresh = await get(scene)
        assert await push(scene, fresh, b"", other=1) == 0, "a push without metrics"
        fresh = await get(scene)
        assert await push(scene, fresh, b"\xff" * 9) == INVALID_RECORD
        fresh = await get(scene)
        assert await push(scene, fresh, METRICS, Codec.ZSTD) == INVALID_RECORD
        fresh = await get(scene)
        assert await push(scene, fresh, bytes(1001)) == TOO_LARGE
        fresh = await get(scene)
        assert await push(scene, fresh, METRICS, 5) == UNSUPPORTED_COMPRESSION
        assert (await get(scene, fresh["client_instance_id"]))["error_code"] == 0
        assert await push(scene, subscription | {"client_instance_id": ZERO_UUID}, METRICS) == INVALID_REQUEST
        unknown = {"client_instance_id": UUID(int=5), "subscription_id": subscription["subscription_id"]}
        assert await push(scene, unknown, METRICS) == UNKNOWN_SUBSCRIPTION
        assert (await get(scene, UUID(int=5)))["error_code"] == 0
        again = await get(scene)
        assert await push(scene, again, METRICS) == 0
        assert await push(scene, again, METRICS) == THROTTLED
        assert await push(scene, again, METRICS, terminating=True) == 0
        assert await push(scene, again, METRICS, terminating=True) == INVALID_REQUEST
        counts = scene.broker.telemetry
        assert (counts.accepted, counts.rejected) == (8, 8)

    on_broker(tmp_path, scenario, "telemetry.max.bytes=1000")


def test_metrics_are_read() -> None:
    """Gauges and sums have their attributes, units and times; values that are not numbers are unknown."""
    data = compress(Codec.ZSTD, METRICS)
    assert count_metrics(Codec.ZSTD, data, 1000) == 2
    pushed = read_metrics(Codec.ZSTD, data, 1000)
    assert (pushed.labels, pushed.is_complete) == ({"group": "g"}, True)
    assert list(pushed.values) == [
        MetricValue("avg", "gauge", "", {}, 1.5, 0),
        MetricValue("avg", "gauge", "", {}, None, 0),
        MetricValue("avg", "gauge", "", {"x": ""}, None, 0),
        MetricValue("bytes", "sum", "B", {"id": ""}, 42, 100),
    ]


def test_bad_metrics_are_refused() -> None:
    """Neither data that is too large nor malformed data is stored in memory."""
    bomb = compress(Codec.GZIP, bytes(100_000))
    with pytest.raises(DecompressedTooLarge):
        count_metrics(Codec.GZIP, bomb, 99_999)
    with pytest.raises(ProtocolError):
        count_metrics(Codec.LZ4, METRICS, 1000)
    with pytest.raises(InvalidTelemetry, match="not in OpenTelemetry's format"):
        count_metrics(Codec.NONE, METRICS[:-1], 1000)


class Peer:
    """The parts of a connection that belong to its client."""

    def __init__(self, peer: str = "192.0.2.1:5000") -> None:
        from kreplica.server.protocol.client_names import ClientNames

        self.peer, self.user, self.names = peer, "User:a", ClientNames("app", "lib", "1.0")


class Clients:
    """Clients of a broker with a clock.

    :ivar now_s: the time of the clock.
    """

    def __init__(self, kept_bytes_max: int = 1000, **settings: str) -> None:
        self.now_s = 100.0
        self.subscriptions = ClientMetrics()
        self.subscriptions.apply("sub", {"metrics": "*", "interval.ms": "10000", **settings})
        ids = iter(range(1, 10**6))
        self.all = TelemetryClients(
            lambda: self.now_s, self.subscriptions, lambda: UUID(int=next(ids)), 1000, kept_bytes_max
        )
        self.peer: Any = Peer()

    def get(self, instance_id: UUID = ZERO_UUID) -> Any:
        return self.all.subscribe(instance_id, self.peer, "app")

    def push(self, client: Any, data: bytes = b"", *, terminating: bool = False) -> None:
        found = self.all.begin_push(
            client.instance_id,
            self.peer,
            "app",
            subscription_id=client.subscription_id,
            codec=0,
            size=len(data),
            terminating=terminating,
        )
        self.all.keep(found, Push(0, data, 1, 0))

    def refused(self, request: Any, *arguments: Any) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            request(*arguments)
        return caught.value.code

    def with_push(self) -> Sequence[int]:
        return [client.instance_id.int for client in self.all if client.push is not None]


def test_interval_is_enforced() -> None:
    """A client pushes once per interval, and once more after it has requested its subscription."""
    clients = Clients()
    client = clients.get()
    clients.push(client)
    assert clients.refused(clients.push, client) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clients.now_s += 9.9
    assert clients.refused(clients.push, client) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert clients.refused(clients.get, client.instance_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clients.now_s += 0.1
    clients.push(client)
    clients.now_s += 10
    assert clients.get(client.instance_id) is client
    clients.push(client)


def test_changed_subscription_is_announced() -> None:
    """The next push is rejected once, and the client may request the new subscription at once."""
    clients = Clients(match="client_software_version=1.*")
    client = clients.get()
    clients.push(client)
    first_id = client.subscription_id
    clients.subscriptions.apply("sub", {"metrics": "a.", "interval.ms": "10000"})
    clients.now_s += 10

    def push_old() -> None:
        clients.all.begin_push(
            client.instance_id, clients.peer, "app", subscription_id=first_id, codec=0, size=0, terminating=False
        )

    assert clients.refused(push_old) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert clients.get(client.instance_id).subscribed.metrics == ("a.",)
    assert client.subscription_id != first_id
    clients.push(client)


def test_client_without_a_subscription_pushes_no_metrics() -> None:
    """The client requests its subscription again after the default interval."""
    clients = Clients(match="client_id=other")
    client = clients.get()
    assert (client.subscribed.metrics, client.subscribed.interval_ms) == ((), 300_000)


def test_oldest_metrics_make_room() -> None:
    """The total size of the kept metrics stays below the limit."""
    clients = Clients(kept_bytes_max=30)
    for _ in range(5):
        clients.push(clients.get(), bytes(10))
    assert clients.with_push() == [3, 4, 5]
    assert clients.all.kept_bytes == 30
    clients.push(clients.get(), bytes(31))
    assert (clients.with_push(), clients.all.kept_bytes) == ([], 0)


def test_silent_clients_are_forgotten() -> None:
    """A client is forgotten after three intervals without a request, as in Kafka, but not before five minutes."""
    for interval_ms, kept_s in ((10_000, 300), (200_000, 600)):
        check_silent(Clients(**{"interval.ms": str(interval_ms)}), kept_s)


def check_silent(clients: Clients, kept_s: float) -> None:
    client = clients.get()
    clients.push(client, b"metrics")
    clients.now_s += kept_s
    assert list(clients.all) == [client]
    clients.now_s += 0.1
    assert list(clients.all) == []
    assert clients.all.kept_bytes == 0
    assert clients.get(client.instance_id) is not client


def test_number_of_clients_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that invents new IDs displaces the clients with the oldest requests."""
    monkeypatch.setattr(telemetry_clients, "CLIENTS_MAX", 3)
    clients = Clients()
    first = clients.get()
    clients.push(first, b"metrics")
    for _ in range(3):
        clients.get()
    assert [client.instance_id.int for client in clients.all] == [2, 3, 4]
    assert clients.all.kept_bytes == 0


class PushRequest:
    """A PushTelemetry request of a new client.

    :ivar codes: error codes of its responses.
    """

    def __init__(self, clients: Clients) -> None:
        client = clients.get()
        self.body = {
            "client_instance_id": client.instance_id,
            "subscription_id": client.subscription_id,
            "terminating": False,
            "compression_type": 0,
            "metrics": METRICS,
        }
        self.connection, self.client_id = clients.peer, "app"
        self.codes: list[int] = []

    def respond(self, body: Row) -> None:
        self.codes.append(body["error_code"])

    def on_abandoned(self, callback: object) -> None:
        """The connection of this request stays open."""


def test_waiting_pushes_are_limited() -> None:
    """Pushes are parsed one at a time; beyond the limit, they are rejected with an error that clients retry."""
    clients = Clients()
    started: list[Deferred[int]] = []

    class Offload:
        def run(self, *_: object) -> Deferred[int]:
            started.append(Deferred())
            return started[-1]

    handle = PushTelemetry(clients.all, Offload(), lambda: 0)  # type: ignore[arg-type]
    requests = [PushRequest(clients) for _ in range(WAITING_MAX + 2)]
    for request in requests:
        handle(request)  # type: ignore[arg-type]
    assert len(started) == 1
    assert [request.codes for request in requests[-2:]] == [[], [THROTTLED]], "the last one does not wait"
    for _ in requests[:-1]:
        started[-1].callback(1)
    assert [request.codes for request in requests] == [[0]] * (WAITING_MAX + 1) + [[THROTTLED]]
