"""Runs each benchmark in a separate process, so that none inherits another's heap, caches or reactor."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import pkgutil
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.tables import markdown

HERE = Path(__file__).parent
RESULTS = HERE / "results"
CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
"""On loopback, BBR's timers cost more than sending: results with and without BBR are not comparable."""

TIME_LIMIT_S = {"quick": 240, "full": 1200}
APART = ("controller_interruptions", "fail_over", "instructions", "interpreters", "kafka", "kafka_java", "kafka_kraft",
         "kafka_tls", "zookeeper_appendix")  # fmt: skip
"""Benchmarks that run only if they are named, because they need software that may be unavailable, or take long."""

TIMES_LONGER = {
    "fail_over": 3,
    "instructions": 3,
    "interpreters": 5,
    "kafka": 10,
    "kafka_java": 10,
    "kafka_kraft": 15,
    "kafka_tls": 5,
    "redesign": 3,
    "spark": 5,
    "zookeeper": 2,
    "zookeeper_appendix": 15,
}
"""Benchmarks that need many processes or much data."""

ROUNDS = 5
"""Number of rounds for which the time limit is intended."""


def benchmark_names() -> list[str]:
    """Return the names of modules in this package with a function ``run``, without importing them."""
    names = [module.name for module in pkgutil.iter_modules([str(HERE)]) if not module.ispkg]
    return [name for name in names if "\ndef run(" in (HERE / f"{name}.py").read_text() and name != "__main__"]


def call_run(name: str, scale: str, rounds: int | None = None) -> list[dict[str, Any]]:
    """Call a benchmark's ``run`` with the arguments that it accepts.

    :param rounds: number of rounds; by default the benchmark's own.
    """
    run = importlib.import_module(f"benchmarks.{name}").run
    parameters = inspect.signature(run).parameters
    offered: dict[str, Any] = {"scale": scale, "quick": scale == "quick", "full": scale == "full"}
    if rounds is not None:
        offered["rounds"] = rounds
    rows = run(**{key: value for key, value in offered.items() if key in parameters})
    return [dict(row) for row in rows]


def run_apart(name: str, scale: str, rounds: int | None = None) -> tuple[list[dict[str, Any]], str | None]:
    """Run one benchmark in its own process.

    :return: its rows, and the error or None.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "rows.json")
        command = [sys.executable, "-m", "benchmarks", name, "--scale", scale, "--rows-to", str(path)]
        command += [] if rounds is None else ["--rounds", str(rounds)]
        limit_s = TIME_LIMIT_S[scale] * TIMES_LONGER.get(name, 1) * max(1.0, (rounds or 0) / ROUNDS)
        process = subprocess.Popen(command, cwd=HERE.parent, stdout=sys.stderr)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return [], f"it did not finish within {limit_s:.0f} s"
        finally:
            process.terminate()
            process.wait()
        if status or not path.exists():
            return [], f"it ended with status {status}; see its output above"
        return json.loads(path.read_text()), None


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit or None,
        "congestion_control": CONGESTION_CONTROL.read_text().strip() if CONGESTION_CONTROL.exists() else None,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def main() -> int:
    names = benchmark_names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks, as Markdown and JSON.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of: {', '.join(names)} (default: all)")
    parser.add_argument("--scale", choices=sorted(TIME_LIMIT_S), default="quick", help="amount of work")
    parser.add_argument("--rounds", type=int, help="number of rounds in benchmarks that report medians of rounds")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the rows to this file")
    parser.add_argument("--rows-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no benchmark is named {', '.join(unknown)}; available: {', '.join(names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that child processes are stopped
    if options.rows_to is not None:
        options.rows_to.write_text(json.dumps(call_run(options.names[0], options.scale, options.rounds)))
        return 0
    return run_all(
        options.names or [name for name in names if name not in APART], options.scale, options.json, options.rounds
    )


def run_all(names: list[str], scale: str, path: Path | None, rounds: int | None = None) -> int:
    results: dict[str, Any] = {"machine": machine(), "scale": scale, "benchmarks": {}}
    failed = False
    for name in names:
        began = time.monotonic()
        rows, problem = run_apart(name, scale, rounds)
        failed = failed or problem is not None
        print(f"\n## {name} ({time.monotonic() - began:.0f} s)\n\n{problem or markdown(rows)}", flush=True)
        results["benchmarks"][name] = {"rows": rows, "problem": problem}
    path = path or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{scale}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nrows: {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
