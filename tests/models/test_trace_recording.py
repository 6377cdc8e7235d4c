"""Traces that are recorded from storms; the soak checks them with TLC."""

from __future__ import annotations

from tests.support import trace_check
from tests.support.storm_traces import LogState
from tests.support.trace_module import module


def test_a_storm_is_recorded():
    """A short storm yields a trace per partition, with records, elections and the final state of each broker."""
    traces = trace_check.record(1, seconds=10.0)
    assert [trace.name for trace in traces] == ["seed 1 load-0", "seed 1 load-1", "seed 1 load-2"]
    for trace in traces:
        actions = {event[0] for event in trace.events}
        assert {"append", "copy", "fetch", "advance"} <= actions
        assert [event[1] for event in trace.events[-3:]] == trace.brokers
        final = [event[2] for event in trace.events[-3:]]
        assert final[0].end > 0
        assert final == final[:1] * 3
    assert {"become", "control"} <= {event[0] for trace in traces for event in trace.events}
    assert any(trace.journaled for trace in traces)
    assert not any(trace.missing_writes() for trace in traces)
    text = module(traces)
    assert text.count("events |->") == 3
    assert "None" not in text


def test_logs_are_compared_by_their_runs():
    """A log extends another one if it has the same leader epochs up to the end of the other."""
    log = LogState(10, ((1, 0), (3, 4)))
    assert log.starts_with(LogState(0, ()))
    assert log.starts_with(LogState(4, ((1, 0),)))
    assert log.starts_with(LogState(7, ((1, 0), (3, 4))))
    assert not log.starts_with(LogState(7, ((1, 0), (2, 4))))
    assert not log.starts_with(LogState(11, ((1, 0), (3, 4))))
