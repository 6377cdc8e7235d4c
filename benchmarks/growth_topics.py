"""A broker with many partitions, and requests that write and read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from benchmarks.growth_load import Broker, Clients, Connection, Kind, Value
from benchmarks.raw_client import record_batch
from kreplica.wire.messages import CREATE_TOPICS, FETCH, LIST_OFFSETS, PRODUCE

PRODUCED, FETCHED = Kind(PRODUCE, 7), Kind(FETCH, 11)
CREATED, LISTED = Kind(CREATE_TOPICS, 4), Kind(LIST_OFFSETS, 2)
TOPIC_PARTITIONS = 1_000
RECORD_BYTES = 1_000
BATCH_BYTES = RECORD_BYTES + 100
NEW = 10
"""Number of partitions that have new records when a session fetches."""

PROBED = 10
LATEST = -1
FINAL_EPOCH = -1
FIRST_SEGMENT = "00000000000000000000.log"
START_TIME_S = 120.0
POLL_S = 0.002

Partition = tuple[str, int]


def partitions_of(count: int) -> list[Partition]:
    """Return this number of pairs of topic name and partition number; a topic has up to 1,000 partitions."""
    return [(f"wide-{number // TOPIC_PARTITIONS}", number % TOPIC_PARTITIONS) for number in range(count)]


def create(connection: Connection, partitions: Sequence[Partition]) -> None:
    """Create topics with these partitions, and wait until they accept records."""
    for name in dict.fromkeys(topic for topic, _ in partitions):
        count = sum(topic == name for topic, _ in partitions)
        topic = {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        connection.request(CREATED, {"topics": [topic], "timeout_ms": 60_000, "validate_only": False})


def produce_frame(partition: Partition, value_bytes: int = RECORD_BYTES) -> bytes:
    """Return a Produce request with one record and acks=1."""
    name, index = partition
    records = record_batch(bytes(value_bytes), time.time_ns() // 1_000_000)
    topic = {"name": name, "partition_data": [{"index": index, "records": records}]}
    return PRODUCED.frame({"transactional_id": None, "acks": 1, "timeout_ms": 30_000, "topic_data": [topic]})


def _fetch_frame(offsets: dict[Partition, int], session: tuple[int, int] = (0, -1)) -> bytes:
    """Return a Fetch request for these offsets, with the ID and epoch of a session (KIP-227) or without a session."""
    topics: dict[str, list[Value]] = {}
    for (name, index), offset in offsets.items():
        row = {"partition": index, "fetch_offset": offset, "partition_max_bytes": BATCH_BYTES}
        topics.setdefault(name, []).append(row)
    return FETCHED.frame(
        {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
    )


class Topics:
    """The partitions of one broker, and requests to them."""

    def __init__(self, broker: Broker, partitions: Sequence[Partition]) -> None:
        self._broker = broker
        self._partitions = partitions
        self._writes = [produce_frame(each) for each in partitions]
        self._reads = [_fetch_frame({each: 0}) for each in partitions]

    def write_once(self, clients: Clients) -> None:
        """Write one record to each partition before the measurement, because the first record creates a file."""
        for response in clients.request_all(self._writes):
            PRODUCED.parse(response)

    def touch(self, each_bytes: int, first_bytes: int) -> None:
        """Write zeros ahead of the logs: see ``driver.write_ahead``, whose minimum is too large for many partitions."""
        for number, (name, index) in enumerate(self._partitions):
            log = next(self._broker.data_directory.glob(f"*/{name}-{index}/{FIRST_SEGMENT}"))
            with log.open("r+b", buffering=0) as file:
                file.seek(0, 2)
                file.write(bytes(each_bytes + (0 if number else first_bytes)))

    def produce_us(self, clients: Clients, count: int, *, to_one: bool = False) -> float:
        """Return the CPU time of producing one record, to each partition in turn or to one only."""
        return clients.cost_us(self._broker, PRODUCED, self._writes[:1] if to_one else self._writes, count)

    def fetch_us(self, clients: Clients, count: int, *, from_one: bool = False) -> float:
        """Return the CPU time of fetching one record, from each partition in turn or from one only."""
        return clients.cost_us(self._broker, FETCHED, self._reads[:1] if from_one else self._reads, count)


class Session:
    """A fetch session that covers all partitions of a broker and starts at their ends."""

    def __init__(self, broker: Broker, clients: Clients, partitions: Sequence[Partition]) -> None:
        self._broker = broker
        self._clients = clients
        (connection,) = clients.connections
        topics: dict[str, list[Value]] = {}
        for name, index in partitions:
            topics.setdefault(name, []).append({"partition_index": index, "timestamp": LATEST})
        requested = [{"name": name, "partitions": rows} for name, rows in topics.items()]
        listed = connection.request(LISTED, {"replica_id": -1, "isolation_level": 0, "topics": requested})["topics"]
        offsets = {
            (topic["name"], row["partition_index"]): row["offset"] for topic in listed for row in topic["partitions"]
        }
        connection.send(_fetch_frame(offsets, (0, 0)))
        self._id = FETCHED.parse(connection.read_response())["session_id"]
        self._epoch = 0
        self._writes = {each: produce_frame(each) for each in partitions}

    def fetch_us(self, count: int) -> float:
        """Return the CPU time of a fetch that returns no records."""
        frames = [self._next_frame({}) for _ in range(count)]
        cost_us = self._clients.cost_us(self._broker, FETCHED, frames, count)
        (response,) = self._clients.request_all([self._next_frame({})])
        if FETCHED.parse(response)["responses"]:
            raise RuntimeError("a session returned records again")
        return cost_us

    def fetch_new_us(self, count: int) -> float:
        """Return the CPU time of a fetch that returns records from ten partitions."""
        spent_s, seen = 0.0, dict[Partition, int]()
        for number in range(count):
            written = list(islice(self._writes, number * NEW % len(self._writes), None))[:NEW]
            self._clients.request_all([self._writes[each] for each in written])
            request = self._next_frame(seen)
            before_s = self._broker.cpu_s()
            (response,) = self._clients.request_all([request])
            spent_s += self._broker.cpu_s() - before_s
            seen = _ends(FETCHED.parse(response))
            if not seen.keys() >= set(written):
                raise RuntimeError(f"a session returned {sorted(seen)}, not {written}")
        self._clients.request_all([self._next_frame(seen)])
        return spent_s * 1e6 / count

    def close(self) -> None:
        """Close the session on the broker."""
        self._clients.request_all([_fetch_frame({}, (self._id, FINAL_EPOCH))])

    def _next_frame(self, offsets: dict[Partition, int]) -> bytes:
        self._epoch += 1
        return _fetch_frame(offsets, (self._id, self._epoch))


def _ends(response: Value) -> dict[Partition, int]:
    return {
        (topic["topic"], row["partition_index"]): row["high_watermark"]
        for topic in response["responses"]
        for row in topic["partitions"]
    }


def wait_until_started(broker: Broker, partitions: Sequence[Partition]) -> float:
    """Produce to these partitions until all of them have accepted a record.

    :return: seconds since the start of the broker's process.
    :raise RuntimeError: this takes too long, or the process exited.
    """
    step = max(len(partitions) // PROBED, 1)
    frames = [produce_frame(each) for each in partitions[::step]]
    problem: object = "no process listens on the port"
    while broker.running and time.monotonic() - broker.launched_s < START_TIME_S:
        try:
            clients = Clients.one(broker.port)
        except OSError:
            time.sleep(POLL_S)
            continue
        try:
            for response in clients.request_all(frames):
                PRODUCED.parse(response)
            return time.monotonic() - broker.launched_s
        except (OSError, RuntimeError) as error:
            problem = error
        finally:
            clients.close()
        time.sleep(POLL_S)
    raise RuntimeError(f"not all partitions accepted a record: {problem}\n{broker.output[-4000:]}")
