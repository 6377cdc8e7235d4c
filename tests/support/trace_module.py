"""Writes recorded traces as a TLA+ module for ``tests/models/Trace.tla``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kreplica.model import NO_LEADER, LeaderAndIsr
from tests.support.storm_traces import NO_VIEW, Ends, IsrState, LogState, Trace

NOT_FETCHED = (0, -1)


def module(traces: Iterable[Trace]) -> str:
    """Return the text of the module ``TraceData`` with these traces."""
    texts = ",\n".join(_trace(trace) for trace in traces)
    return f"---- MODULE TraceData ----\nEXTENDS Integers, Sequences, TLC\nTraces == <<\n{texts}\n>>\n====\n"


def _trace(trace: Trace) -> str:
    brokers = trace.brokers
    functions = {name: trace.initial[name] for name in trace.initial if name not in ("state", "ends")}
    functions["ends"] = {
        leader: {follower: trace.initial["ends"][leader].get(follower, NOT_FETCHED) for follower in brokers}
        for leader in brokers
    }
    parts = [f"name |-> {_text(trace.name)}", f"state |-> {_state(trace.initial['state'])}"]
    for name, values in functions.items():
        convert = _ENCODERS.get(name, _text)
        parts.append(f"{name} |-> {_function({b: convert(values[b]) for b in brokers})}")
    events = ",\n".join(f"<<{', '.join(map(_text, event))}>>" for event in trace.events)
    return f"[{', '.join(parts)},\nevents |-> <<\n{events}>>]"


def _function(values: dict[int, str]) -> str:
    return "(" + " @@ ".join(f"{key} :> {value}" for key, value in values.items()) + ")"


def _text(value: Any) -> str:
    if isinstance(value, LogState):
        runs = ", ".join(f"[epoch |-> {epoch}, start |-> {start}]" for epoch, start in value.runs)
        return f"[end |-> {value.end}, runs |-> <<{runs}>>]"
    if isinstance(value, frozenset):
        return "{" + ", ".join(map(str, sorted(value))) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _state(state: LeaderAndIsr) -> str:
    leader = 0 if state.leader == NO_LEADER else state.leader
    isr, elr = frozenset(state.isr), frozenset(state.eligible_leader_replicas)
    return (
        f"[leader |-> {leader}, epoch |-> {state.leader_epoch + 1}, isr |-> {_text(isr)}, elr |-> {_text(elr)}, "
        f"version |-> {state.partition_epoch}]"
    )


def _view(view: IsrState) -> str:
    return f"[isr |-> {_text(view.isr)}, elr |-> {_text(view.elr)}, version |-> {view.version}]"


def _proposed(proposed: IsrState | None) -> str:
    isr, elr, version = proposed or NO_VIEW
    epoch = -1 if proposed is None else 0
    registered = "FALSE" if proposed is None else "TRUE"
    return (
        f"[isr |-> {_text(isr)}, elr |-> {_text(elr)}, version |-> {version}, epoch |-> {epoch}, "
        f"registered |-> {registered}, done |-> FALSE]"
    )


def _ends(ends: Ends) -> str:
    return _function({f: f"[inc |-> {inc}, end |-> {end}]" for f, (inc, end) in ends.items()})


_ENCODERS: dict[str, Callable[[Any], str]] = {"view": _view, "proposed": _proposed, "ends": _ends}
