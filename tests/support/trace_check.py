"""Checks with TLC that recorded storms are valid behaviours of the model V3.

``python -m tests.support.trace_check SEED ...`` records the storms of these seeds and checks them.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.plan import select_faults
from kreplica.testing.storms.storm import Storm, faults_of_seed
from tests.support import model_checker
from tests.support.storm_traces import StormRecorder, Trace
from tests.support.trace_module import module

SECONDS = 20.0
JOURNAL_SECONDS = 1.0
"""Time after which the journals have been written to disk."""

BATCH_EVENTS = 20_000
"""Maximum number of events in one TLC run, unless a single trace has more."""

OPTIONS = {"applications": "no", "side_topics": "no", "weak_producers": "no", "journal": "yes"}
"""Options of the storms: only the main topic is used, and controllers write journals."""

LEFT_OUT = ("flip a bit", "fail to read")
"""Faults that damage files, which the model does not describe."""


def record(seed: int, seconds: float = SECONDS) -> list[Trace]:
    """Run a storm, end its faults, and return one trace for each partition of its main topic.

    :param seconds: duration of the faults in virtual time.
    """
    with deferred_collection():
        return _record(seed, seconds)


def _record(seed: int, seconds: float) -> list[Trace]:
    chosen = {"seconds": f"{seconds:g}", **OPTIONS}
    options = options_of(seed, chosen)
    plan = faults_of_seed(seed, options)
    storm = Storm(seed, options)
    recorder = StormRecorder(storm.run.cluster, storm.run.keys, f"seed {seed}")
    storm.execute(select_faults(plan, [fault.number for fault in plan if fault.name not in LEFT_OUT]))
    storm.run.network.heal()
    storm.run.start_all()
    storm.run.settle()
    for producer in storm.run.producers:
        storm.run.cluster.run_until(producer.finish(), timeout_s=300.0)
    storm.run.cluster.run(JOURNAL_SECONDS)
    return recorder.traces()


def record_all(seeds: Iterable[int]) -> list[Trace]:
    return [trace for seed in seeds for trace in record(seed)]


def rejections(traces: Iterable[Trace]) -> dict[str, str]:
    """Return the traces that the model does not allow: trace name -> first event that is not allowed."""
    traces = list(traces)
    refused = {
        trace.name: f"a journal contains a write that is not in the trace: {missing[0]}"
        for trace in traces
        if (missing := trace.missing_writes())
    }
    for batch in _batches(trace for trace in traces if trace.name not in refused):
        rest = batch
        while rest:
            result = _check(rest)
            if result.passed:
                refused.update(_unfinished(result, rest))
                break
            trace, text = _violation(result, rest)
            refused[trace.name] = text
            rest = [each for each in rest if each is not trace]
    return refused


def _check(traces: Sequence[Trace]) -> model_checker.Result:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "TraceData.tla").write_text(module(traces))
        brokers = "{" + ", ".join(map(str, traces[0].brokers)) + "}"
        return model_checker.check("Trace", {"Replicas": brokers}, Path(directory))


def _unfinished(result: model_checker.Result, traces: Sequence[Trace]) -> dict[str, str]:
    """Return the traces whose end TLC did not reach."""
    reached = dict.fromkeys(range(1, len(traces) + 1), 0)
    for run, at in re.findall(r'^<<"step", (\d+), (\d+)>>', result.output, re.MULTILINE):
        reached[int(run)] = max(reached[int(run)], int(at))
    return {
        trace.name: f"event {reached[run] + 1} is not a step of the model: {trace.events[reached[run]]}"
        for run, trace in enumerate(traces, start=1)
        if reached[run] < len(trace.events)
    }


def _violation(result: model_checker.Result, traces: Sequence[Trace]) -> tuple[Trace, str]:
    last = result.trace[-1] if result.trace else ""
    run, at = (re.search(rf"^/\\ {name} = (\d+)", last, re.MULTILINE) for name in ("run", "at"))
    if run is None or at is None:
        raise RuntimeError(f"TLC failed: {result.output[-3000:]}")
    trace, position = traces[int(run[1]) - 1], int(at[1])
    return trace, f"{result.violated} is violated after event {position - 1}: {trace.events[position - 2]}"


def _batches(traces: Iterable[Trace]) -> Iterable[Sequence[Trace]]:
    by_brokers = defaultdict[tuple[int, ...], list[Trace]](list)
    for trace in traces:
        by_brokers[tuple(trace.brokers)].append(trace)
    for group in by_brokers.values():
        batch: list[Trace] = []
        for trace in group:
            if batch and sum(len(each.events) for each in batch) + len(trace.events) > BATCH_EVENTS:
                yield batch
                batch = []
            batch.append(trace)
        yield batch


def main(seeds: Sequence[str]) -> int:
    traces = record_all(map(int, seeds))
    events = sum(len(trace.events) for trace in traces)
    refused = rejections(traces)
    print(f"{len(traces) - len(refused)} of {len(traces)} traces with {events} events are behaviours of V3")
    for name, text in refused.items():
        print(f"{name}: {text}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
