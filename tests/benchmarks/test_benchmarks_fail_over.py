"""How the benchmarks see who leads while a broker goes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.comparison.leaders import Led, Told, read
from benchmarks.comparison.scenarios import FAIL_OVERS, SCENARIOS, Bound
from kreplica.wire.messages import METADATA


def _partition(index: int, leader: int, replicas: list[int], in_sync: list[int]) -> dict[str, Any]:
    return {
        "error_code": 0 if leader >= 0 else 5,
        "partition_index": index,
        "leader_id": leader,
        "replica_nodes": replicas,
        "isr_nodes": in_sync,
    }


def _topic(name: str, partitions: list[dict[str, Any]], error_code: int = 0) -> dict[str, Any]:
    return {"error_code": error_code, "name": name, "is_internal": False, "partitions": partitions}


def _answer(topics: list[dict[str, Any]], controller: int = 2, rack: str | None = None) -> bytes:
    brokers = [{"node_id": number, "host": "127.0.0.1", "port": 9090 + number, "rack": rack} for number in (1, 2, 3)]
    body = {"brokers": brokers, "controller_id": controller, "topics": topics}
    return bytes(METADATA.response.build(1, body))


@pytest.mark.parametrize("rack", [None, "", "somewhere"])
def test_leaders_are_read_as_the_broker_wrote_them(rack: str | None) -> None:
    """Each partition's leader, preferred leader and number of replicas in sync, over several topics."""
    first = _topic("wide-0", [_partition(0, 1, [1, 2, 3], [3]), _partition(1, -1, [2], [])])
    second = _topic("w", [_partition(7, 3, [2, 3], [3, 2])])
    assert read(_answer([first, second], rack=rack)) == Told(
        2, [Led("wide-0", 0, 1, 1, 1), Led("wide-0", 1, -1, 2, 0), Led("w", 7, 3, 2, 2)]
    )


def test_a_topic_that_is_not_known_has_no_partitions() -> None:
    """What has no partitions is not taken for something that is led."""
    unknown, known = _topic("new", [], error_code=3), _topic("old", [_partition(0, 1, [1], [1])])
    assert read(_answer([unknown, known], controller=-1)) == Told(-1, [Led("old", 0, 1, 1, 1)])


def test_every_way_in_which_a_broker_goes_is_measured_and_bound() -> None:
    """One scenario for each, less than a second and half of Kafka's."""
    bound = {each.kind: each.bounds for each in SCENARIOS if each.kind in FAIL_OVERS}
    assert set(bound) == set(FAIL_OVERS)
    for (figure,) in bound.values():
        assert figure == Bound(figure.figure, most=1.0, ratio_most=0.5)
