"""``ResponseTemplate`` produces the same bytes as the schema."""

import random

import pytest

from kreplica.server.produce.response_templates import ResponseTemplate
from kreplica.server.produce.results import appended_row, response_body
from kreplica.server.transport.outgoing_buffers import framed
from kreplica.storage.log.results import AppendResult
from kreplica.wire.headers import build_response_header
from kreplica.wire.messages import PRODUCE


@pytest.mark.parametrize("version", range(PRODUCE.versions[0], PRODUCE.versions[1] + 1))
@pytest.mark.parametrize("topic", ["t", "a.long-name_with.everything" * 9])
def test_filled_template_equals_a_built_response(version, topic):
    chance = random.Random(1)
    template = ResponseTemplate(version, topic)
    for count in [1] * 20 + [2, 3, 64]:
        results, correlation_ids, frames = [], [], []
        partition = chance.choice([0, 7, 2**31 - 1, -1])
        start = chance.getrandbits(40)
        for _ in range(count):
            base_offset = chance.choice([0, 1, 2**62, chance.getrandbits(60)])
            result = AppendResult(base_offset, base_offset, chance.choice([-1, chance.getrandbits(41)]), False, 99)
            correlation_id = chance.randint(-(2**31), 2**31 - 1)
            header = build_response_header(PRODUCE.response_header_version(version), correlation_id)
            body = response_body([{"name": topic, "partition_responses": [appended_row(partition, start, result)]}])
            pieces, _ = framed(PRODUCE.response.build_pieces(version, body, header))
            results.append(result)
            correlation_ids.append(correlation_id)
            frames += [bytes(piece) for piece in pieces]
        assert template.fill(partition, correlation_ids, results, start) == b"".join(frames)
