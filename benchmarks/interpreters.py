"""CPU time of one broker with several Python interpreters, with the same clients and load.

``BENCHMARK_INTERPRETERS`` names the directories of their programs, separated by `;`, each possibly after a command that
starts them, for example ``.venv/bin;chroot /srv/trixie /kreplica/.venv/bin``.  By default there is only the interpreter
that runs the benchmark.  All brokers run at the same time and receive the load in turn, in reverse order in every
second round.  Values are medians; the last columns are the CPU time relative to the first interpreter.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.broker_process import ROOT, BrokerProcess
from benchmarks.comparison.deployments import SHARED, OneKreplica
from benchmarks.comparison.measuring import Run
from benchmarks.comparison.scenarios import SCALES, Kind, Scenario
from benchmarks.comparison.steady import MaximumRates
from benchmarks.driver import find_driver, remove_driver

VARIABLE = "BENCHMARK_INTERPRETERS"
CHECK = ROOT / "packaging" / "check_python.py"
COSTS = ("broker us/request", "broker us/record", "broker us/MB", "MB")

SCENARIOS = (
    Scenario("tiny produces, 64 x 8 in flight", Kind.TINY, (), count=64, window=8),
    Scenario("tiny produces, one in flight", Kind.TINY, ()),
    Scenario("end to end, 1,000/s", Kind.LATENCY, (), record_bytes=100),
    Scenario("produce 1 KB, 16 K batches", Kind.PRODUCE, ()),
    Scenario("produce 1 KB, 128 K batches", Kind.PRODUCE, (), batch_bytes=131_072),
    Scenario("consume 1 KB", Kind.CONSUME, (), batch_bytes=131_072),
    Scenario("memory after these", Kind.MEMORY, ()),
)

Samples = dict[str, list[float]]
"""Values by name of the interpreter."""


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure all interpreters.

    :return: a row for each scenario.
    """
    chosen = SCALES[scale] if rounds is None else replace(SCALES[scale], rounds=rounds)
    driver = find_driver()
    samples: dict[Scenario, Samples] = {scenario: {} for scenario in SCENARIOS}
    try:
        with ExitStack() as stack:
            runs = {}
            for name, launcher in interpreters().items():
                broker = stack.enter_context(BrokerProcess(dict(SHARED), launcher=launcher))
                broker.wait_until_ready()
                runs[name] = Run(OneKreplica(broker), driver, chosen, MaximumRates())
            for number in range(chosen.rounds + 1):  # the first round does not count
                for scenario in SCENARIOS:
                    for name in runs if number % 2 else reversed(runs):
                        value = cost_of(runs[name].sample(scenario))
                        print(f"round {number}, {scenario.name}, {name}: {value:.4g}", file=sys.stderr, flush=True)
                        if number:
                            samples[scenario].setdefault(name, []).append(value)
    finally:
        remove_driver(driver)
    return [row(scenario, taken) for scenario, taken in samples.items()]


def interpreters() -> dict[str, list[str]]:
    """Return the command that starts ``twistd``, by version of Python.

    :raise RuntimeError: an interpreter does not start.
    """
    places = os.environ.get(VARIABLE) or str(Path(sys.executable).parent)
    return dict(_named_launcher(place.split()) for place in places.split(";"))


def _named_launcher(words: Sequence[str]) -> tuple[str, list[str]]:
    *before, directory = words
    asked = subprocess.run(
        [*before, f"{directory}/python", str(CHECK), "--build"], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        raise RuntimeError(f"{VARIABLE}: {' '.join(words)}: {asked.stderr.strip()}")
    return asked.stdout.strip(), [*before, f"{directory}/twistd"]


def cost_of(sample: dict[str, float]) -> float:
    """Return the CPU time per request, record or MB, or the memory."""
    if "per core" in sample:
        return 1e6 / sample["per core"]
    return next(sample[name] for name in COSTS if name in sample)


def row(scenario: Scenario, samples: Samples) -> dict[str, Any]:
    """Return the medians of one scenario, and their ratios to that of the first interpreter."""
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    first, *others = medians
    return {
        "scenario": scenario.name,
        "unit": UNITS[scenario.kind],
        **medians,
        **{f"{name.partition(',')[0]} / {first.partition(',')[0]}": medians[name] / medians[first] for name in others},
    }


UNITS = {
    Kind.TINY: "us/request",
    Kind.LATENCY: "us/record",
    Kind.PRODUCE: "us/MB",
    Kind.CONSUME: "us/MB",
    Kind.MEMORY: "MB",
}
