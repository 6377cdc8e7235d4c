"""Machine instructions of one request, counted by Valgrind and compared with a recorded baseline.

A simulated broker receives frames as in ``calls``, under Valgrind's tool Callgrind, which counts the instructions of
the interpreter, the product and the simulator.  The counts are repeatable within 1 %, whatever else the machine does.
They depend on the build of Python and on the kernels, so the baseline has counts for each.  ``python -m benchmarks
instructions`` fails if a request takes over 3 % more instructions than its baseline.  ``python -m
benchmarks.instructions`` records the baseline.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.calls import PARTITIONS, RUN, Leader, build_frame, fetch_body, produce_body
from kreplica.runtime.interpreter import interpreter
from kreplica.wire.kernels import description
from kreplica.wire.messages import FETCH, METADATA, PRODUCE

BASELINE = Path(__file__).parent / "instructions_baseline.json"
BUILD = f"{interpreter()}, {description()}, {platform.python_compiler()}, {platform.machine()}"

GROWTH_PERCENT_MAX = 3
WARM_UP, ROUNDS = 20, 30
TIME_S_MAX = 1200
_TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)

Counts = dict[str, int]

REQUESTS = {
    "Produce, one partition, acks=1": (PRODUCE, 9, produce_body(1), 1),
    f"Produce, {RUN} requests in one read": (PRODUCE, 9, produce_body(1), RUN),
    "Fetch, one partition": (FETCH, 11, fetch_body(1), 1),
    f"Metadata, one topic of {PARTITIONS} partitions": (
        METADATA,
        8,
        {"topics": [{"name": "t"}], "allow_auto_topic_creation": False},
        1,
    ),
}
"""API, version, body, and number of requests in one read."""


class AboveBaseline(Exception):
    """A request takes more instructions than its baseline allows."""


class NoValgrind(Exception):
    """Valgrind is not installed."""


def run() -> list[dict[str, Any]]:
    """Count the instructions of every request, and compare the counts with the baseline.

    :return: one row for each request; if Valgrind is missing, one row that says so.
    :raise AboveBaseline: a request takes over 3 % more instructions than the baseline of this build of Python.
    """
    try:
        rows = compare(measure(), read_baseline())
    except NoValgrind as error:
        return [{"request": str(error)}]
    above = [f"{row['request']}: {row['growth']}" for row in rows if row["above"]]
    if above:
        raise AboveBaseline("; ".join(above))
    return rows


def compare(counts: Mapping[str, int], baseline: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return one row for each request; ``above`` is True if it exceeds its baseline, False without a baseline."""
    rows = []
    for request, count in counts.items():
        allowed = baseline.get(request)
        growth = None if allowed is None else count / allowed - 1
        rows.append(
            {
                "request": request,
                "instructions": count,
                "baseline": allowed,
                "growth": "" if growth is None else f"{growth:+.1%}",
                "above": allowed is not None and 100 * count > (100 + GROWTH_PERCENT_MAX) * allowed,
            }
        )
    return rows


def read_baseline(path: Path = BASELINE, build: str = BUILD) -> Counts:
    """Return the baseline of a build of Python; empty if none was recorded."""
    recorded = json.loads(path.read_text()) if path.exists() else {}
    return dict(recorded.get(build, {}))


def write_baseline(counts: Counts, path: Path = BASELINE, build: str = BUILD) -> None:
    """Replace the baseline of one build of Python."""
    recorded = json.loads(path.read_text()) if path.exists() else {}
    recorded[build] = counts
    path.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")


def measure() -> Counts:
    """Return the instructions of each request.

    :raise NoValgrind: Valgrind is missing.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NoValgrind("valgrind is not installed: apt-get install -y valgrind")
    with TemporaryDirectory() as directory:
        # Callgrind writes its counts at each call of this C library function, and restarts counting at 0.
        options = [f"--callgrind-out-file={directory}/out", "--dump-before=getloadavg", "--quiet"]
        command = [valgrind, "--tool=callgrind", *options, sys.executable, "-m", "benchmarks.instructions", "serve"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        subprocess.run(
            command,
            cwd=BASELINE.parent.parent,
            env=environment,
            stdout=sys.stderr,
            timeout=TIME_S_MAX,
            check=True,
        )
        # The requests of each kind run between two calls; their preparation comes before the first call.
        totals = [_total(Path(directory, f"out.{number}")) for number in range(1, 2 * len(REQUESTS) + 1)]
    return {name: total // ROUNDS for name, total in zip(REQUESTS, totals[1::2], strict=True)}


def _total(path: Path) -> int:
    match = _TOTAL.search(path.read_text())
    assert match is not None, f"{path.name} has no total"
    return int(match[1])


def serve_counted() -> None:
    """Serve the requests of each kind, with a call of ``getloadavg`` before and after them."""
    leader = Leader(brokers=1)
    for api, version, body, times in REQUESTS.values():
        reads = [[build_frame(api, version, body) for _ in range(times)] for _ in range(WARM_UP + ROUNDS)]
        for frames in reads[:WARM_UP]:
            leader.receive(frames)
        gc.collect()
        os.getloadavg()
        for frames in reads[WARM_UP:]:
            leader.receive(frames)
        os.getloadavg()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve_counted()
    else:
        write_baseline(measure())
