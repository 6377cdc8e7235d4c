"""Detection of partition leaders during broker failures in the benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.comparison import fail_over
from benchmarks.comparison.fail_over import TOPIC_PARTITIONS, Watch
from benchmarks.comparison.leaders import LeaderMetadata, PartitionLeader, read
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


def _response(topics: list[dict[str, Any]], controller: int = 2, rack: str | None = None) -> bytes:
    brokers = [{"node_id": number, "host": "127.0.0.1", "port": 9090 + number, "rack": rack} for number in (1, 2, 3)]
    body = {"brokers": brokers, "controller_id": controller, "topics": topics}
    return bytes(METADATA.response.build(1, body))


@pytest.mark.parametrize("rack", [None, "", "somewhere"])
def test_leaders_are_parsed_from_metadata(rack: str | None) -> None:
    """Leader, preferred leader and number of in-sync replicas are read for partitions of several topics."""
    first = _topic("wide-0", [_partition(0, 1, [1, 2, 3], [3]), _partition(1, -1, [2], [])])
    second = _topic("w", [_partition(7, 3, [2, 3], [3, 2])])
    assert read(_response([first, second], rack=rack)) == LeaderMetadata(
        2,
        [
            PartitionLeader("wide-0", 0, 1, 1, 1),
            PartitionLeader("wide-0", 1, -1, 2, 0),
            PartitionLeader("w", 7, 3, 2, 2),
        ],
    )


def test_an_unknown_topic_has_no_partitions() -> None:
    """An unknown topic in the response does not affect the partitions of other topics."""
    unknown, known = _topic("new", [], error_code=3), _topic("old", [_partition(0, 1, [1], [1])])
    assert read(_response([unknown, known], controller=-1)) == LeaderMetadata(-1, [PartitionLeader("old", 0, 1, 1, 1)])


def test_every_kind_of_failure_is_measured_and_has_bounds() -> None:
    """There is one scenario per kind of failure, with limits of one second and half of Kafka's time."""
    bounds = {each.kind: each.bounds for each in SCENARIOS if each.kind in FAIL_OVERS}
    assert set(bounds) == set(FAIL_OVERS)
    for (bound,) in bounds.values():
        assert bound == Bound(bound.figure, most=1.0, ratio_most=0.5)


VICTIM = 2
WITH_LEADERS = [1] * TOPIC_PARTITIONS
LED_BY_VICTIM = [1] * (TOPIC_PARTITIONS - 1) + [VICTIM]
WITHOUT_LEADER = [1] * (TOPIC_PARTITIONS - 1) + [-1]
UNKNOWN: list[int] = []


def _watch(monkeypatch: pytest.MonkeyPatch, script: dict[int, list[list[int]]]) -> tuple[Watch, list[int]]:
    """Return a watch on one topic, with a clock that advances one second per read, and the ports that it queries.

    :param script: by port, the leaders in the broker's responses, in order.
    """
    ports: list[int] = []

    class Scripted:
        def __init__(self, port: int) -> None:
            self._port = port

        def read_metadata(self, topics: Sequence[str]) -> LeaderMetadata:
            ports.append(self._port)
            leaders = script[self._port].pop(0)
            rows = [PartitionLeader("wide-0", index, leader, leader, 3) for index, leader in enumerate(leaders)]
            return LeaderMetadata(1, rows)

        def close(self) -> None:
            pass

    monkeypatch.setattr(fail_over, "MetadataConnection", Scripted)
    moments = count(1)
    clock = SimpleNamespace(monotonic=lambda: float(next(moments)), sleep=lambda _: None)
    monkeypatch.setattr(fail_over, "time", clock)
    cluster: Any = SimpleNamespace(ports={1: 9091, VICTIM: 9092, 3: 9093})
    return Watch(cluster, VICTIM, ["wide-0"]), ports


@pytest.mark.parametrize("outdated", [LED_BY_VICTIM, WITHOUT_LEADER, UNKNOWN])
def test_a_partition_has_a_leader_when_every_remaining_broker_returns_one(
    monkeypatch: pytest.MonkeyPatch, outdated: list[int]
) -> None:
    """A broker that returns the dead leader, no leader or no topic is queried again; the dead broker never is."""
    script = {9091: [LED_BY_VICTIM, outdated, WITH_LEADERS], 9093: [outdated, outdated, WITH_LEADERS]}
    watch, ports = _watch(monkeypatch, script)
    with watch:
        watch.until_led()
    assert script == {9091: [], 9093: []}
    assert 9092 not in ports


def test_the_first_observation_is_a_new_leader_of_a_victims_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first observation precedes the last one if brokers learn of the leader one after another."""
    watch, _ = _watch(
        monkeypatch, {9091: [LED_BY_VICTIM, WITHOUT_LEADER, WITH_LEADERS], 9093: [LED_BY_VICTIM] * 2 + [WITH_LEADERS]}
    )
    with watch:
        observed = watch.until_led()
    assert 0 < observed.first_s < observed.last_s


def test_partitions_without_a_leader_in_time_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the failed broker."""
    watch, _ = _watch(monkeypatch, {9091: [LED_BY_VICTIM] * 1_000, 9093: [LED_BY_VICTIM] * 1_000})
    with watch, pytest.raises(RuntimeError, match="broker 2"):
        watch.until_led()
