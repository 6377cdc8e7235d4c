"""``TemplateParser`` returns the same results as the schema's parser, whether a message matches a template or not."""

import random
from uuid import UUID

import pytest

from kreplica.wire.message_parsers import MessageParsers
from kreplica.wire.messages import FETCH
from kreplica.wire.schema import Schema
from kreplica.wire.template_cache import ENTRIES_MAX, TEMPLATE_BYTES_MAX, TemplateParser

REQUESTS = [(FETCH.request, version) for version in FETCH.request.versions]
RESPONSES = [(FETCH.response, version) for version in FETCH.response.versions]
IDS = [UUID(int=number << 64) for number in range(1, 4)]


class CountingParser:
    """Template parser that counts the messages that match no template."""

    def __init__(self, schema: Schema, version: int) -> None:
        self.miss_count = 0
        self._schema, self._version = schema, version
        assert schema.varying is not None
        self.parse = TemplateParser(schema.varying, schema.tree(version), self._count, schema.builder(version))

    def _count(self, buffer, position):
        self.miss_count += 1
        return self._schema.parse_uncompiled(self._version, buffer, position)


def number(chance):
    return chance.choice([0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(2**31)])


def request(chance, topics=1, partitions=1):
    """Return one of a few kinds of requests, with random numbers."""
    rows = [
        {"partition": chance.randrange(2), "fetch_offset": number(chance) << chance.randrange(32),
         "partition_max_bytes": 1000, "current_leader_epoch": chance.randrange(2)}
        for _ in range(partitions)
    ]  # fmt: skip
    name = chance.randrange(3)
    return {
        "replica_id": 1, "replica_state": {"replica_id": 1, "replica_epoch": chance.randrange(2)}, "max_wait_ms": 500,
        "min_bytes": 1, "session_id": number(chance), "session_epoch": number(chance),
        "topics": [{"topic": "t" * name, "topic_id": IDS[name], "partitions": rows} for _ in range(topics)],
        "rack_id": chance.choice(["", "here"]),
    }  # fmt: skip


def response(chance, topics=1, partitions=1):
    sizes = [0, 1, 61, 126, 127, 128, 5000, 16_383, 16_384]
    rows = [
        {"partition_index": chance.randrange(2), "error_code": chance.choice([0, 0, 0, 6]),
         "high_watermark": number(chance) << chance.randrange(32), "last_stable_offset": number(chance),
         "aborted_transactions": chance.choice([None, [], [{"producer_id": 3, "first_offset": 4}]]),
         "diverging_epoch": chance.choice([{"epoch": -1, "end_offset": -1}] * 3 + [{"epoch": 2, "end_offset": 7}]),
         "records": chance.choice([None, chance.randbytes(chance.choice(sizes))])}
        for _ in range(partitions)
    ]  # fmt: skip
    name = chance.randrange(3)
    return {
        "throttle_time_ms": 0, "error_code": 0, "session_id": number(chance),
        "responses": [{"topic": "t" * name, "topic_id": IDS[name], "partitions": rows} for _ in range(topics)],
    }  # fmt: skip


def random_message(chance, schema):
    """Return a message with one partition, or sometimes with none or several."""
    make = request if schema is FETCH.request else response
    topics, partitions = chance.choice([(1, 1)] * 6 + [(0, 0), (1, 2), (2, 1), (1, 0)])
    return make(chance, topics, partitions)


@pytest.mark.parametrize(("schema", "version"), REQUESTS + RESPONSES)
def test_results_equal_those_of_the_schema(schema, version):
    """Random messages at random buffer positions give the schema's result, mostly from templates."""
    chance = random.Random(version)
    parser = CountingParser(schema, version)
    for _ in range(1500):
        data = schema.build(version, random_message(chance, schema))
        before = chance.randbytes(chance.randrange(20))
        buffer = chance.choice([bytes, memoryview, bytearray])(before + data)
        expected = schema.parse_uncompiled(version, data)
        assert parser.parse(buffer, len(before)) == expected
        assert list(parser.parse(buffer, len(before))) == list(expected)
    assert parser.miss_count < 2500


@pytest.mark.parametrize(("schema", "version"), REQUESTS + RESPONSES)
def test_truncated_and_damaged_messages_give_the_result_of_the_schema(schema, version):
    """The messages are prefixes of a cached one, an extended one, and ones with a changed byte."""
    chance = random.Random(version)
    compiled = schema.parser(version)
    for _ in range(5):
        data = schema.build(version, random_message(chance, schema))
        parser = CountingParser(schema, version)
        parser.parse(data)
        for at in range(len(data) if len(data) < TEMPLATE_BYTES_MAX else 100):
            other = bytearray(data)
            other[at] ^= 1 << chance.randrange(8)
            for each in (data[:at], bytes(other), data + b"\0"):
                assert outcome(parser.parse, each) == outcome(compiled, each)


def outcome(parse, data):
    try:
        return parse(data, 0)
    except Exception as error:
        return type(error), str(error)


def test_messages_that_differ_in_numbers_are_parsed_once():
    """One template serves them all, as for a follower's fetches."""
    chance = random.Random(1)
    for schema, make in ((FETCH.request, request), (FETCH.response, response)):
        parser = CountingParser(schema, 17)
        value = make(chance)
        (topic,) = value.get("topics") or value["responses"]
        (row,) = topic["partitions"]
        row["error_code"], row["records"] = 0, b"x" * 100
        for at in range(100):
            value["session_id"], row["fetch_offset"], row["high_watermark"] = at % 3, at, at
            parser.parse(schema.build(17, value))
        assert parser.miss_count == 1


def test_records_are_views_and_the_cache_keeps_no_buffer():
    """A message's buffer can be resized after its template is cached."""
    parser = CountingParser(FETCH.response, 17)
    value = {"throttle_time_ms": 0, "responses": [{"topic_id": IDS[0], "partitions": [
        {"partition_index": 0, "error_code": 0, "high_watermark": 3, "records": b"abc"}]}]}  # fmt: skip
    learnt = bytearray(FETCH.response.build(17, value))
    assert parser.parse(learnt)["responses"][0]["partitions"][0]["records"] == b"abc"
    learnt += b"can be resized only where no view of it is left"
    again = bytearray(FETCH.response.build(17, value))
    row = parser.parse(again)["responses"][0]["partitions"][0]
    again[again.index(b"abc")] = ord("A")
    assert row["records"] == b"Abc"
    assert parser.miss_count == 1


def test_parsed_messages_share_no_mutable_objects():
    """Changing one parsed message does not change another."""
    parser = CountingParser(FETCH.request, 17)
    data = FETCH.request.build(17, request(random.Random(1)))
    expected = FETCH.request.parse_uncompiled(17, data)
    for _ in range(3):
        message = parser.parse(data)
        assert message == expected
        message["topics"][0]["partitions"][0]["fetch_offset"] = -7
        message["topics"][0]["partitions"].clear()
        message["topics"].clear()
        message["session_id"] = -7


def test_cache_is_bounded():
    """Fetches of many partitions fill the cache up to ``ENTRIES_MAX``, and later ones replace them."""
    parser = CountingParser(FETCH.request, 17)

    def parse(partition):
        value = request(random.Random(1))
        value["topics"][0]["partitions"][0]["partition"] = partition
        assert parser.parse(FETCH.request.build(17, value))["topics"][0]["partitions"][0]["partition"] == partition

    for partition in range(3 * ENTRIES_MAX):
        parse(partition)
        assert len(parser.parse.cache) <= ENTRIES_MAX
    parser.miss_count = 0
    for _ in range(2):
        parse(3 * ENTRIES_MAX - 1)
    assert parser.miss_count == 0
    value = request(random.Random(1)) | {"rack_id": "r" * TEMPLATE_BYTES_MAX}
    for _ in range(3):
        parser.parse(FETCH.request.build(17, value))
    assert parser.miss_count == 3


def test_parsers_share_no_templates():
    """A second broker in the same process starts without templates."""
    data = FETCH.request.build(17, request(random.Random(1)))
    first, second = MessageParsers(), MessageParsers()
    for _ in range(2):
        first.parse(FETCH.request, 17, data)
    assert len(first.parser(FETCH.request, 17).cache) == 1
    assert len(second.parser(FETCH.request, 17).cache) == 0
    assert first.parser(FETCH.request, 17) is first.parser(FETCH.request, 17)


def test_one_template_for_records_of_any_length():
    """The encoded length of compact records may take one byte or several."""
    parser = CountingParser(FETCH.response, 17)
    value = response(random.Random(1))
    row = value["responses"][0]["partitions"][0]
    for size in (126, 127, 20_000, 3_000_000):
        row["records"] = b"r" * size
        parsed = parser.parse(FETCH.response.build(17, value))
        assert bytes(parsed["responses"][0]["partitions"][0]["records"]) == row["records"]
    assert parser.miss_count == 1
