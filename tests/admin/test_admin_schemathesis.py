"""Validation of ``/openapi.json``: schemathesis generates valid and invalid requests, and checks the responses.

The requests are sent to a real broker, for all routes except streams, which do not end, and the routes that start and
stop brokers of a standalone cluster, which would end the process.
"""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

import pytest
import requests
import schemathesis
from confluent_kafka import Consumer, TopicPartition
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.support.standalone import StandaloneProcess

TOPIC = "orders"
GROUP = "readers"
PARTITIONS_MAX = 3
EXAMPLES = {GenerationMode.POSITIVE: 8, GenerationMode.NEGATIVE: 4}

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
    allow_header_conformance,
    ignored_auth,
]


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with StandaloneProcess(tmp_path_factory.mktemp("schemathesis")) as running:
        body = json.dumps({"name": TOPIC, "partitions": 1}).encode()
        urlopen(Request(f"{running.admin_url}/v1/topics", data=body, headers={"content-type": "application/json"}))
        consumer = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        consumer.close()
        yield running


@pytest.fixture(scope="module")
def api(process):
    schema = schemathesis.openapi.from_url(f"{process.admin_url}/openapi.json")
    return schema.exclude(path_regex="^/v1/standalone").exclude(func=_streams)


def _streams(context):
    content = [each.get("content", {}) for each in context.operation.definition.raw["responses"].values()]
    return any("text/event-stream" in types for types in content)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
def test_responses_match_the_document(api, mode):
    """For valid and invalid requests, the status, headers and body match the document."""
    session = requests.Session()
    operations = [found.ok() for found in api.get_all_operations()]
    assert len(operations) >= 20
    for operation in operations:
        _send_repeatedly(operation, mode, session)
    session.close()


def _send_repeatedly(operation, mode, session):
    try:
        cases = operation.as_strategy(generation_mode=mode)

        @given(case=cases)
        @settings(
            max_examples=EXAMPLES[mode],
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case):
            _few_partitions(case)
            case.call_and_validate(checks=CHECKS, session=session)

        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "an operation without parameters has no invalid request"


def _few_partitions(case):
    """Limit valid requests that would take minutes."""
    if case.path.startswith("/v1/topics") and isinstance(case.body, dict):
        count = case.body.get("partitions")
        if type(count) is int and PARTITIONS_MAX < count <= 10_000:
            case.body["partitions"] = PARTITIONS_MAX
