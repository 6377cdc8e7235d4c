"""Rates of ZooKeeper clients that read and write many znodes: kreplica's, Java's, kazoo, and a raw socket.

Znodes are read and written one at a time, many at once, and in multis of several sizes, with and without a check of
another znode's version.  If each request waits for the previous response, only one in 25 znodes is used.  `design` is
the result that the controller redesign document published for the Java client and five servers.  `of java` and `of raw`
are the rate of kreplica's client relative to Java's and to that of a raw socket with handwritten encoding; CPU time is
that of the client process.  A name instead of a rate is the client's error.

``python -m benchmarks.zookeeper [--znodes N] [--rounds N] [--servers N] [--targets kreplica,java] [--json PATH]``
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.tables import markdown
from benchmarks.zookeeper_clients import JAVA, TARGETS, prepare
from benchmarks.zookeeper_experiments import AT_ONCE, CHECKED, ROOT, Experiment, document_result, experiments
from benchmarks.zookeeper_java import JavaOutcome
from tests.support.coordinator import CoordinatorProcess
from tests.support.real_zookeeper import LOOPBACK, RealZooKeeper

SCRATCH = Path(__file__).parent / "results"
ZOOKEEPER_FLAGS = ("-Xmx6g", "-XX:TieredStopAtLevel=4")
"""The server keeps the last 500 transactions in memory; a heap of 1 GB is too small for multis of 50,000 writes."""
DATA_SIZE = 50
BAR = 0.8
TARGETS_AT_ONCE = ("kreplica", "java")
"""Clients that can be given all requests at once; kazoo and the raw socket have no limit and would use up memory."""
KEPT_FILE_COUNT = 2
"""Number of snapshots and transaction logs to keep per server; a server itself would keep all until the next hour."""


@dataclass(frozen=True)
class Scale:
    """Amount of work.

    :param sync_part: divisor of the number of znodes for experiments that wait for each response.
    :param target_parts: divisors of the number of znodes for slow clients.
    :param at_once: True to also send all requests without waiting for responses.
    """

    znode_count: int
    round_count: int
    sync_part: int = 25
    target_parts: Mapping[str, int] = field(default_factory=dict)
    at_once: bool = False

    def used(self, target: str, experiment: Experiment) -> int:
        """Return the number of znodes that a client reads or writes."""
        one_by_one = experiment.window == 1 and experiment.size == 1
        part = (self.sync_part if one_by_one else 1) * self.target_parts.get(target, 1)
        return max(self.znode_count // part, min(experiment.size, self.znode_count), 100)


SCALES = {"quick": Scale(10_000, 3), "full": Scale(50_000, 5)}


def run(
    scale: str | Scale = "quick",
    rounds: int | None = None,
    targets: Sequence[str] = tuple(TARGETS),
    embedded: bool = False,
    servers: int = 1,
) -> list[dict[str, Any]]:
    """Run every experiment with every target in turn, in the opposite order in every second round.

    A target that fails in an experiment is not run again in its later rounds.

    :param rounds: number of rounds; by default the scale's.
    :param targets: a selection of ``kreplica``, ``java``, ``kazoo`` and ``raw``.
    :param embedded: True to use the embedded coordinator instead of a real ZooKeeper.
    :param servers: number of servers of a real ZooKeeper; all clients use the first one.
    :return: a row per experiment: znodes per second and client CPU time per znode of each target (medians), or the
        target's error, and the ratios of our client's rate to the others.
    """
    size = SCALES[scale] if isinstance(scale, str) else scale
    data = random.Random(7).randbytes(DATA_SIZE)
    paths = [f"{ROOT}/{number}" for number in range(size.znode_count)]
    with _server(embedded, servers) as (port, directory, check_server):
        prepare(port, ROOT, CHECKED, paths, data)
        rows = []
        for experiment in experiments(size.znode_count, at_once=size.at_once):
            some = [target for target in targets if target in TARGETS_AT_ONCE or not experiment.title.endswith(AT_ONCE)]
            samples: dict[str, list[Sample]] = {target: [] for target in some}
            for number in range(rounds or size.round_count):
                for target in some if number % 2 else reversed(some):
                    if not any(sample.error for sample in samples[target]):
                        used = paths[: size.used(target, experiment)]
                        samples[target].append(_sample(target, port, experiment, used, data))
                        check_server()
                _delete_old_files(directory)
            rows.append(row(experiment, size.used("kreplica", experiment), samples, targets, size.znode_count))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)  # the whole run may take hours
        return rows


class Sample(NamedTuple):
    """Result of one run of a target.

    :param error: name of the error; rate and CPU time are then 0.
    """

    znodes_per_s: float
    cpu_us: float
    error: str | None = None


def _sample(name: str, port: int, experiment: Experiment, paths: Sequence[str], data: bytes) -> Sample:
    target = TARGETS[name]
    cpu_s = target.cpu_s()
    try:
        took_s = target.run(port, experiment, paths, data)
    except Exception as error:
        return Sample(0, 0, str(error) if isinstance(error, JavaOutcome) else type(error).__name__)
    return Sample(len(paths) / took_s, (target.cpu_s() - cpu_s) * 1e6 / len(paths))


def row(
    experiment: Experiment,
    znode_count: int,
    samples: Mapping[str, Sequence[Sample]],
    targets: Sequence[str] = (),
    document_count: int = 0,
) -> dict[str, Any]:
    """Return the medians of each target, and the ratios of our client's rate to the others.

    :param targets: clients that have a column, in column order; by default those with samples.
    :param document_count: number of znodes for which the document's result is shown.
    """
    rates = {name: median(sample.znodes_per_s for sample in each) for name, each in samples.items()}
    errors = {name: sample.error for name, each in samples.items() for sample in each if sample.error}
    names = targets or tuple(samples)
    figures: dict[str, Any] = {"experiment": experiment.title, "znodes": znode_count}
    figures |= {f"{name} /s": errors.get(name) or (round(rates[name]) if name in rates else None) for name in names}
    figures["design /s"] = document_result(experiment.title, document_count)
    for name in names:
        known = name in rates and name not in errors
        figures[f"{name} us"] = round(median(sample.cpu_us for sample in samples[name]), 1) if known else None
    for name in ("java", "raw"):
        if {"kreplica", name} <= set(names):
            compared = {"kreplica", name} <= rates.keys() - errors.keys()
            figures[f"of {name}"] = round(rates["kreplica"] / rates[name], 2) if compared else None
    if "raw" in names:
        ratio = figures.get("of raw")
        figures["reached"] = None if ratio is None else rates["kreplica"] / rates["raw"] >= BAR
    return figures


@contextmanager
def _server(embedded: bool, servers: int) -> Iterator[tuple[int, Path, Callable[[], None]]]:
    """Yield the port of a new server, its directory, and a function that raises an error if a server has exited."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix="zookeeper-", dir=SCRATCH) as directory:
            if embedded:
                with CoordinatorProcess(directory) as coordinator:
                    yield coordinator.port, Path(directory), lambda: None
            else:
                zookeeper = RealZooKeeper(
                    directory, places=[LOOPBACK] * servers, tick_time_ms=2_000, jvm_flags=ZOOKEEPER_FLAGS
                )
                with zookeeper:
                    yield zookeeper.servers[0].port, Path(directory), lambda: _check_running(zookeeper)
    finally:
        JAVA.stop()


def _check_running(zookeeper: RealZooKeeper) -> None:
    for server in zookeeper.servers:
        if not server.running:
            raise RuntimeError(f"a ZooKeeper server exited during an experiment: {server.last_output()}")


def _delete_old_files(directory: Path) -> None:
    for data in directory.glob("server-*/data/version-2"):
        for kind in ("log", "snapshot"):
            files = sorted(data.glob(f"{kind}.*"), key=lambda path: int(path.suffix[1:], 16))
            for path in files[:-KEPT_FILE_COUNT]:
                path.unlink(missing_ok=True)


def main() -> None:
    """Run the experiments, print a Markdown table, and write the rows to the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zookeeper", description=__doc__)
    parser.add_argument("--znodes", type=int, default=SCALES["quick"].znode_count, help="number of znodes")
    parser.add_argument("--rounds", type=int, default=SCALES["quick"].round_count, help="number of rounds for medians")
    parser.add_argument("--servers", type=int, default=1, help="number of ZooKeeper servers")
    parser.add_argument("--embedded", action="store_true", help="use the embedded coordinator")
    parser.add_argument("--targets", default=",".join(TARGETS), help="some of kreplica,java,kazoo,raw")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the rows to this file")
    options = parser.parse_args()
    scale = Scale(options.znodes, options.rounds)
    rows = run(scale, None, options.targets.split(","), options.embedded, options.servers)
    print(markdown(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
