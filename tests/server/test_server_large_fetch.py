"""Fetch requests for thousands of partitions are parsed, read and answered in slices."""

from __future__ import annotations

from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from sink import Sink
from test_server_large_produce import MANY, Many
from test_server_produce_runs import batch, produce

from kreplica.errors import ErrorCode
from kreplica.runtime.disk import FileRange
from kreplica.server.fetch import handler
from kreplica.server.protocol.connection import Connection
from kreplica.server.transport.outgoing_buffers import Piece, piece_size
from kreplica.wire.messages import FETCH, METADATA

VERSION = 12
ROWS = 20_000
NO_SESSION = (0, -1)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Reading(Sink):
    """Transport that accepts all output and reads the file ranges."""

    def send(self, pieces: list[Piece]) -> int:
        self.sends += [piece.read() if isinstance(piece, FileRange) else bytes(piece) for piece in pieces]
        return sum(map(piece_size, pieces))


class Consumed(Many):
    """Broker whose clients read the records in fetch responses."""

    def connect(self) -> Connection:
        connection: Connection = self.resources.connection("PLAINTEXT", "1.2.3.4:5")
        sink = self.sinks[connection] = Reading()
        connection.attach(sink)
        return connection


@pytest.fixture(scope="module")
def shared() -> Many:
    return Consumed()


@pytest.fixture
def broker(shared: Many) -> Many:
    """The broker, with a new connection for this test and no session."""
    shared.connection = shared.connect()
    sessions = shared.program.fetch_sessions
    for session_id in list(sessions._sessions):
        sessions._end(session_id)
    return shared


@pytest.fixture
def always_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handle requests of any size as large ones."""
    monkeypatch.setattr(handler, "LARGE_BYTES", 1)


def frame_of(
    offsets: dict[int, int],
    session: tuple[int, int] = NO_SESSION,
    *,
    topic: str = "many",
    wait_ms: int = 0,
    correlation_id: int = 1,
) -> bytes:
    rows = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for index, offset in offsets.items()
    ]
    body = {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": topic, "partitions": rows}] if rows else [],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return request_frame(FETCH, VERSION, correlation_id, body)


def answer_of(broker: Many, number: int = 0, connection: Connection | None = None) -> tuple[int, dict[int, Any]]:
    """Return the session ID in a response, and its rows by partition."""
    broker.cluster.run_until(lambda: len(broker.answers(connection)) > number)
    body = parse_answer(memoryview(broker.answers(connection)[number]), FETCH.key, VERSION)[1]
    assert body["error_code"] == 0
    assert len(body["responses"]) <= 1
    return body["session_id"], {row["partition_index"]: row for t in body["responses"] for row in t["partitions"]}


def test_a_large_fetch_takes_many_iterations(broker: Many) -> None:
    """Another connection is served in each iteration; the response has a row for every partition, in order."""
    broker.give(frame_of(dict.fromkeys(range(ROWS), 0)))
    served = 0
    other = broker.connect()
    slices = broker.resources.flush_scope.slices
    while not broker.answers():
        before = slices.steps
        broker.read(request_frame(METADATA, 1, 1, {"topics": []}), connection=other)
        served += 1
        assert len(broker.answers(other)) == served
        broker.cluster.simulation.step()
        assert slices.steps - before <= 64
    assert served > 20
    session_id, rows = answer_of(broker)
    assert session_id == 0
    assert list(rows) == list(range(ROWS))
    assert {row["error_code"] for index, row in rows.items() if index >= MANY} == {UNKNOWN}


def test_a_large_fetch_opens_a_session(broker: Many, always_large: None) -> None:
    """The first response contains all partitions, later ones only changes; large changes to the session are applied."""
    ends = dict(enumerate(broker.ends()))
    broker.give(frame_of(ends, (0, 0)))
    session_id, rows = answer_of(broker)
    assert session_id != 0
    assert list(rows) == list(range(MANY))
    assert broker.program.fetch_sessions.partition_count == MANY
    broker.read(produce(1, batch(), topic="many", index=250), connection=broker.connect())
    broker.give(frame_of({}, (session_id, 1), correlation_id=2))
    assert list(answer_of(broker, 1)[1]) == [250]
    broker.give(frame_of(dict(enumerate(broker.ends())), (session_id, 2), correlation_id=3))
    assert answer_of(broker, 2)[1] == {}
    broker.give(frame_of({MANY: 0}, (session_id, 3), correlation_id=4))
    assert list(answer_of(broker, 3)[1]) == [MANY]
    assert broker.program.fetch_sessions.partition_count == MANY + 1


@pytest.mark.parametrize("epoch", [-1, 0], ids=["without", "session"])
def test_partition_that_changes_after_it_was_read(broker: Many, always_large: None, epoch: int) -> None:
    """The partition is read again before the request waits, so the response is not delayed until the timeout."""
    broker.give(frame_of(dict(enumerate(broker.ends())), (0, epoch), wait_ms=30_000))
    assert broker.connection.paused
    broker.read(produce(1, batch(), topic="many", index=0), connection=broker.connect())
    started_s = broker.cluster.simulation.now_s
    _, rows = answer_of(broker)
    assert rows[0]["records"]
    assert broker.cluster.simulation.now_s - started_s < 1


def test_a_large_fetch_waits(broker: Many, always_large: None) -> None:
    """A later record ends the wait; afterwards, no partition is watched."""
    broker.give(frame_of(dict(enumerate(broker.ends())), wait_ms=30_000))
    broker.cluster.run(1)
    assert broker.answers() == []
    broker.read(produce(1, batch(), topic="many", index=7), connection=broker.connect())
    _, rows = answer_of(broker)
    assert [index for index, row in rows.items() if row["records"]] == [7]
    assert not any(partition.watchers for partition in broker.program.partitions)


def test_client_that_disconnects_while_its_session_changes(broker: Many, always_large: None) -> None:
    """The session ends, and its partitions are no longer counted."""
    broker.give(frame_of(dict(enumerate(broker.ends())), (0, 0)))
    session_id, _ = answer_of(broker)
    sessions = broker.program.fetch_sessions
    broker.give(frame_of(dict.fromkeys(range(ROWS), 0), (session_id, 1)))
    broker.cluster.run_until(lambda: len(sessions._sessions[session_id].partitions) > MANY)
    broker.connection.lost()
    assert sessions.partition_count == 0
    assert len(sessions) == 0
    assert not any(partition.watchers for partition in broker.program.partitions)


def test_the_next_fetch_of_a_session_on_another_connection(broker: Many, always_large: None) -> None:
    """The earlier fetch is answered with the data read so far; the session continues."""
    ends = dict(enumerate(broker.ends()))
    broker.give(frame_of(ends, (0, 0)))
    session_id, _ = answer_of(broker)
    broker.read(produce(1, batch(), topic="many", index=299), connection=broker.connect())
    first, second = broker.connection, broker.connect()
    broker.give(frame_of(ends, (session_id, 1), correlation_id=2))
    broker.cluster.simulation.step()
    broker.read(frame_of({}, (session_id, 2)), connection=second)
    found = {**answer_of(broker, 1, first)[1], **answer_of(broker, 0, second)[1]}
    assert found[299]["records"]
