"""What the admin API tells of groups, of a broker that clients use."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kreplica.testing.standalone import StandaloneProcess

TOPIC = "read"
GROUP = "readers/of é"


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with StandaloneProcess(tmp_path_factory.mktemp("groups")) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        for future in admin.create_topics([NewTopic(TOPIC, 2, 1)]).values():
            future.result(20)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(10):
            producer.produce(TOPIC, str(number), partition=number % 2)
        assert producer.flush(20) == 0
        consumer = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": GROUP})
        offsets = [TopicPartition(TOPIC, 0, 2), TopicPartition(TOPIC, 1, 5)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        yield running


def asked(process, path):
    with urlopen(f"{process.admin_url}{path}") as answer:
        assert answer.headers["content-type"] == "application/json"
        return json.load(answer)


def test_the_groups_of_a_broker(process):
    """A list of groups says what each is."""
    rows = [{"group": GROUP, "type": "classic", "protocol_type": "", "state": "Empty"}]
    assert asked(process, "/v1/groups") == {"groups": rows, "is_complete": True}


def test_the_lag_of_a_group(process):
    """How far a group is behind, in all and by partition, whatever its name is."""
    found = asked(process, f"/v1/groups/{quote(GROUP, safe='')}/lag")
    assert (found["group"], found["state"], found["lag"], found["status"]) == (GROUP, "Empty", 3, "OK")
    rows = found["partitions"]
    assert [(row["topic"], row["partition"]) for row in rows] == [(TOPIC, 0), (TOPIC, 1)]
    assert [(row["committed_offset"], row["log_end_offset"], row["lag"]) for row in rows] == [(2, 5, 3), (5, 5, 0)]
    assert [row["status"] for row in rows] == ["OK", "OK"]
    assert all(row["committed_at_ms"] > 1_600_000_000_000 for row in rows)


def test_a_group_that_does_not_exist(process):
    """The lag of a group that nobody knows is a problem document."""
    with pytest.raises(HTTPError) as refused:
        asked(process, "/v1/groups/nobody/lag")
    assert refused.value.code == 404
    assert refused.value.headers["content-type"] == "application/problem+json"
    problem = json.load(refused.value)
    assert (problem["title"], problem["instance"]) == ("GROUP_ID_NOT_FOUND", "/v1/groups/nobody/lag")


def test_another_broker_coordinates_it(tmp_path):
    """A broker that does not coordinate a group says who does."""
    with StandaloneProcess(tmp_path, brokers=2) as process:
        groups = [f"group-{number}" for number in range(8)]
        for group in groups:
            consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": group})
            consumer.committed([TopicPartition(TOPIC, 0)], 20)
            consumer.close()
        problems = []
        for group in groups:
            with pytest.raises(HTTPError) as refused:
                asked(process, f"/v1/groups/{group}/lag")
            problems.append(json.load(refused.value))
    assert {problem["status"] for problem in problems} == {404, 421}
    details = {problem["detail"] for problem in problems if problem["status"] == 421}
    assert details == {"broker 2 coordinates it"}


def test_a_path_that_leads_nowhere(process):
    """Below groups, too, a wrong path is answered with a problem."""
    with pytest.raises(HTTPError) as refused:
        asked(process, "/v1/groups/nobody/leg")
    assert refused.value.code == 404
