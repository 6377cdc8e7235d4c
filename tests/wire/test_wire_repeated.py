"""Produce requests that are known again mean what they meant, and are refused as they were."""

import random

import pytest

from kreplica.errors import ProtocolError
from kreplica.wire.messages import PRODUCE
from kreplica.wire.repeated import KNOWN_MAX, SIZES_MAX, RepeatedProduce

VERSIONS = range(PRODUCE.versions[0], PRODUCE.versions[1] + 1)
HEADER = b"the header"


def body(records, topic="orders", partition=3, acks=1, **more):
    rows = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 1500, "topic_data": [{"name": topic, "partition_data": rows}], **more}


def frame(version, value):
    return memoryview(HEADER + PRODUCE.request.build(version, value))


def plain(parsed):
    """With bytes in place of views."""
    if isinstance(parsed, dict):
        return {name: plain(value) for name, value in parsed.items()}
    if isinstance(parsed, list):
        return [plain(value) for value in parsed]
    return bytes(parsed) if isinstance(parsed, memoryview) else parsed


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_as_the_schemas_parser(version):
    """Whatever came before, and however long records are."""
    chance = random.Random(version)
    parse = RepeatedProduce(version)
    for _ in range(400):
        size = chance.choice([0, 1, 61, 63, 126, 127, 128, 300, 16_383, 16_384])
        records = chance.choice([chance.randbytes(size), chance.randbytes(size), None])
        value = body(records, chance.choice("ab") * chance.randint(1, 6), chance.randint(0, 2), chance.choice([-1, 1]))
        if version >= 3 and chance.random() < 0.2:
            value["transactional_id"] = "t"
        if chance.random() < 0.1:
            value["topic_data"] *= 2
        if chance.random() < 0.1:
            value["topic_data"] = []
        received = frame(version, value)
        expected = PRODUCE.request.parser(version)(received, len(HEADER))
        assert plain(parse(received, len(HEADER))) == plain(expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_views(version):
    """Nothing is copied."""
    parse = RepeatedProduce(version)
    for _ in range(2):
        received = bytearray(frame(version, body(b"x" * 100)))
        parsed = parse(memoryview(received), len(HEADER))
        at = received.index(b"x" * 100)
        received[at : at + 3] = b"new"
        assert parsed["topic_data"][0]["partition_data"][0]["records"][:3] == b"new"


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_is_cut_short(version):
    """It is refused wherever it ends, though its beginning is known."""
    whole = frame(version, body(b"x" * 200))
    parse = RepeatedProduce(version)
    parse(whole, len(HEADER))
    for end in range(len(HEADER), len(whole)):
        with pytest.raises(ProtocolError):
            parse(whole[:end], len(HEADER))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_follows_is_ignored(version):
    """As the schema's parser does."""
    parse = RepeatedProduce(version)
    whole = frame(version, body(b"x" * 200))
    parse(whole, len(HEADER))
    longer = memoryview(bytes(whole) + b"more")
    assert plain(parse(longer, len(HEADER))) == plain(parse(whole, len(HEADER)))


def test_a_body_belongs_to_whoever_asked():
    """What a handler does to it nobody else sees."""
    parse = RepeatedProduce(7)
    received = frame(7, body(b"x" * 200))
    first = parse(received, len(HEADER))
    for _ in range(2):
        again = parse(received, len(HEADER))
        assert plain(again) == plain(first)
        again["topic_data"][0]["partition_data"].clear()
        again["acks"] = 0


def test_bounded():
    """However many topics there are, and however long their names."""
    parse = RepeatedProduce(7)
    for number in range(KNOWN_MAX + 50):
        parse(frame(7, body(b"records", topic="t" * (number % 240 + 1), partition=number)), len(HEADER))
    assert len(parse._known) <= KNOWN_MAX
    assert len(parse._sizes) == SIZES_MAX
