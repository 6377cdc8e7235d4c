"""Counts the function calls of one request and compares them with a recorded baseline.

A broker in a simulated cluster receives frames as if from a connection. Calls of Python and C functions are counted
from the frame to the bytes of the response, without the simulator's own code. No clock is involved, so the counts are
exact. They depend on the version of the interpreter: the baseline has counts for each. ``python -m benchmarks calls``
fails if a request makes more calls than its baseline. ``python -m benchmarks.calls`` records the baseline of this
interpreter.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import kreplica
from kreplica.cluster.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.runtime.disk import FileRange
from kreplica.server.transport.outgoing_buffers import Piece, piece_size
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import FETCH, LIST_OFFSETS, METADATA, PRODUCE, Api
from kreplica.wire.records import Record

BASELINE = Path(__file__).parent / "calls_baseline.json"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

HOME = os.path.join(os.path.dirname(kreplica.__file__), "")
SIMULATOR = os.path.join(HOME, "testing", "")
PRODUCT = (HOME, "<")
"""Prefixes of the file names of the product's functions; generated functions have names like ``<parser of ...>``."""

PARTITIONS = 10
BATCHES_BEFORE = 20
"""Batches in each partition before the first measurement, so that further batches do not change a fetch's search."""

WARM_UP = 20
ROUNDS = 50
RUN = 8

Body = dict[str, Any]


class Cost(NamedTuple):
    """Calls made for one request, or for all requests of one read."""

    python_calls: int
    c_calls: int


class AboveBaseline(Exception):
    """A request makes more calls than its baseline allows."""


def run() -> list[dict[str, Any]]:
    """Measure every request, and compare the counts with the baseline.

    :return: one row for each request.
    :raise AboveBaseline: a request makes more calls than the baseline of this interpreter allows.
    """
    rows = compare(measure(), read_baseline())
    above = [row for row in rows if row["above"]]
    if above:
        raise AboveBaseline("; ".join(describe(row) for row in above))
    return rows


def describe(row: Mapping[str, Any]) -> str:
    """Return one row of ``compare`` as text."""
    return (
        f"{row['request']}: {row['Python calls']} Python and {row['C calls']} C calls, "
        f"baseline {row['baseline Python']} and {row['baseline C']}"
    )


def compare(costs: Mapping[str, Cost], baseline: Mapping[str, Cost]) -> list[dict[str, Any]]:
    """Return one row for each request; ``above`` is True if it exceeds its baseline, False without a baseline."""
    rows = []
    for request, cost in costs.items():
        allowed = baseline.get(request)
        rows.append(
            {
                "request": request,
                "Python calls": cost.python_calls,
                "C calls": cost.c_calls,
                "baseline Python": allowed.python_calls if allowed else None,
                "baseline C": allowed.c_calls if allowed else None,
                "above": bool(allowed and (cost.python_calls > allowed.python_calls or cost.c_calls > allowed.c_calls)),
            }
        )
    return rows


def read_baseline(path: Path = BASELINE, python: str = PYTHON) -> dict[str, Cost]:
    """Return the baseline of an interpreter version; empty if none was recorded."""
    recorded = json.loads(path.read_text()) if path.exists() else {}
    return {request: Cost(*cost) for request, cost in recorded.get(python, {}).items()}


def write_baseline(costs: Mapping[str, Cost], path: Path = BASELINE, python: str = PYTHON) -> None:
    """Replace the baseline of one interpreter version."""
    recorded = json.loads(path.read_text()) if path.exists() else {}
    recorded[python] = costs
    path.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")


def measure() -> dict[str, Cost]:
    """Return the calls of each request, as the median of 50, and those of the ZooKeeper client's requests."""
    from benchmarks import zookeeper_calls

    return _broker_costs() | zookeeper_calls.costs()


def _broker_costs() -> dict[str, Cost]:
    leader = Leader(brokers=1)
    session_id = leader.response(FETCH, 11, fetch_body(PARTITIONS, "empty", session_epoch=0))["session_id"]
    assert session_id
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    ends = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [row]}]}
    topic = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    limited = Leader(brokers=1)
    limited.set_quotas({PRODUCER_BYTE_RATE: 1e12, CONSUMER_BYTE_RATE: 1e12})
    return {
        "Produce, one partition, acks=1": leader.cost(PRODUCE, 9, lambda _: produce_body(1)),
        f"Produce, {PARTITIONS} partitions, acks=1": leader.cost(PRODUCE, 9, lambda _: produce_body(PARTITIONS)),
        f"Produce, {RUN} requests in one read": leader.cost(PRODUCE, 9, lambda _: produce_body(1), times=RUN),
        "Produce, one partition, with a quota that is not reached": limited.cost(PRODUCE, 9, lambda _: produce_body(1)),
        "Fetch, one partition, with a quota that is not reached": limited.cost(FETCH, 11, lambda _: fetch_body(1)),
        "Fetch, one partition": leader.cost(FETCH, 11, lambda _: fetch_body(1)),
        f"Fetch, {PARTITIONS} partitions": leader.cost(FETCH, 11, lambda _: fetch_body(PARTITIONS)),
        f"Fetch in a session, {PARTITIONS} partitions without new records": leader.cost(
            FETCH, 11, lambda number: fetch_body(0, session_id=session_id, session_epoch=1 + number)
        ),
        "ListOffsets, one partition": leader.cost(LIST_OFFSETS, 5, lambda _: ends),
        f"Metadata, one topic of {PARTITIONS} partitions": leader.cost(METADATA, 8, lambda _: topic),
        "Produce, acks=all, with the fetches of two followers": Leader(brokers=3).replicated_cost(),
    }


class Sink:
    """Connection transport that accepts everything and keeps the bytes, except file ranges."""

    def __init__(self) -> None:
        self.sends: list[bytes] = []

    def send(self, pieces: list[Piece]) -> int:
        """Accept all pieces."""
        self.sends += [bytes(piece) for piece in pieces if not isinstance(piece, FileRange)]
        return sum(map(piece_size, pieces))

    held_bytes = 0

    def release_frame(self) -> None:
        """Do nothing: frames are not pooled here."""

    pause_reading = resume_reading = close = abort = mark_control = release_frame


class Leader:
    """Connection to a broker that leads all partitions of topic ``t``, and of the topic ``empty``."""

    def __init__(self, brokers: int) -> None:
        self.cluster = SimulatedCluster(seed=1, brokers=brokers)
        self.cluster.start()
        client = self.cluster.client()
        partitions = PARTITIONS if brokers == 1 else 1
        for topic in ("t", "empty"):
            self.cluster.run_until(client.create_topic(topic, partitions, replication_factor=brokers))
            self.cluster.wait_in_sync(topic, range(partitions))
        if brokers == 1:
            for partition in range(partitions):
                for _ in range(BATCHES_BEFORE):
                    self.cluster.run_until(client.produce("t", partition, _batch()))
        self._program = self.cluster.brokers[self.cluster.leader_of("t", 0)].program
        self.resources = self._program.server.resources
        self._sink = Sink()
        self._connection = self.resources.connection("PLAINTEXT", "1.2.3.4:5")
        self._connection.attach(self._sink)

    def set_quotas(self, quotas: Mapping[str, float]) -> None:
        """Set the quotas that apply to each user."""
        self._program.quotas.replace({QuotaEntity(user=DEFAULT_ENTITY): quotas})

    def response(self, api: Api, version: int, body: Body) -> Any:
        """Send a request that is answered at once, and return the parsed response."""
        self.receive([build_frame(api, version, body)])
        frame = memoryview(b"".join(self._sink.sends))[4:]
        self._sink.sends.clear()
        _, start = parse_response_header(api.response_header_version(version), frame)
        return api.response.parse(version, frame, start)

    def cost(self, api: Api, version: int, body: Callable[[int], Body], *, times: int = 1) -> Cost:
        """Return the median cost of one read.

        :param body: returns the request's body for the number of a round.
        :param times: number of copies of the request in one read.
        """
        costs = []
        for number in range(WARM_UP + ROUNDS):
            frames = [build_frame(api, version, body(number)) for _ in range(times)]
            cost = count_calls(lambda frames=frames: self.receive(frames))
            assert self._sink.sends, "the request was not answered at once"
            self._sink.sends.clear()
            costs.append(cost)
        return median(costs[WARM_UP:])

    def replicated_cost(self) -> Cost:
        """Return the median cost of a produce with acks=all, in Python calls of all brokers."""
        frame = build_frame(PRODUCE, 9, produce_body(1) | {"acks": -1})
        costs = []
        for _ in range(WARM_UP + ROUNDS):

            def produce() -> None:
                self.receive([frame])
                self.cluster.run_until(lambda: bool(self._sink.sends))

            costs.append(Cost(count_product_calls(produce), 0))
            self._sink.sends.clear()
        return median(costs[WARM_UP:])

    def receive(self, frames: Iterable[memoryview]) -> None:
        """Handle the frames of one read."""
        with self.resources.flush_scope:
            for frame in frames:
                self.resources.dispatch.frame_received(self._connection, frame)


def count_calls(action: Callable[[], object]) -> Cost:
    """Count the calls that an action makes, except those made inside the simulator."""
    counts: Counter[str] = Counter()
    depth = 0  # number of simulator functions that have not returned

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal depth
        simulated = frame.f_code.co_filename.startswith(SIMULATOR)
        if event == "call":
            depth += simulated
            counts["python"] += not depth
        elif event == "return":
            depth -= simulated
        elif event == "c_call":
            counts["c"] += not depth

    _profiled(profile, action)
    return Cost(counts["python"], counts["c"])


def count_product_calls(action: Callable[[], object]) -> int:
    """Count the calls of the product's own Python functions, including those that the simulator makes."""
    count = 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        where = frame.f_code.co_filename
        count += event == "call" and where.startswith(PRODUCT) and not where.startswith(SIMULATOR)

    _profiled(profile, action)
    return count


def _profiled(profile: Callable[[Any, str, Any], None], action: Callable[[], object]) -> None:
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)


def median(costs: list[Cost]) -> Cost:
    """Return the upper median."""
    return sorted(costs)[len(costs) // 2]


def build_frame(api: Api, version: int, body: Body) -> memoryview:
    """Return the frame of a request."""
    header = build_request_header(api.request_header_version(version), api.key, version, 1, "client")
    return memoryview(bytearray(header + api.request.build(version, body)))


def _batch() -> bytes:
    return build_batch([Record(NEXT_OFFSET, 1_700_000_000_000, None, b"v" * 1000, ())])


def produce_body(partitions: int) -> Body:
    """Return the body of a Produce request with one record of 1,000 bytes for each partition."""
    data = [{"index": number, "records": _batch()} for number in range(partitions)]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": data}]}


def fetch_body(partitions: int, topic: str = "t", *, session_id: int = 0, session_epoch: int = -1) -> Body:
    """Return the body of a Fetch request from offset 0, without waiting."""
    rows = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 5000} for number in range(partitions)]
    topics = [{"topic": topic, "partitions": rows}] if partitions else []
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics, "session_id": session_id,
            "session_epoch": session_epoch}  # fmt: skip


if __name__ == "__main__":
    write_baseline(measure())
