"""Growth benchmarks: requests alternate between connections, and error codes are raised."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.growth_load import Clients, Connection, Kind
from benchmarks.growth_topics import PRODUCED, partitions_of, produce_frame
from kreplica.wire.messages import HEARTBEAT, PRODUCE


class Recorder:
    """Returns each request as its own response, in order, and only after it was sent."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self._pending: list[int] = []

    def send(self, data: bytes) -> None:
        self._log.append(f"{self._name} {list(data)}")
        self._pending += data

    def read_response(self) -> bytes:
        self._log.append(f"{self._name} responds")
        return bytes([self._pending.pop(0)])


def responses_of(count: int, window: int, requests: int) -> tuple[list[str], list[bytes]]:
    """Return the log of the connections and the responses."""
    log: list[str] = []
    connections = [cast(Connection, Recorder(f"c{number}", log)) for number in range(count)]
    return log, Clients(connections, window).request_all(bytes([number]) for number in range(requests))


def test_connections_alternate() -> None:
    """All connections of a round send before any response is read; the next round starts with the next connection."""
    log, responses = responses_of(12, 1, 13)
    assert log[:11] == [*(f"c{number} [{number}]" for number in range(10)), "c0 responds"]
    assert log[20:] == ["c10 [10]", "c11 [11]", "c0 [12]", "c10 responds", "c11 responds", "c0 responds"]
    assert responses == [bytes([number]) for number in range(13)]


def test_a_window_is_sent_at_once() -> None:
    """The last window may be smaller than the others."""
    log, responses = responses_of(1, 3, 5)
    assert log == ["c0 [0, 1, 2]", *["c0 responds"] * 3, "c0 [3, 4]", *["c0 responds"] * 2]
    assert responses == [bytes([number]) for number in range(5)]


def test_an_error_code_anywhere_in_a_response_is_raised() -> None:
    """Rejected requests must not be measured."""

    def response(code: int) -> bytes:
        row: dict[str, Any] = {"index": 0, "error_code": code, "base_offset": 7}
        body = {"responses": [{"name": "t", "partition_responses": [row]}], "throttle_time_ms": 0}
        return bytes(4) + PRODUCE.response.build(PRODUCED.version, body)

    assert PRODUCED.parse(response(0))["responses"][0]["partition_responses"][0]["base_offset"] == 7
    with pytest.raises(RuntimeError, match=r"Produce returned error \[6\]"):
        PRODUCED.parse(response(6))
    refused = bytes(4) + HEARTBEAT.response.build(2, {"throttle_time_ms": 0, "error_code": 25})
    with pytest.raises(RuntimeError, match=r"Heartbeat returned error \[25\]"):
        Kind(HEARTBEAT, 2).parse(refused)


def test_partitions_are_spread_over_topics_of_a_thousand() -> None:
    """Topics have at most as many partitions as those of Kafka's users."""
    found = partitions_of(2001)
    assert found[:2] == [("wide-0", 0), ("wide-0", 1)]
    assert found[999:1001] == [("wide-0", 999), ("wide-1", 0)]
    assert found[-1] == ("wide-2", 0)
    assert len(set(found)) == 2001


def test_frames_differ_only_by_partition() -> None:
    """All requests have the same size."""
    frames = list(map(produce_frame, partitions_of(3)))
    assert len({len(frame) for frame in frames}) == 1
    assert len(set(frames)) == 3
