"""Produce requests that are known again mean what they meant, and whatever is unlike is left to the parser."""

import random

import pytest

from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.compression import Codec
from kreplica.wire.headers import build_request_header, parse_request_header
from kreplica.wire.messages import LIST_OFFSETS, PRODUCE
from kreplica.wire.records import Record
from kreplica.wire.repeated import KNOWN_MAX, SIZES_MAX, ZSTD_FROM, RepeatedProduces

VERSIONS = range(PRODUCE.versions[0], PRODUCE.versions[1] + 1)


def batch(size=100, **more):
    return build_batch([Record(NEXT_OFFSET, 1000, None, b"x" * size, ())], **more)


def body(records, topic="orders", partition=3, acks=1, **more):
    rows = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 1500, "topic_data": [{"name": topic, "partition_data": rows}], **more}


def frame(version, value, correlation_id=1, client_id="me"):
    header = build_request_header(PRODUCE.request_header_version(version), 0, version, correlation_id, client_id)
    return memoryview(header + PRODUCE.request.build(version, value))


def learn(repeated, received):
    """As the dispatch does with what it has parsed."""
    header = parse_request_header(received)
    parsed = PRODUCE.request.parser(header.api_version)(received, header.body_offset)
    repeated.learn(received, header, parsed)
    return header, parsed


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_as_parsed(version):
    """Whatever came before, whoever sends, and however long records are; most are known."""
    chance = random.Random(version)
    repeated = RepeatedProduces()
    known_again = 0
    for correlation_id in range(600):
        size = chance.choice([0, 1, 61, 63, 126, 127, 128, 300, 16_383, 16_384])
        records = chance.choice([batch(size), batch(size), batch(size), chance.randbytes(size), None])
        value = body(records, chance.choice("ab") * chance.randint(1, 2), chance.randint(0, 1), chance.choice([-1, 1]))
        if version >= 3 and chance.random() < 0.1:
            value["transactional_id"] = "t"
        if chance.random() < 0.1:
            value["topic_data"] *= 2
        if chance.random() < 0.1:
            value["topic_data"] = []
        received = frame(version, value, correlation_id, chance.choice([None, "", "me", "you"]))
        found = repeated.find(received)
        header, parsed = learn(repeated, received)
        if found is None:
            continue
        known_again += 1
        number, known, view, _ = found
        (topic,) = parsed["topic_data"]
        (data,) = topic["partition_data"]
        assert (number, known.version, known.client_id) == (correlation_id, version, header.client_id)
        assert (known.acks, known.timeout_ms) == (parsed["acks"], 1500)
        assert known.topic_partition == (topic["name"], data["index"])
        assert bytes(view) == data["records"]
        assert parsed.get("transactional_id") is None
    assert known_again > 100


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_views(version):
    """Nothing is copied."""
    repeated = RepeatedProduces()
    received = bytearray(frame(version, body(batch())))
    learn(repeated, memoryview(received))
    _, _, records, _ = repeated.find(memoryview(received))
    at = received.index(b"x" * 100)
    received[at : at + 3] = b"new"
    assert b"new" in bytes(records)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_is_cut_short_or_goes_on(version):
    """It is the parser's, wherever it ends, though its beginning is known."""
    whole = frame(version, body(batch()))
    repeated = RepeatedProduces()
    learn(repeated, whole)
    assert repeated.find(whole) is not None
    for end in range(len(whole)):
        assert repeated.find(whole[:end]) is None
    assert repeated.find(memoryview(bytes(whole) + b"more")) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_that_such_a_request_may_not_have(version):
    """Of transactions, and of zstd before clients could read that, somebody else speaks."""
    repeated = RepeatedProduces()
    learn(repeated, frame(version, body(batch())))
    transactional = batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert repeated.find(frame(version, body(transactional))) is None
    zstd = repeated.find(frame(version, body(batch(codec=Codec.ZSTD))))
    assert (zstd is not None) == (version >= ZSTD_FROM)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        assert repeated.find(frame(version, body(batch(codec=codec)))) is not None


def test_another_version_or_api():
    """The same bytes behind another beginning mean something else."""
    repeated = RepeatedProduces()
    received = frame(7, body(batch()))
    learn(repeated, received)
    for key, version in ((0, 6), (0, 8), (LIST_OFFSETS.key, 7)):
        other = bytearray(received)
        other[:4] = key.to_bytes(2, "big") + version.to_bytes(2, "big")
        assert repeated.find(memoryview(other)) is None


def test_bounded():
    """However many topics there are, and however long their names."""
    repeated = RepeatedProduces()
    for number in range(KNOWN_MAX + 50):
        learn(repeated, frame(7, body(batch(), topic="t" * (number % 240 + 1), partition=number)))
    assert len(repeated._known) <= KNOWN_MAX
    assert len(repeated._sizes) == SIZES_MAX
