"""The embedded coordinator and a real ZooKeeper, alternately under the same load from the same raw socket.

Both sync every write to the same disk before they respond.  ZooKeeper has a heap and a JIT compiler as in production,
and is warmed up; values are medians, because other load and compilation affect single runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.coordinator import CoordinatorProcess
from tests.support.real_zookeeper import RealZooKeeper

SCRATCH = Path(__file__).parent / "results"
ZOOKEEPER_FLAGS = ("-Xmx1g", "-XX:TieredStopAtLevel=4")
WARM_UP_COUNT = 2
LOAD_TIME_S_MAX = 60


@dataclass(frozen=True)
class Case:
    """One load.

    :param bar_ratio: the coordinator's target as a fraction of ZooKeeper's rate.
    :param bar_rate: the coordinator's target in operations per second.
    """

    title: str
    kind: str
    request_count: int
    outstanding: int
    bar_ratio: float | None = None
    bar_rate: float | None = None


CASES = (
    Case("getData of 100 bytes, 1,000 outstanding", "read", 50_000, 1_000, bar_ratio=0.5),
    Case("setData of 100 bytes, 1,000 outstanding", "write", 20_000, 1_000, bar_ratio=0.5),
    Case("creates of 100 bytes in multis of 1,000, 4 outstanding", "create", 50, 4, bar_rate=60_000),
    Case("getData, one at a time", "read", 2_000, 1),
    Case("setData, one at a time", "write", 1_000, 1),
)


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Measure every case on both servers.

    :return: a row for each case: operations per second of both servers, their ratio, and the target.
    """
    repetitions = 5 if scale == "quick" else 11
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="coordinator-", dir=SCRATCH) as directory:
        zookeeper = RealZooKeeper(Path(directory, "zookeeper"), tick_time_ms=2_000, jvm_flags=ZOOKEEPER_FLAGS)
        with zookeeper, CoordinatorProcess(Path(directory, "coordinator")) as coordinator:
            ports = (zookeeper.servers[0].port, coordinator.port)
            return [_row(case, _measure(case, ports, repetitions)) for case in CASES]


def _measure(case: Case, ports: Sequence[int], repetitions: int) -> list[float]:
    rates: list[list[float]] = [[] for _ in ports]
    for _ in range(WARM_UP_COUNT + repetitions):
        for port, mine in zip(ports, rates, strict=True):
            mine.append(_load(port, case))
    return [median(mine[WARM_UP_COUNT:]) for mine in rates]


def _load(port: int, case: Case) -> float:
    """Run the load generator once in a separate process."""
    command = [sys.executable, "-m", "benchmarks.zookeeper_load"]
    arguments = [str(port), case.kind, str(case.request_count), str(case.outstanding)]
    done = subprocess.run(command + arguments, capture_output=True, text=True, timeout=LOAD_TIME_S_MAX)
    if done.returncode:
        raise RuntimeError(f"the load on port {port} failed: {done.stderr[-2000:]}")
    return float(done.stdout)


def _row(case: Case, rates: list[float]) -> dict[str, Any]:
    zookeeper, coordinator = rates
    ratio = coordinator / zookeeper
    if case.bar_ratio is not None:
        bar, reached = f"{case.bar_ratio} of ZooKeeper", ratio >= case.bar_ratio
    elif case.bar_rate is not None:
        bar, reached = f"{case.bar_rate:,.0f}/s", coordinator >= case.bar_rate
    else:
        bar, reached = "", True
    return {
        "load": case.title,
        "ZooKeeper /s": round(zookeeper),
        "coordinator /s": round(coordinator),
        "ratio": round(ratio, 2),
        "bar": bar,
        "reached": "yes" if reached else "no",
    }


def main() -> None:
    for row in run():
        print("  ".join(f"{name}: {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
