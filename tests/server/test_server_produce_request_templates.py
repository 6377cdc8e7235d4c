"""``ProduceTemplates`` reads the same fields as the parser, and nothing from requests that match no template."""

import random

import pytest

from kreplica.server.produce.request_templates import ProduceTemplates
from kreplica.server.produce.results import ZSTD_FROM
from kreplica.wire import kernels
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.compression import Codec
from kreplica.wire.headers import build_request_header, parse_request_header
from kreplica.wire.messages import LIST_OFFSETS, PRODUCE
from kreplica.wire.records import Record
from kreplica.wire.template_cache import ENTRIES_MAX, HEADS_MAX
from tests.support.kernels import needs_kernels

VERSIONS = range(PRODUCE.versions[0], PRODUCE.versions[1] + 1)


def batch(size=100, **more):
    return build_batch([Record(NEXT_OFFSET, 1000, None, b"x" * size, ())], **more)


def body(records, topic="orders", partition=3, acks=1, **more):
    rows = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 1500, "topic_data": [{"name": topic, "partition_data": rows}], **more}


def frame(version, value, correlation_id=1, client_id="me"):
    header = build_request_header(PRODUCE.request_header_version(version), 0, version, correlation_id, client_id)
    return memoryview(header + PRODUCE.request.build(version, value))


def learn(templates, received):
    """Parse a frame and add its template, as the dispatcher does."""
    header = parse_request_header(received)
    parsed = PRODUCE.request.parser(header.api_version)(received, header.body_offset)
    templates.learn(received, header, parsed)
    return header, parsed


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_equal_those_of_the_parser(version):
    """Random requests yield the parser's fields, mostly from templates."""
    chance = random.Random(version)
    templates = ProduceTemplates()
    found_count = 0
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
        found = templates.find(received)
        header, parsed = learn(templates, received)
        if found is None:
            continue
        found_count += 1
        number, known, partition, view, _ = found
        (topic,) = parsed["topic_data"]
        (data,) = topic["partition_data"]
        assert (number, known.version, known.client_id) == (correlation_id, version, header.client_id)
        assert (known.acks, known.timeout_ms) == (parsed["acks"], 1500)
        assert (known.topic, partition) == (topic["name"], data["index"])
        assert bytes(view) == data["records"]
        assert parsed.get("transactional_id") is None
    assert found_count > 100


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_views_of_the_frame(version):
    templates = ProduceTemplates()
    received = bytearray(frame(version, body(batch())))
    learn(templates, memoryview(received))
    _, _, _, records, _ = templates.find(memoryview(received))
    at = received.index(b"x" * 100)
    received[at : at + 3] = b"new"
    assert b"new" in bytes(records)


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_of_a_topic_share_a_template(version):
    templates = ProduceTemplates()
    learn(templates, frame(version, body(batch(), partition=0)))
    for partition in (1, 77, 2**31 - 1, -1):
        _, _, number, records, _ = templates.find(frame(version, body(batch(9), partition=partition)))
        assert (number, records) == (partition, batch(9))
    assert len(templates) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_and_extended_frames_match_no_template(version):
    whole = frame(version, body(batch()))
    templates = ProduceTemplates()
    learn(templates, whole)
    assert templates.find(whole) is not None
    for end in range(len(whole)):
        assert templates.find(whole[:end]) is None
    assert templates.find(memoryview(bytes(whole) + b"more")) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_forbidden_attributes_match_no_template(version):
    """Transactional batches, and zstd in old versions, are left to the parser."""
    templates = ProduceTemplates()
    learn(templates, frame(version, body(batch())))
    transactional = batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert templates.find(frame(version, body(transactional))) is None
    zstd = templates.find(frame(version, body(batch(codec=Codec.ZSTD))))
    assert (zstd is not None) == (version >= ZSTD_FROM)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        assert templates.find(frame(version, body(batch(codec=codec)))) is not None


def test_templates_match_only_their_api_and_version():
    templates = ProduceTemplates()
    received = frame(7, body(batch()))
    learn(templates, received)
    for key, version in ((0, 6), (0, 8), (LIST_OFFSETS.key, 7)):
        other = bytearray(received)
        other[:4] = key.to_bytes(2, "big") + version.to_bytes(2, "big")
        assert templates.find(memoryview(other)) is None


def test_templates_are_bounded():
    """The number of templates and their sizes are limited."""
    templates = ProduceTemplates()
    for number in range(ENTRIES_MAX + 50):
        learn(templates, frame(7, body(batch(), topic=f"{number}".zfill(number % 240 + 4))))
    assert len(templates) <= ENTRIES_MAX
    assert len(templates._heads) == HEADS_MAX


@needs_kernels
@pytest.mark.parametrize("version", VERSIONS)
def test_the_kernel_finds_the_same_requests(version):
    """Random frames, many of them damaged, give the results of ``find`` up to the first that differs."""
    chance = random.Random(version)
    templates = ProduceTemplates()
    for topic in ("orders", "other"):
        learn(templates, frame(version, body(batch(), topic=topic)))
    matched = 0
    for _ in range(600):
        frames = [random_frame(chance, version, number) for number in range(chance.randint(2, 6))]
        buffer = bytearray(b"".join(len(each).to_bytes(4, "big") + each for each in frames))
        first_end = 4 + len(frames[0])
        if chance.random() < 0.7:
            buffer[chance.randrange(first_end, len(buffer))] = chance.randrange(256)
        view, limit = memoryview(buffer), chance.randint(1, 6)
        _, template, partition, _, _ = templates.find(view[4:first_end])
        found = kernels.match_requests(
            view, template.tail, 4, first_end, len(view), 10_000, template.head_size, template.is_compact,
            template.forbidden_attributes, limit,
        )  # fmt: skip
        assert found == repeated(templates, view, first_end, limit, template, partition)
        matched += len(found[0])
    assert matched > 300


def random_frame(chance, version, number):
    """Return a frame; most of them differ from each other only in the correlation ID and the records."""
    topic = "orders" if number == 0 or chance.random() < 0.9 else "other"
    codecs = [Codec.NONE, Codec.NONE, Codec.LZ4]
    codec = chance.choice([*codecs, Codec.ZSTD] if number else codecs)
    partition = 3 if chance.random() < 0.9 else 4
    records = batch(chance.choice([0, 1, 60, 62, 63, 64, 300, 16_300]), codec=codec)
    return frame(version, body(records, topic, partition), chance.randint(-(2**31), 2**31 - 1))


def repeated(templates, view, position, limit, template, partition):
    """Return what the kernel returns, from ``find``."""
    ids, batches, codecs = [], [], 0
    while len(ids) < limit and len(view) - position >= 4:
        length = int.from_bytes(view[position : position + 4], "big", signed=True)
        end = position + 4 + length
        match = templates.find(view[position + 4 : end]) if 0 <= length <= 10_000 and end <= len(view) else None
        if match is None or match[1] is not template or match[2] != partition:
            break
        ids.append(match[0])
        batches.append(match[3])
        codecs |= match[4]
        position = end
    return ids, batches, codecs, position
