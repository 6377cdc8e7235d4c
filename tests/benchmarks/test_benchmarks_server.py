"""The reference program in C does a broker's work on produced batches."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest

from benchmarks.efficiency import ServerProcess, compile_server
from benchmarks.raw_client import PRODUCE, RawClient, record_batch
from kreplica.errors import ErrorCode
from kreplica.wire.batches import check_batch, parse_header
from kreplica.wire.framing import frame
from kreplica.wire.messages import API_VERSIONS, METADATA
from kreplica.wire.messages import PRODUCE as PRODUCE_API

pytestmark = pytest.mark.needs_program("gcc")

NOW_MS = 1_700_000_000_000
SIZES = [1, 7, 200, 255, 256, 700, 12_287, 12_288, 16_000, 130_000, 262_144, 300_000, 1_000_000]
"""Value sizes around the limits of checksum blocks and buffers, and the sizes that are measured."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_server(tmp_path_factory.mktemp("server"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def server(program: Path, log: Path) -> Iterator[ServerProcess]:
    with ServerProcess([str(program), str(log), "1"]) as process:
        yield process


def request(correlation: int, batch: bytes) -> bytes:
    rows = [{"index": 0, "records": batch}]
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "t", "partition_data": rows}],
    }
    return frame(Struct(">hhih").pack(PRODUCE, 7, correlation, 1) + b"c" + PRODUCE_API.request.build(7, body))


def read_responses(peer: socket.socket, count: int) -> list[tuple[int, dict]]:
    """Return the correlation ID and the partition's row of each response."""
    responses = []
    with peer.makefile("rb") as stream:
        for _ in range(count):
            body = stream.read(Struct(">i").unpack(stream.read(4))[0])
            (topic,) = PRODUCE_API.response.parse(7, body, 4)["responses"]
            responses.append((Struct(">i").unpack_from(body)[0], topic["partition_responses"][0]))
    return responses


def port_of(server: ServerProcess) -> int:
    return int(server.bootstrap.rpartition(":")[2])


@pytest.mark.parametrize("seed", range(4))
def test_batches_are_stamped_and_written_in_order(server: ServerProcess, log: Path, seed: int) -> None:
    """Batches of any size, in TCP segments of any size, are written as by a broker."""
    rng = random.Random(seed)
    batches = [record_batch(rng.randbytes(rng.choice(SIZES)), NOW_MS) for _ in range(25)]
    stream = b"".join(request(number, batch) for number, batch in enumerate(batches))
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=20) as peer:
        position = 0
        while position < len(stream):
            size = rng.choice([1, 3, 100, 5_000, 100_000, 1_000_000])
            peer.sendall(stream[position : position + size])
            position += size
        responses = read_responses(peer, len(batches))
    assert [number for number, _ in responses] == list(range(len(batches)))
    assert [row["error_code"] for _, row in responses] == [0] * len(batches)
    assert [row["base_offset"] for _, row in responses] == list(range(len(batches)))
    written = memoryview(log.read_bytes())
    for offset, batch in enumerate(batches):
        stored = written[: len(batch)]
        assert parse_header(stored).base_offset == offset
        assert parse_header(stored).partition_leader_epoch == 0
        assert stored[16:] == batch[16:]
        check_batch(stored)
        written = written[len(batch) :]
    assert not written


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_with_a_wrong_checksum_is_rejected(server: ServerProcess, log: Path, size: int) -> None:
    """A batch with a flipped bit is not written, but the next one is."""
    batch = bytearray(record_batch(random.Random(size).randbytes(size), NOW_MS))
    batch[random.Random(size).randrange(23, len(batch))] ^= 1
    good = record_batch(b"good", NOW_MS)
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=20) as peer:
        peer.sendall(request(1, bytes(batch)) + request(2, good))
        (_, refused), (_, accepted) = read_responses(peer, 2)
    assert (refused["error_code"], accepted["error_code"], accepted["base_offset"]) == (ErrorCode.CORRUPT_MESSAGE, 0, 0)
    assert log.read_bytes()[16:] == good[16:]


def test_clients_receive_versions_and_metadata(server: ServerProcess) -> None:
    """Versions and metadata are those of a broker that leads partition 0 of any topic."""
    client = RawClient(port_of(server))
    try:
        versions = API_VERSIONS.response.parse(0, client.request(API_VERSIONS.key, 0, b""))
        body = METADATA.request.build(1, {"topics": [{"name": "any"}]})
        metadata = METADATA.response.parse(1, client.request(METADATA.key, 1, body))
    finally:
        client.close()
    assert {row["api_key"]: row["max_version"] for row in versions["api_keys"]}[PRODUCE] == 7
    assert [broker["port"] for broker in metadata["brokers"]] == [port_of(server)]
    (topic,) = metadata["topics"]
    assert (topic["name"], topic["error_code"]) == ("any", 0)
    assert [(row["partition_index"], row["leader_id"]) for row in topic["partitions"]] == [(0, 0)]
