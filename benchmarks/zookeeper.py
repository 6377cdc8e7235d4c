"""Rates of kreplica's ZooKeeper client, of kazoo and of a raw socket, for reads and writes of many znodes.

Znodes are read and written one at a time, many at once, and in multis of each batch size, with and without a check of
another znode's version.  If each request waits for the previous response, only a twenty-fifth of the znodes is used.
The result is the rate of kreplica's client relative to that of a raw socket with hand-written encoding; CPU time is
that of the client process.

``python -m benchmarks.zookeeper [--znodes N] [--rounds N] [--embedded] [--targets kreplica,raw] [--json PATH]``
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.tables import markdown
from benchmarks.zookeeper_clients import TARGETS, Experiment, prepare
from tests.support.coordinator import CoordinatorProcess
from tests.support.real_zookeeper import RealZooKeeper

SCRATCH = Path(__file__).parent / "results"
ZOOKEEPER_FLAGS = ("-Xmx1g", "-XX:TieredStopAtLevel=4")
ROOT = "/benchmark"
CHECKED = "/benchmark-epoch"
DATA_SIZE = 50
BATCH_SIZES = (10, 50, 100, 500, 1_000, 5_000, 10_000)
BAR = 0.8


@dataclass(frozen=True)
class Scale:
    """Amount of work.

    :param sync_part: the part of the znodes for experiments that wait for each response.
    """

    znodes_count: int
    rounds_count: int
    sync_part: int = 25


SCALES = {"quick": Scale(10_000, 3), "full": Scale(50_000, 5)}


def experiments() -> list[Experiment]:
    """Return all experiments."""
    single = [
        Experiment("set-data-sync", "set", window=1),
        Experiment("get-data-sync", "get", window=1),
        Experiment("set-data-async", "set", window=1_000),
        Experiment("get-data-async", "get", window=1_000),
    ]
    sync = [Experiment(f"multi-set-data-sync ({size:,})", "multi", window=1, size=size) for size in BATCH_SIZES]
    checked = [
        Experiment(
            f"multi-check-and-set-data-async ({size:,})",
            "multi",
            window=max(2, min(1_000, 20_000 // size)),
            size=size,
            check=CHECKED,
        )
        for size in (1, *BATCH_SIZES)
    ]
    return single + sync + checked


def run(
    scale: str | Scale = "quick",
    rounds: int | None = None,
    targets: Sequence[str] = tuple(TARGETS),
    embedded: bool = False,
) -> list[dict[str, Any]]:
    """Run every experiment with every target in turn, in the opposite order in every second round.

    :param rounds: by default the scale's number.
    :param targets: some of ``kreplica``, ``kazoo`` and ``raw``.
    :param embedded: True to use the embedded coordinator instead of a real ZooKeeper.
    :return: a row per experiment: znodes per second and client CPU per znode of each target (medians), and the ratio of
        our client to the raw socket.
    """
    size = SCALES[scale] if isinstance(scale, str) else scale
    data = random.Random(7).randbytes(DATA_SIZE)
    paths = [f"{ROOT}/{number}" for number in range(size.znodes_count)]
    with _server(embedded) as port:
        prepare(port, ROOT, CHECKED, paths, data)
        rows = []
        for experiment in experiments():
            one_by_one = experiment.window == 1 and experiment.size == 1
            some = paths[: max(size.znodes_count // size.sync_part, 100)] if one_by_one else paths
            samples: dict[str, list[Sample]] = {target: [] for target in targets}
            for number in range(rounds or size.rounds_count):
                for target in targets if number % 2 else reversed(targets):
                    samples[target].append(_sample(target, port, experiment, some, data))
            rows.append(row(experiment, len(some), samples))
        return rows


class Sample(NamedTuple):
    """Result of one run of a target."""

    znodes_per_s: float
    cpu_us: float


def _sample(target: str, port: int, experiment: Experiment, paths: Sequence[str], data: bytes) -> Sample:
    cpu_s = time.process_time()
    took_s = TARGETS[target](port, experiment, paths, data)
    return Sample(len(paths) / took_s, (time.process_time() - cpu_s) * 1e6 / len(paths))


def row(experiment: Experiment, znodes_count: int, samples: dict[str, list[Sample]]) -> dict[str, Any]:
    """Return the medians of each target, and our ratio to the raw socket if both were measured."""
    rates = {target: median(sample.znodes_per_s for sample in each) for target, each in samples.items()}
    figures: dict[str, Any] = {"experiment": experiment.title, "znodes": znodes_count}
    figures |= {f"{target} /s": round(rate) for target, rate in rates.items()}
    figures |= {f"{target} us": round(median(sample.cpu_us for sample in each), 1) for target, each in samples.items()}
    if {"kreplica", "raw"} <= rates.keys():
        ratio = rates["kreplica"] / rates["raw"]
        figures |= {"of raw": round(ratio, 2), "reached": ratio >= BAR}
    return figures


@contextmanager
def _server(embedded: bool) -> Iterator[int]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="zookeeper-", dir=SCRATCH) as directory:
        if embedded:
            with CoordinatorProcess(directory) as coordinator:
                yield coordinator.port
        else:
            with RealZooKeeper(directory, tick_time_ms=2_000, jvm_flags=ZOOKEEPER_FLAGS) as zookeeper:
                yield zookeeper.servers[0].port


def main() -> None:
    """Run the experiments, print a Markdown table, and write the rows to the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zookeeper", description=__doc__)
    parser.add_argument("--znodes", type=int, default=SCALES["quick"].znodes_count, help="number of znodes")
    parser.add_argument("--rounds", type=int, default=SCALES["quick"].rounds_count, help="number of rounds for medians")
    parser.add_argument("--embedded", action="store_true", help="use the embedded coordinator")
    parser.add_argument("--targets", default=",".join(TARGETS), help="some of kreplica,kazoo,raw")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the rows to this file")
    options = parser.parse_args()
    rows = run(Scale(options.znodes, options.rounds), None, options.targets.split(","), options.embedded)
    print(markdown(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
