"""CPU time per request under several Python interpreters, for a broker with clients and for a simulated broker.

The environment variable ``BENCHMARK_INTERPRETERS`` lists the directories that contain the interpreters, separated by
`;`, each optionally preceded by a command that starts them, for example ``.venv/bin;chroot /srv/trixie
/kreplica/.venv/bin``.  By default, only the interpreter that runs the benchmark is measured.  All brokers run at the
same time and receive the load in turn, in reverse order in every other round; their values are medians.  A simulated
broker handles the requests of the benchmark ``calls``, without sockets; its values are minima over many batches of
requests, because other programs on the machine affect minima least.  The last columns are the CPU time relative to the
first interpreter.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.broker_process import ROOT, BrokerProcess
from benchmarks.comparison.deployments import SHARED, OneKreplica
from benchmarks.comparison.measuring import Run
from benchmarks.comparison.scenarios import SCALES, Kind, Scale, Scenario
from benchmarks.comparison.steady import MaximumRates
from benchmarks.driver import find_driver, remove_driver

VARIABLE = "BENCHMARK_INTERPRETERS"
CHECK = ROOT / "packaging" / "check_python.py"
SERVE = "import sys; sys.path.insert(0, {root!r}); from benchmarks.request_times import serve; serve()"
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
"""Values by interpreter name."""


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure all interpreters.

    :return: a row for each scenario.
    """
    chosen = SCALES[scale] if rounds is None else replace(SCALES[scale], rounds=rounds)
    return [*_in_process(chosen.rounds), *_with_clients(chosen)]


def _in_process(rounds: int) -> list[dict[str, Any]]:
    """Return the CPU time of requests to a simulated broker."""
    samples: dict[str, Samples] = {}
    for _ in range(rounds):
        for name, (*before, python) in interpreters("python").items():
            command = [*before, python, "-c", SERVE.format(root=str(ROOT))]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise RuntimeError(f"{name}: {result.stderr.strip()}")
            for request, cost_us in json.loads(result.stdout).items():
                samples.setdefault(f"simulated: {request}", {}).setdefault(name, []).append(cost_us)
    return [row(request, "us/request", values, min) for request, values in samples.items()]


def _with_clients(chosen: Scale) -> list[dict[str, Any]]:
    """Return the CPU time of brokers that serve real clients."""
    driver = find_driver()
    samples: dict[Scenario, Samples] = {scenario: {} for scenario in SCENARIOS}
    try:
        with ExitStack() as stack:
            runs = {}
            for name, launcher in interpreters("twistd").items():
                broker = stack.enter_context(BrokerProcess(dict(SHARED), launcher=launcher))
                broker.wait_until_ready()
                runs[name] = Run(OneKreplica(broker), driver, chosen, MaximumRates())
            for number in range(chosen.rounds + 1):  # the first round is a warm-up
                for scenario in SCENARIOS:
                    for name in runs if number % 2 else reversed(runs):
                        value = cost_of(runs[name].sample(scenario))
                        print(f"round {number}, {scenario.name}, {name}: {value:.4g}", file=sys.stderr, flush=True)
                        if number:
                            samples[scenario].setdefault(name, []).append(value)
    finally:
        remove_driver(driver)
    return [row(scenario.name, UNITS[scenario.kind], values, statistics.median) for scenario, values in samples.items()]


def interpreters(program: str) -> dict[str, list[str]]:
    """Return the command that starts a program in each environment, by version of Python.

    :raise RuntimeError: an interpreter does not start.
    """
    places = os.environ.get(VARIABLE) or str(Path(sys.executable).parent)
    return dict(_named_launcher(place.split(), program) for place in places.split(";"))


def _named_launcher(words: Sequence[str], program: str) -> tuple[str, list[str]]:
    *before, directory = words
    result = subprocess.run(
        [*before, f"{directory}/python", str(CHECK), "--build"], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise RuntimeError(f"{VARIABLE}: {' '.join(words)}: {result.stderr.strip()}")
    return result.stdout.strip(), [*before, f"{directory}/{program}"]


def cost_of(sample: dict[str, float]) -> float:
    """Return the sample's CPU time per request, record or MB, or its memory."""
    if "per core" in sample:
        return 1e6 / sample["per core"]
    return next(sample[name] for name in COSTS if name in sample)


def row(scenario: str, unit: str, samples: Samples, value_of: Callable[[list[float]], float]) -> dict[str, Any]:
    """Return one scenario's value for each interpreter, and its ratio to that of the first interpreter."""
    values = {name: value_of(measured) for name, measured in samples.items()}
    first, *others = values
    return {
        "scenario": scenario,
        "unit": unit,
        **values,
        **{f"{name.partition(',')[0]} / {first.partition(',')[0]}": values[name] / values[first] for name in others},
    }


UNITS = {
    Kind.TINY: "us/request",
    Kind.LATENCY: "us/record",
    Kind.PRODUCE: "us/MB",
    Kind.CONSUME: "us/MB",
    Kind.MEMORY: "MB",
}
