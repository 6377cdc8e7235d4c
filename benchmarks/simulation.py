"""Speed of a simulated cluster relative to real time, with all checks."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.outcome import run_storm
from kreplica.testing.storms.storm import Storm
from kreplica.testing.storms.sweep import Tally, disable_logging, sweep

SECONDS = {"quick": 60.0, "full": 600.0}
STORMS = {"quick": 40, "full": 400}
MESSAGES_PER_S = 100
TARGET = 100.0
"""Target multiple of real time, for three brokers at 100 messages per simulated second."""


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Measure three brokers without faults, with several batch sizes, and storms with some seeds.

    :return: a row for each.
    """
    disable_logging()
    run_storm(1, StormOptions(seconds=5.0))  # the first storm includes one-time costs
    rows = [_calm(records, SECONDS[scale]) for records in (10, 2)]
    return [*rows, _storms(STORMS[scale])]


def _calm(batch_records: int, seconds: float) -> dict[str, Any]:
    options = StormOptions(brokers=3, partitions=2, messages_per_s=MESSAGES_PER_S, batch_records=batch_records)
    with deferred_collection():
        storm = Storm(1, options)
        scheduler, history = storm.run.cluster.simulation.scheduler, storm.run.history
        events, acknowledged, started_s = scheduler.event_count, history.acked_count, perf_counter()
        storm.run.cluster.run(seconds)
        took_s = perf_counter() - started_s
        events, acknowledged = scheduler.event_count - events, history.acked_count - acknowledged
    return {
        "what": f"calm, batches of {batch_records} on average",
        "messages per simulated s": round(acknowledged / seconds),
        "times real time": round(seconds / took_s, 1),
        "target": TARGET,
        "events per simulated s": round(events / seconds),
        "us per event": round(took_s / events * 1e6, 1),
    }


def _storms(count: int) -> dict[str, Any]:
    tally = Tally()
    for outcome in sweep(range(1, count + 1)):
        tally.add(outcome)
    return {
        "what": f"{count} storms, {tally.clean} clean",
        "messages per simulated s": round(tally.acknowledged / tally.virtual_s),
        "times real time": round(tally.virtual_s / tally.busy_s, 1),
        "events per simulated s": round(tally.events / tally.virtual_s),
        "us per event": round(tally.busy_s / tally.events * 1e6, 1),
    }
