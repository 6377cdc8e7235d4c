"""The ZooKeeper client's calls per request are counted exactly and stay within their baseline."""

from benchmarks import zookeeper_calls
from benchmarks.calls import compare, describe, read_baseline


def test_calls_of_the_zookeeper_client_stay_within_the_baseline() -> None:
    rows = compare(zookeeper_calls.costs(), read_baseline())
    assert len(rows) == 2 * len(zookeeper_calls.KINDS)
    assert [describe(row) for row in rows if row["above"]] == []


def test_a_pipelined_request_costs_less_than_one_that_is_awaited() -> None:
    rows = {row["request"]: row for row in zookeeper_calls.run()}
    for kind in ("get", "set", "exists"):
        alone, pipelined = rows[f"ZooKeeper {kind}, sync"], rows[f"ZooKeeper {kind}, one of 100 pipelined"]
        assert 0 < pipelined["bytecodes"] < alone["bytecodes"]
        assert 0 < pipelined["Python calls"] < alone["Python calls"]
