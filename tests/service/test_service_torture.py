"""With hostile clients or a failing device, a real process serves other clients, and its log remains readable."""

import random
import resource
import socket
import struct

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.standalone import StandaloneProcess

METADATA, API_VERSIONS = 3, 18
ALL_TOPICS = struct.pack(">i", -1) + b"\0"
BAD_CONNECTIONS = 40
PARTITIONS = 500
RESIDENT_GROWTH_MAX_BYTES = 64 << 20


def frame(content):
    return struct.pack(">i", len(content)) + content


def request(key, version, content=b""):
    return frame(struct.pack(">hhih", key, version, 1, 4) + b"test" + content)


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port), 20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def read(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the connection was closed"
        data += more
    return data


def read_response(connection):
    (size,) = struct.unpack(">i", read(connection, 4))
    return read(connection, size)


def bad_input(rng):
    """Return random invalid input."""
    noise = rng.randbytes(rng.randrange(1, 2000))
    return rng.choice(
        [
            noise,
            struct.pack(">i", -rng.randrange(1, 2**31)) + noise,
            struct.pack(">i", 2**31 - 1) + noise,
            struct.pack(">i", 100_000_000) + noise * 10,
            struct.pack(">i", 5000) + noise,
            bytes(200),
            b"".join(frame(rng.randbytes(rng.randrange(200))) for _ in range(20)),
            request(rng.randrange(70), rng.randrange(14), noise),
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + noise,
        ]
    )


@pytest.fixture
def process(tmp_path):
    with StandaloneProcess(tmp_path) as started:
        yield started


@pytest.mark.parametrize("port", ["port", "coordinator_port", "admin_port"])
def test_invalid_input_on_every_port(process, port):
    """A producer and a consumer continue; each bad connection adds at most one log line, and memory does not grow."""
    delivered = []
    errors = []
    producer = Producer({"bootstrap.servers": process.bootstrap_servers, "error_cb": errors.append, "linger.ms": 0})
    group = {"group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "error_cb": errors.append, **group})

    def produce(number):
        producer.produce("good", b"%d" % number, on_delivery=lambda error, _: delivered.append(error))

    produce(-1)
    assert producer.flush(20) == 0
    consumer.assign([TopicPartition("good", 0, 0)])
    assert consumer.consume(1, 20)[0].value() == b"-1"
    lines, resident_bytes = process.output.count("\n"), process.resident_bytes()
    rng, bad_connections = random.Random(port), []
    for number in range(BAD_CONNECTIONS):
        bad = connect(getattr(process, port))
        try:
            bad.sendall(bad_input(rng))
        except ConnectionError:
            pass  # the connection was closed before all bytes were sent
        bad_connections.append(bad)  # stays open, perhaps with an incomplete frame
        produce(number)
        assert producer.flush(20) == 0
    assert [m.value() for m in consumer.consume(BAD_CONNECTIONS, 20)] == [b"%d" % n for n in range(BAD_CONNECTIONS)]
    assert process.resident_bytes() - resident_bytes < RESIDENT_GROWTH_MAX_BYTES
    assert process.output.count("\n") - lines <= BAD_CONNECTIONS
    assert "Traceback" not in process.output
    assert delivered == [None] * (BAD_CONNECTIONS + 1)
    assert errors == []
    for bad in bad_connections:
        bad.close()
    consumer.close()


def test_client_that_never_reads(process):
    """The broker stops reading from a client that sends many requests but reads no responses, and serves others."""
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.create_topics([NewTopic("wide", PARTITIONS, 1)])["wide"].result(20)
    bystander, greedy = connect(process.port), connect(process.port)
    resident_bytes = process.resident_bytes()
    greedy.sendall(request(METADATA, 5, ALL_TOPICS) * 5000)
    for _ in range(20):
        bystander.sendall(request(API_VERSIONS, 0))
        assert read_response(bystander)
    assert process.resident_bytes() - resident_bytes < RESIDENT_GROWTH_MAX_BYTES
    # The client was not disconnected: when it reads, it gets all responses.
    first = read_response(greedy)
    for _ in range(999):
        assert read_response(greedy) == first
    greedy.close()
    bystander.close()


def test_topics_are_deleted_and_recreated(tmp_path):
    """No record of a deleted topic appears in a new topic with the same name, and no file is left."""
    # Otherwise, the producer's metadata requests could create the topic between a deletion and the next creation.
    overrides = ("--override", "auto.create.topics.enable=false", "--override", "log.segment.delete.delay.ms=0")
    with StandaloneProcess(tmp_path, arguments=overrides) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        producer = Producer({"bootstrap.servers": process.bootstrap_servers, "topic.metadata.refresh.interval.ms": 100})
        offsets = []
        for number in range(20):
            admin.create_topics([NewTopic("again", 3, 1)])["again"].result(20)
            producer.produce("again", b"%d" % number, partition=2, on_delivery=lambda _, m: offsets.append(m.offset()))
            assert producer.flush(20) == 0
            admin.delete_topics(["again"])["again"].result(20)
        assert offsets == [0] * 20
        process.stop()
        assert "Traceback" not in process.output
        assert not list(process.data_directory.glob("broker-1/again*"))


def test_device_of_the_coordinator_fails(process):
    """The process ends, and its one-line error names the directory that cannot be written."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers, "log_level": 0})
    future = admin.create_topics([NewTopic("never", 1, 1)], request_timeout=2)["never"]
    with pytest.raises(Exception, match="KafkaError"):
        future.result(20)
    assert process.wait() == 1
    (last,) = [line for line in process.output.splitlines() if line.startswith("kreplica:")]
    assert "the embedded ZooKeeper server cannot store its state" in last
    assert str(process.data_directory / "coordinator") in last
    assert "Traceback" not in process.output
