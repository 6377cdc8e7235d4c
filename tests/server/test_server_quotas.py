"""Quotas: rates as in Kafka, choice of the quota, bounded memory, and throttled requests in a simulated cluster."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from quota_scene import QuotaScene, produce_body
from server_scene import request_frame
from sink import Sink
from twisted.internet.task import Clock

from kreplica.cluster.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.server.quotas import client_quotas
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.server.quotas.throttle_time import THROTTLE_MAX_S, MeasuredRate, TokenBucket
from kreplica.wire.messages import CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CLIENT_QUOTAS, FETCH, PRODUCE

Row = dict[str, Any]
D = DEFAULT_ENTITY
THROTTLING_QUOTA_EXCEEDED = 89


class TestRates:
    """The arithmetic of Kafka's ``Rate`` and ``TokenBucket``."""

    def test_rate_below_the_limit_is_not_throttled(self) -> None:
        """The bytes of ten windows may be sent at once, since the rate is measured over at least ten windows."""
        rate = MeasuredRate(100.0, 11, 1.0)
        assert rate.record(1000.0, 5.0) == 0.0
        assert rate.record(1.0, 5.0) > 0.0

    def test_throttle_time_brings_the_rate_to_the_limit(self) -> None:
        """Twice the bytes allowed in ten seconds take ten more seconds, and are forgotten after eleven."""
        rate = MeasuredRate(100.0, 11, 1.0)
        throttle_s = rate.record(2000.0, 0.0)
        assert throttle_s == pytest.approx(10.0)
        assert rate.record(0.0, 11.0) == 0.0

    def test_old_windows_are_forgotten(self) -> None:
        """After all windows have passed, a client may send as much as at the start."""
        rate = MeasuredRate(100.0, 11, 1.0)
        assert rate.record(1000.0, 0.0) == 0.0
        assert not rate.is_idle(10.0)
        assert rate.is_idle(11.0)
        assert rate.record(1000.0, 11.0) == 0.0

    def test_steady_rate(self) -> None:
        """A client that pauses for the throttle times reaches its quota, within a tenth."""
        rate, now_s, sent = MeasuredRate(1000.0, 11, 1.0), 0.0, 0
        while now_s < 300.0:
            now_s += 0.01 + rate.record(300.0, now_s)
            sent += 300
        assert 0.9 * 300_000 < sent < 1.1 * 300_000

    def test_limit_of_zero(self) -> None:
        """Each request is throttled for the longest time; there is no division by zero."""
        assert MeasuredRate(0.0, 11, 1.0).record(1.0, 0.0) == THROTTLE_MAX_S
        assert TokenBucket(0.0, 11, 1.0).record(1.0, 0.0) == THROTTLE_MAX_S

    def test_token_bucket_recovers_at_its_rate(self) -> None:
        """The bucket may be overdrawn once, and is refilled up to the burst size."""
        bucket = TokenBucket(2.0, 5, 1.0)
        assert bucket.record(16.0, 0.0) == pytest.approx(3.0)
        assert bucket.wait_s(1.0) == pytest.approx(2.0)
        assert bucket.wait_s(3.0) == 0.0
        assert not bucket.is_idle(7.9)
        assert bucket.is_idle(8.0)


class TestClientQuotas:
    """The quota that applies to a client, and the clients that share it."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def quotas(self, clock: Clock) -> ClientQuotas:
        return ClientQuotas(clock.seconds)

    def test_the_most_specific_quota_applies(self, quotas: ClientQuotas) -> None:
        """The order is Kafka's: user with client ID comes first."""
        order = [("a", "c"), ("a", D), ("a", None), (D, "c"), (D, D), (D, None), (None, "c"), (None, D)]
        entries = {QuotaEntity(*names): {PRODUCER_BYTE_RATE: 1.0 + n} for n, names in enumerate(order)}
        for number, names in enumerate(order):
            quotas.replace(entries)
            usage = quotas.find(PRODUCER_BYTE_RATE, "User:a", "c")
            assert usage is not None
            assert usage.limit == 1.0 + number
            del entries[QuotaEntity(*names)]
        quotas.replace(entries)
        assert quotas.find(PRODUCER_BYTE_RATE, "User:a", "c") is None

    @pytest.mark.parametrize(
        ("entity", "shared_by_clients", "shared_by_users"),
        [
            (("a", None), True, False),
            ((D, None), True, False),
            ((D, D), False, False),
            (("a", D), False, False),
            ((None, D), False, True),
            ((None, "c"), False, True),
        ],
    )
    def test_shared_quotas(
        self,
        quotas: ClientQuotas,
        entity: tuple[str | None, str | None],
        shared_by_clients: bool,
        shared_by_users: bool,
    ) -> None:
        """A user's client IDs share the user's quota; users share the quota of a client ID."""
        quotas.replace({QuotaEntity(*entity): {PRODUCER_BYTE_RATE: 5.0}})
        first = quotas.find(PRODUCER_BYTE_RATE, "User:a", "c")
        assert first is not None
        assert (quotas.find(PRODUCER_BYTE_RATE, "User:a", "d") is first) is shared_by_clients
        assert (quotas.find(PRODUCER_BYTE_RATE, "User:b", "c") is first) is shared_by_users

    def test_changed_limits_keep_the_measured_use(self, quotas: ClientQuotas) -> None:
        """A new value also applies to the requests before the change."""
        quotas.replace({QuotaEntity("a", None): {PRODUCER_BYTE_RATE: 1000.0}})
        usage = quotas.find(PRODUCER_BYTE_RATE, "User:a", "c")
        assert usage is not None
        assert usage.record(5000.0, 0.0) == 0.0
        quotas.replace({QuotaEntity("a", None): {PRODUCER_BYTE_RATE: 100.0}})
        assert quotas.find(PRODUCER_BYTE_RATE, "User:a", "c") is usage
        assert usage.record(0.0, 0.0) > 0.0

    def test_invented_client_ids_use_bounded_memory(
        self, quotas: ClientQuotas, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The oldest client IDs are forgotten, idle ones first."""
        monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 100)
        quotas.replace({QuotaEntity(None, D): {PRODUCER_BYTE_RATE: 5.0}})
        for number in range(1000):
            usage = quotas.find(PRODUCER_BYTE_RATE, "User:a", f"c{number}")
            assert usage is not None
            usage.record(1.0, clock.seconds())
            assert len(quotas._usages[PRODUCER_BYTE_RATE]) <= 100
            assert len(quotas._found) <= 100


def fetch_body(offset: int | None, session_id: int = 0, epoch: int = -1, bytes_max: int = 2**20) -> Row:
    """Return a request for partition 0.

    :param offset: None if the session contains the partition.
    """
    rows = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": bytes_max, "log_start_offset": -1}]
    topics = [] if offset is None else [{"topic": "t", "partitions": rows}]
    return {
        "replica_id": -1, "max_wait_ms": 10, "min_bytes": 1, "max_bytes": 2**20, "isolation_level": 0,
        "session_id": session_id, "session_epoch": epoch, "topics": topics, "forgotten_topics_data": [],
        "rack_id": "",
    }  # fmt: skip


def fetch_header(scene: QuotaScene, body: Row) -> tuple[int, ...]:
    """Return the throttle time, error code, session ID and number of topics of a response with records.

    The sink does not keep file ranges, so only the beginning of the response can be read.
    """
    scene.cluster.run_until(lambda: not scene.connection.paused)
    before = len(scene.sink.sends)
    frame = request_frame(FETCH, 11, 7, body)
    with scene.resources.flush_scope:
        scene.resources.dispatch.frame_received(scene.connection, memoryview(bytearray(frame[4:])))
    scene.cluster.run_until(lambda: len(scene.sink.sends) > before)
    return struct.unpack_from(">ihii", scene.sink.sends[before], 8)


def seconds_until_read(scene: QuotaScene) -> float:
    """Return the time after which the connection is read again."""
    started_s = scene.program.runtime.reactor.seconds()
    scene.cluster.run_until(lambda: not scene.connection.paused)
    return scene.program.runtime.reactor.seconds() - started_s


@pytest.fixture(scope="module")
def scene() -> QuotaScene:
    return QuotaScene()


@pytest.fixture
def remove_quotas(scene: QuotaScene) -> Any:
    """Remove the quotas of a test, and forget its rates."""
    yield
    for name in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE):
        scene.set_quota(name, 0.0, remove=True)
    assert not scene.program.quotas.names
    scene.program.quotas._usages = {name: {} for name in scene.program.quotas._usages}


@pytest.mark.usefixtures("remove_quotas")
class TestThrottledRequests:
    """Responses have a throttle time, for which the connection is not read."""

    def test_producer_is_slowed_down(self, scene: QuotaScene) -> None:
        """A throttled producer receives its response at once, with a throttle time; no request is rejected."""
        scene.set_quota(PRODUCER_BYTE_RATE, 10_000)
        assert scene.produce(50_000)["throttle_time_ms"] == 0
        assert not scene.connection.paused
        answer = scene.produce(150_000)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        assert 9_000 < answer["throttle_time_ms"] < 11_500
        assert seconds_until_read(scene) == pytest.approx(answer["throttle_time_ms"] / 1000, abs=0.1)
        metrics = scene.program.quotas.metrics[PRODUCER_BYTE_RATE]
        assert metrics.throttled == 1
        assert metrics.throttled_s == pytest.approx(answer["throttle_time_ms"] / 1000, abs=0.01)

    def test_similar_requests_of_one_read(self, scene: QuotaScene) -> None:
        """Similar requests are handled together, and each response has the throttle time of the whole run."""
        scene.set_quota(PRODUCER_BYTE_RATE, 10_000)
        scene.produce(3_000)  # the dispatcher learns the template
        answers = scene.ask_all(PRODUCE, 9, [produce_body(30_000) for _ in range(6)])
        assert all(each["responses"][0]["partition_responses"][0]["error_code"] == 0 for each in answers)
        offsets = [each["responses"][0]["partition_responses"][0]["base_offset"] for each in answers]
        assert offsets == list(range(offsets[0], offsets[0] + 6))
        assert min(each["throttle_time_ms"] for each in answers) > 5_000
        assert scene.connection.paused

    def test_other_clients_are_not_slowed_down(self, scene: QuotaScene) -> None:
        """A quota for one client ID does not apply to another."""
        scene.set_quota(PRODUCER_BYTE_RATE, 10, [{"entity_type": "client-id", "entity_name": "another"}])
        assert scene.produce(50_000)["throttle_time_ms"] == 0
        entity = [{"entity_type": "client-id", "entity_name": "another"}]
        scene.set_quota(PRODUCER_BYTE_RATE, 0.0, entity, remove=True)

    def test_consumer_is_slowed_down(self, scene: QuotaScene) -> None:
        """After a response above the quota, a consumer is muted, and receives no records until its rate recovers."""
        for _ in range(4):
            scene.produce(50_000)
        scene.set_quota(CONSUMER_BYTE_RATE, 10_000)
        # The size of a response is limited to the bytes that the quota allows at once.
        assert fetch_header(scene, fetch_body(0))[0] == 0
        throttle_ms = fetch_header(scene, fetch_body(0))[0]
        assert 0 < throttle_ms < 6_000
        assert seconds_until_read(scene) == pytest.approx(throttle_ms / 1000, abs=0.1)
        answer = scene.ask(FETCH, 11, fetch_body(0))
        assert (answer["error_code"], list(answer["responses"])) == (0, [])
        assert 0 < answer["throttle_time_ms"] < 6_000
        metrics = scene.program.quotas.metrics[CONSUMER_BYTE_RATE]
        assert metrics.throttled == 2
        assert 100_000 < metrics.used <= 155_000
        started_s = scene.program.runtime.reactor.seconds()
        while fetch_header(scene, fetch_body(0))[0]:
            assert seconds_until_read(scene) > 0
        assert scene.program.runtime.reactor.seconds() - started_s < 12.0

    @pytest.mark.parametrize(
        ("size", "fetch_bytes", "most"),
        [(300, 2**20, 1.15), (300, 500, 1.15), (2_500, 2**20, 1.15), (30_000, 2**20, 1.65)],
    )
    def test_consumer_gets_its_quota(self, scene: QuotaScene, size: int, fetch_bytes: int, most: float) -> None:
        """Consumers reach their quota with batches and fetches of any size; only batches above the burst exceed it."""
        for _ in range(3):
            offset = scene.produce(size)["responses"][0]["partition_responses"][0]["base_offset"]
        scene.set_quota(CONSUMER_BYTE_RATE, 1_000)
        metrics = scene.program.quotas.metrics[CONSUMER_BYTE_RATE]
        seconds, used = scene.program.runtime.reactor.seconds, metrics.used
        started_s = seconds()
        while seconds() - started_s < 600.0:
            fetch_header(scene, fetch_body(offset - 2, bytes_max=fetch_bytes))
            scene.cluster.run(0.01)
        assert 0.85 < (metrics.used - used) / 600_000 < most

    def test_fetch_session_of_a_throttled_consumer(self, scene: QuotaScene) -> None:
        """A throttled fetch opens no session; the next fetch of a session returns the withheld partitions."""
        offset = scene.produce(50_000)["responses"][0]["partition_responses"][0]["base_offset"]
        session = scene.ask(FETCH, 11, fetch_body(offset + 1, epoch=0))["session_id"]
        assert session
        scene.set_quota(CONSUMER_BYTE_RATE, 10_000)
        while fetch_header(scene, fetch_body(0))[0] == 0:
            pass
        scene.produce(20_000)
        throttled = scene.ask(FETCH, 11, fetch_body(None, session, epoch=1))
        assert (throttled["error_code"], throttled["session_id"], list(throttled["responses"])) == (0, session, [])
        assert throttled["throttle_time_ms"] > 0
        sessions = len(scene.program.fetch_sessions)
        refused = scene.ask(FETCH, 11, fetch_body(0, epoch=0))
        assert (refused["session_id"], list(refused["responses"])) == (0, [])
        assert refused["throttle_time_ms"] > 0
        assert len(scene.program.fetch_sessions) == sessions
        scene.set_quota(CONSUMER_BYTE_RATE, 0.0, remove=True)
        scene.cluster.run_until(lambda: not scene.connection.paused)
        assert fetch_header(scene, fetch_body(None, session, epoch=2)) == (0, 0, session, 1)

    def test_strict_and_permissive_mutations(self, scene: QuotaScene) -> None:
        """New clients get an error for topics beyond the quota; older ones are throttled."""
        scene.set_quota(CONTROLLER_MUTATION_RATE, 1)

        def create(version: int, *names: str) -> Row:
            topics = [
                {"name": name, "num_partitions": 12, "replication_factor": 1, "assignments": [], "configs": []}
                for name in names
            ]
            return scene.ask(
                CREATE_TOPICS, version, {"topics": topics, "timeout_ms": 5000, "validate_only": False}
            )

        answer = create(6, "first", "second")
        assert {row["name"]: row["error_code"] for row in answer["topics"]} == {
            "first": 0,
            "second": THROTTLING_QUOTA_EXCEEDED,
        }
        assert 0 < answer["throttle_time_ms"] <= 1_100
        answer = create(5, "third")
        assert [row["error_code"] for row in answer["topics"]] == [0]
        assert answer["throttle_time_ms"] > 8_000
        answer = scene.ask(DELETE_TOPICS, 5, {"topic_names": ["first"], "timeout_ms": 5000})
        assert [row["error_code"] for row in answer["responses"]] == [0]

    def test_described_quotas(self, scene: QuotaScene) -> None:
        """Filters match exact names, defaults or anything; ``strict`` excludes entities with other types."""
        user, client = ({"entity_type": kind, "entity_name": "x/y z"} for kind in ("user", "client-id"))
        scene.set_quota(CONSUMER_BYTE_RATE, 7, [user, client])
        scene.set_quota(REQUEST_PERCENTAGE, 12.5, [user])
        scene.set_quota(PRODUCER_BYTE_RATE, 9)

        def describe(*components: tuple[str, int, str | None], strict: bool = False) -> list[Row]:
            rows = [{"entity_type": t, "match_type": kind, "match": match} for t, kind, match in components]
            answer = scene.ask(DESCRIBE_CLIENT_QUOTAS, 1, {"components": rows, "strict": strict})
            assert answer["error_code"] == 0
            return [{"entity": list(row["entity"]), "values": list(row["values"])} for row in answer["entries"]]

        pair = {"entity": [user, client], "values": [{"key": CONSUMER_BYTE_RATE, "value": 7.0}]}
        alone = {"entity": [user], "values": [{"key": REQUEST_PERCENTAGE, "value": 12.5}]}
        default = {
            "entity": [{"entity_type": "client-id", "entity_name": None}],
            "values": [{"key": PRODUCER_BYTE_RATE, "value": 9.0}],
        }
        assert len(describe()) == 3
        assert describe(("user", 0, "x/y z"), strict=True) == [alone]
        assert {len(row["entity"]) for row in describe(("user", 2, None))} == {1, 2}
        assert describe(("user", 0, "x/y z"), ("client-id", 2, None)) == [pair]
        assert describe(("client-id", 1, None)) == [default]
        assert describe(("user", 0, "nobody")) == []
        for entity, name in (([user, client], CONSUMER_BYTE_RATE), ([user], REQUEST_PERCENTAGE)):
            scene.set_quota(name, 0.0, entity, remove=True)


def test_handlers_without_quotas_are_not_wrapped(scene: QuotaScene) -> None:
    """A quota costs nothing until one is set, and nothing after the last is removed."""
    table = scene.resources.dispatch.table
    plain = table[PRODUCE.key].handle
    scene.set_quota(PRODUCER_BYTE_RATE, 1e9)
    assert table[PRODUCE.key].handle is not plain
    assert scene.produce(10)["throttle_time_ms"] == 0
    scene.set_quota(PRODUCER_BYTE_RATE, 0.0, remove=True)
    assert table[PRODUCE.key].handle is plain
    assert scene.produce(10)["throttle_time_ms"] == 0


def test_closed_connections_are_forgotten(scene: QuotaScene) -> None:
    """Clients that disconnect while they are muted do not fill up memory."""
    from kreplica.server.quotas.muted_connections import SWEEP_MIN, MutedConnections

    clock = Clock()
    muted = MutedConnections(clock)
    for number in range(1000):
        connection = scene.resources.connection("PLAINTEXT", f"1.2.3.5:{number}")
        connection.attach(Sink())
        muted.mute(connection, 1000.0)
        connection.lost()
        assert len(muted) <= SWEEP_MIN
    muted.stop()
    assert not clock.getDelayedCalls()
