"""Mutated frames raise only ``ProtocolError``, and memory does not grow."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress

import pytest
from wire_values import random_message

from kreplica.errors import ProtocolError
from kreplica.wire.framing import FrameReader, frame
from kreplica.wire.headers import (
    build_request_header,
    build_response_header,
    parse_request_header,
    parse_response_header,
)
from kreplica.wire.messages import APIS
from kreplica.wire.messages.api import Api

EXTREMES = tuple(
    bytes.fromhex(text)
    for text in ("ffffffff", "7fffffff", "80000000", "80000001", "fffffffe", "00000000", "7fff", "ffff", "8000", "fffe",
                 "00", "01", "7f", "80", "ff", "ffffffff07", "ffffffff0f", "ffffffffffff", "808080808000", "00100000")
)  # fmt: skip

FRAMES_PER_RUN = 20_000
FRAMES_PER_SOAK = 1_000_000
GROWTH_MAX_BYTES = 4 << 20


def seed_frames(rng: random.Random) -> list[tuple[Api, int, bool, bytes]]:
    """Return valid frames with headers: a request and a response for every version of every API."""
    seeds = []
    for api in APIS.values():
        for version in range(api.versions[0], api.versions[1] + 1):
            head = build_request_header(api.request_header_version(version), api.key, version, 7, "client")
            body = api.request.build(version, random_message(api.request, version, rng))
            seeds.append((api, version, True, head + body))
            head = build_response_header(api.response_header_version(version), 7)
            body = api.response.build(version, random_message(api.response, version, rng))
            seeds.append((api, version, False, head + body))
    return [seed for seed in seeds if len(seed[3]) < 4000]


def flip_bits(data: bytearray, rng: random.Random) -> bytearray:
    """Flip a few bits."""
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def truncate(data: bytearray, rng: random.Random) -> bytearray:
    """Remove the end of the frame."""
    return data[: rng.randrange(len(data))]


def put_extreme(data: bytearray, rng: random.Random) -> bytearray:
    """Overwrite a random position, which may be a length, with an extreme value."""
    extreme = rng.choice(EXTREMES)
    at = rng.randrange(len(data))
    data[at : at + len(extreme)] = extreme
    return data


def insert_extreme(data: bytearray, rng: random.Random) -> bytearray:
    """Insert an extreme value at a random position."""
    at = rng.randrange(len(data))
    data[at:at] = rng.choice(EXTREMES)
    return data


def splice(data: bytearray, rng: random.Random) -> bytearray:
    """Copy a part of the frame to another position, or remove that part."""
    start, end = sorted(rng.randrange(len(data)) for _ in range(2))
    at = rng.randrange(len(data))
    return data[:at] + data[start:end] + data[at if rng.random() < 0.5 else min(len(data), at + end - start) :]


MUTATIONS = (flip_bits, truncate, put_extreme, insert_extreme, splice)


def receive(api: Api, version: int, is_request: bool, data: bytes) -> bool:
    """Parse a frame as a connection does.

    :return: True if the frame is valid.
    """
    try:
        for body in FrameReader(1 << 20).feed(data):
            if is_request:
                header = parse_request_header(body)
                if header.body_offset is not None:
                    request = APIS[header.api_key].request
                    request.parse(header.api_version, body, header.body_offset)
            else:
                _, offset = parse_response_header(api.response_header_version(version), body)
                api.response.parse(version, body, offset)
    except ProtocolError:
        return False
    return True


def fuzz(count: int, seed: int) -> None:
    """Parse mutated frames, and check that some are refused, some are valid, and memory does not grow."""
    rng = random.Random(seed)
    seeds = seed_frames(rng)
    for api, version, is_request, data in seeds:
        assert receive(api, version, is_request, frame(data)), (api.name, version)  # compiles all parsers
    refused = 0
    tracemalloc.start()
    try:
        for number in range(count):
            api, version, is_request, data = rng.choice(seeds)
            mutated = bytearray(data)
            for _ in range(rng.randint(1, 2)):
                mutated = rng.choice(MUTATIONS)(mutated or bytearray(1), rng)
            framed = frame(bytes(mutated))
            if number % 20 == 0:
                framed = bytes(put_extreme(bytearray(framed[:8]), rng)) + framed[8:]
            refused += not receive(api, version, is_request, framed)
            if number == count // 10:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count // 10 < refused < count
    assert now - before < GROWTH_MAX_BYTES
    assert peak - before < 2 * GROWTH_MAX_BYTES


def test_mutated_frames_raise_protocol_errors_only() -> None:
    """Mutated frames raise no other errors, and memory does not grow."""
    fuzz(FRAMES_PER_RUN, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_mutated_frames() -> None:
    fuzz(FRAMES_PER_SOAK, seed=2)


def test_random_bytes_raise_protocol_errors_only() -> None:
    """Random bytes are parsed as the body of each message."""
    rng = random.Random(3)
    for api in APIS.values():
        for version in range(api.versions[0], api.versions[1] + 1):
            for schema in (api.request, api.response):
                for size in (0, 1, 7, 40, 300):
                    data = rng.randbytes(size) if rng.random() < 0.5 else bytes(rng.choices((0, 1, 2, 255), k=size))
                    with suppress(ProtocolError):
                        assert isinstance(schema.parse(version, data), dict)
