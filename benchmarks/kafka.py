"""Rates, latencies, CPU time and memory of kreplica and of Apache Kafka 3.9, with the same clients and load.

The benchmark starts every process.  It needs Java and Maven, which downloads Kafka once.  Both systems run at the same
time and receive the load in turn, in reverse order in every second round.  Before the first round, each scenario is
repeated, at most five times, until its first value changes by less than 10 %, because JVMs need to warm up.  Failovers
run with one system at a time, because even thousands of idle partitions cause load.  The page cache of the logs is
filled in advance.  Values are medians; ``ratio`` is kreplica's value divided by Kafka's.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from benchmarks.broker_process import BrokerProcess, resident_mb
from benchmarks.comparison import deployments
from benchmarks.comparison.deployments import Deployment
from benchmarks.comparison.measuring import Run, first_record_s, idle_mb
from benchmarks.comparison.scenarios import FAIL_OVERS, SCALES, SCENARIOS, Bound, Figures, Kind, Scale, Scenario
from benchmarks.comparison.steady import MaximumRates
from benchmarks.driver import Driver, find_driver, remove_driver
from benchmarks.tables import text as cell
from tests.interop.apache_kafka import NoKafka, class_path

OWN, OTHER = "kreplica", "Kafka"
Systems = Mapping[str, Callable[[int], AbstractContextManager[Deployment]]]
"""Functions that start a system with a number of brokers, by name of the system."""

SYSTEMS: Systems = {
    OWN: deployments.kreplica,
    OTHER: deployments.kafka,
}

FRESH = (Kind.START, Kind.IDLE)
"""Kinds of scenarios that are measured with new processes."""


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure every scenario on both systems.

    :return: a row for each measured quantity of each scenario.
    """
    return compare(SCENARIOS, scale, rounds)


def compare(
    some: Sequence[Scenario], scale: str, rounds: int | None = None, systems: Systems = SYSTEMS
) -> list[dict[str, Any]]:
    """Measure some scenarios on both systems.

    :param systems: kreplica and one peer.
    :return: a row for each figure of each scenario.
    """
    driver = find_driver()
    if driver.note is not None:
        print(driver.note, file=sys.stderr)
    available = dict(systems)
    peers = [name for name in systems if name != OWN]
    try:
        class_path()
    except NoKafka as error:
        print(f"Apache Kafka is not available, so kreplica is measured alone: {error}", file=sys.stderr)
        for name in peers:
            del available[name]
    chosen = SCALES[scale]
    if rounds is not None:
        chosen = replace(chosen, rounds=rounds, fail_overs=rounds)
    scenarios = [each for each in some if chosen.is_full or not each.only_full]
    try:
        figures = list(_measured(scenarios, available, driver, chosen))
    finally:
        remove_driver(driver)
    return [row for each in figures for row in _rows(each, *peers)]


def _measured(scenarios: Sequence[Scenario], systems: Systems, driver: Driver, scale: Scale) -> Iterator[Figures]:
    started = [each for each in scenarios if each.kind in FRESH]
    for scenario in started:
        yield _in_fresh_processes(scenario, systems, scale.rounds)
    for brokers in sorted({each.brokers for each in scenarios}):
        remaining = [each for each in scenarios if each.brokers == brokers and each not in started]
        steady = [each for each in remaining if each.kind not in FAIL_OVERS]
        if steady:
            yield from _in_turns(steady, brokers, systems, driver, scale)
        if len(steady) < len(remaining):
            last = [each for each in remaining if each not in steady]
            yield from _alone(last, brokers, systems, driver, scale)


def _in_turns(
    scenarios: Sequence[Scenario], brokers: int, systems: Systems, driver: Driver, scale: Scale
) -> list[Figures]:
    figures = {scenario: Figures(scenario) for scenario in scenarios}
    with ExitStack() as stack:
        maxima = MaximumRates()
        runs = {name: Run(stack.enter_context(systems[name](brokers)), driver, scale, maxima) for name in systems}
        for scenario in scenarios:
            for name, run in runs.items():
                _print_progress(scenario, name, 0)
                run.warm_up(scenario)
        for number in range(1, scale.rounds + 1):
            _round(number, scenarios, runs, figures)
    return list(figures.values())


def _alone(
    scenarios: Sequence[Scenario], brokers: int, systems: Systems, driver: Driver, scale: Scale
) -> list[Figures]:
    figures = {scenario: Figures(scenario) for scenario in scenarios}
    for name in systems:
        with systems[name](brokers) as deployment:
            run = Run(deployment, driver, scale, MaximumRates())
            for number in range(1, scale.fail_overs + 1):
                _round(number, scenarios, {name: run}, figures)
    return list(figures.values())


def _round(
    number: int, scenarios: Sequence[Scenario], runs: Mapping[str, Run], figures: Mapping[Scenario, Figures]
) -> None:
    """Run all scenarios once on each system."""
    for scenario in scenarios:
        for name in runs if number % 2 else reversed(runs):
            _print_progress(scenario, name, number)
            sample = runs[name].sample(scenario)
            print("  ", ", ".join(f"{figure}: {value:.4g}" for figure, value in sample.items()), file=sys.stderr)
            figures[scenario].add(name, sample)


def _in_fresh_processes(scenario: Scenario, systems: Systems, rounds: int) -> Figures:
    """Measure the time to the first acknowledged record with an empty directory, or the memory of connections.

    The processes are new, because one that has served requests has spare memory, which hides that of connections.
    """
    figures = Figures(scenario)
    starts: Mapping[str, Callable[[], AbstractContextManager[tuple[int, int, float]]]] = {
        OWN: _start_kreplica,
        OTHER: _start_kafka,
    }
    for number in range(rounds):
        for name in systems if number % 2 else reversed(systems):
            _print_progress(scenario, name, number + 1)
            with starts[name]() as (pid, port, started_s):
                sample = {"s": first_record_s(port, started_s), "MB": resident_mb(pid)}
                if scenario.kind is Kind.IDLE:
                    sample = idle_mb(port, pid, scenario.count)
                figures.add(name, sample)
    return figures


@contextmanager
def _start_kreplica() -> Iterator[tuple[int, int, float]]:
    with BrokerProcess() as process:
        yield process.pid, process.port, process.started_s


@contextmanager
def _start_kafka() -> Iterator[tuple[int, int, float]]:
    """Start Kafka; its ZooKeeper is already running."""
    with deployments.zookeeper("kafka") as (zookeeper, directory):
        started_s = time.monotonic()
        settings = {"offsets.topic.replication.factor": 1, "auto.create.topics.enable": "true"}
        broker = deployments.kafka_broker(directory / "kafka-1", 1, zookeeper, settings)
        try:
            yield broker.process.pid, broker.port, started_s
        finally:
            broker.kill()


def _print_progress(scenario: Scenario, system: str, number: int) -> None:
    what = f"round {number}" if number else "warming up"
    print(f"{time.strftime('%H:%M:%S')} {scenario.name}: {system}, {what}", file=sys.stderr, flush=True)


def _rows(figures: Figures, peer: str) -> Iterator[dict[str, Any]]:
    bounds = {bound.figure: bound for bound in figures.scenario.bounds}
    own = figures.samples.get(OWN, {})
    for name in own:
        bound = bounds.get(name, Bound(name))
        ours = statistics.median(own[name])
        samples = figures.samples.get(peer, {}).get(name)
        theirs = statistics.median(samples) if samples else None
        yield {
            "scenario": figures.scenario.name,
            "figure": name,
            OWN: ours,
            peer: theirs,
            "ratio": ours / theirs if theirs else None,
            "target": bound.absolute(),
            "target ratio": bound.relative(),
            "": "" if name not in bounds else "pass" if bound.met(ours, theirs) else "missed",
            "lowest to highest": f"{cell(min(own[name]))} to {cell(max(own[name]))}",
        }
