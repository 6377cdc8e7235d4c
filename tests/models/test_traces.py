"""The model V3 accepts the traces of recorded storms, but none with a changed event; part of the soak."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from tests.support import model_checker, trace_check
from tests.support.storm_traces import LogState
from tests.support.trace_module import module

pytestmark = pytest.mark.soak

STORMS = 200
STORMS_AT_ONCE = 20
CHANGED_SEED = 1
"""A storm whose trace has all actions of ``CHANGES``."""


@pytest.fixture(scope="module", autouse=True)
def _tlc():
    try:
        model_checker.jar()
    except model_checker.NoModelChecker as missing:
        pytest.skip(f"the traces are not checked: {missing}")


@pytest.mark.parametrize("first", range(1, STORMS + 1, STORMS_AT_ONCE))
def test_storms_are_behaviours_of_the_model(first):
    """The model allows every step of brokers, controller and ZooKeeper in a storm."""
    traces = trace_check.record_all(range(first, first + STORMS_AT_ONCE))
    assert trace_check.rejections(traces) == {}


def one_more(position):
    """Return a change that adds one to the number at this position of an event."""

    def change(event):
        event[position] += 1

    return change


def other_role(event):
    event[3] = "follower" if event[3] == "leader" else "leader"


def other_members(event):
    event[3] = frozenset({1, 2, 3}) - event[3] or frozenset({1, 2})


def longer_log(event):
    event[2] = LogState(event[2].end + 1, event[2].runs)


def first_registration(event):
    event[2] = 1


CHANGES = {
    "a leader has one record more": ("append", one_more(3)),
    "a follower has one record more": ("copy", one_more(2)),
    "a follower has a later high watermark": ("copy", one_more(3)),
    "a follower acknowledges one record more": ("fetch", one_more(4)),
    "a leader commits one record more": ("advance", one_more(2)),
    "a replica has the other role": ("become", other_role),
    "a replica obeys another version of the state": ("become", one_more(2)),
    "a leader writes another ISR": ("write", other_members),
    "a leader writes another version": ("write", one_more(4)),
    "a controller skips a leader epoch": ("control", one_more(4)),
    "a controller elects another broker": ("control", one_more(1)),
    "a broker registers with an earlier broker epoch": ("register", first_registration),
    "a broker starts with a record that it did not have": ("end", longer_log),
}
"""By description: the action of the event to change, and the change."""

LEFT_OUT = ("append", "copy", "fetch", "become", "write", "control", "register", "notice")
"""Actions of events without which a trace is rejected."""


@pytest.fixture(scope="module")
def trace():
    return trace_check.record_all([CHANGED_SEED])[0]


def middle(trace, action, is_needed=lambda event: True):
    """Return the index of an event with this action in the middle of a trace.

    :param is_needed: returns True for the events to choose from.
    """
    found = [index for index, event in enumerate(trace.events) if event[0] == action and is_needed(event)]
    return found[len(found) // 2]


def copies_records(event):
    """Return False for a copy that only raises the high watermark: the follower's next copy may raise it instead."""
    return event[0] != "copy" or event[2] > event[3]


def test_a_changed_event_is_refused(trace):
    """The model rejects a trace with a changed or missing event, but accepts the unchanged trace."""
    traces = [trace]
    for name, (action, change) in CHANGES.items():
        changed = copy.deepcopy(trace)
        changed.name = name
        change(changed.events[middle(changed, action)])
        traces.append(changed)
    for action in LEFT_OUT:
        changed = copy.deepcopy(trace)
        changed.name = f"{action} is missing"
        del changed.events[middle(changed, action, copies_records)]
        traces.append(changed)
    rejected = trace_check.rejections(traces)
    assert sorted(rejected) == sorted(each.name for each in traces[1:])


def test_a_trace_without_a_journaled_write_is_refused(trace):
    """A trace is refused if a write in a controller's journal is missing from it."""
    state = trace.journaled[-1]
    changed = copy.deepcopy(trace)
    changed.journaled[-1] = replace(state, isr=state.isr[1:])
    assert "a journal contains a write that is not in the trace" in trace_check.rejections([changed])[trace.name]
    changed = copy.deepcopy(trace)
    changed.events = [event for event in trace.events if event[0] != "control"]
    assert changed.missing_writes() == trace.journaled


def test_traces_are_reproducible():
    """A seed always gives the same module of traces, so that a refusal can be reproduced."""
    first, second = trace_check.record_all([2]), trace_check.record_all([2])
    assert module(first) == module(second)
