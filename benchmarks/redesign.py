"""Measures the proposals of the controller redesign: asynchronous writes, batched requests, prioritized commands.

Partition states are written to a real ZooKeeper through a proxy that adds a round trip time: one by one (each write
waits for the previous response, as in the old controller), as pipelined single writes, with one write per multi (as
Kafka does), and in kreplica's guarded batches.  Commands are sent to a simulated broker with one partition per request,
or with all partitions in one request.  The second table shows events of kreplica's controller; its column `one by one`
is the event's number of znodes times the duration of one synchronous write.  Times that are marked `computed` were not
measured, because that would take too long: they are extrapolated from the rate with fewer partitions.

The last table shows how soon a broker executes LeaderAndIsr while 200 producers saturate it, and how many records with
acks=1 it acknowledges after the command was sent and truncates later.  `sockets first` is kreplica: control connections
are read before data connections.  `no priority` is kreplica without this.  The others have a request queue: `one queue`
is the old broker, `two queues` is the redesign's first option (a handler that waits for a regular request does not
notice a command for up to 300 ms), and `priority queue` is its second option.

``python -m benchmarks redesign --scale full`` or ``python -m benchmarks.redesign --quick``
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.delay_proxy import DelayProxy
from benchmarks.redesign_broker import ORDERS
from benchmarks.redesign_events import event_rows
from benchmarks.redesign_priority import priority_rows
from benchmarks.redesign_requests import seconds_of_requests
from benchmarks.redesign_writes import prepare_states, seconds_of_writes
from benchmarks.simulated_brokers import SimulatedBrokers
from benchmarks.tables import markdown
from benchmarks.zookeeper import SCRATCH, ZOOKEEPER_FLAGS
from tests.support.real_zookeeper import RealZooKeeper


@dataclass(frozen=True)
class Scale:
    """Amount of work.

    :param round_trips_ms: injected round trip times.
    :param sizes: numbers of partitions, in ascending order.
    :param event_sizes: numbers of partitions for events.
    :param limit_s: duration above which writes and requests are computed instead of measured.
    :param trials: number of leadership moves for each order of requests.
    """

    round_trips_ms: tuple[float, ...]
    sizes: tuple[int, ...]
    event_sizes: tuple[int, ...]
    limit_s: float
    trials: int
    orders: tuple[str, ...] = ORDERS


SCALES = {
    "smallest": Scale((1,), (20, 100), (1_000,), 1, 2, ORDERS[:1]),
    "quick": Scale((0.2, 1, 4), (1_000, 10_000), (1_000,), 3, 10),
    "full": Scale((0.2, 1, 4), (1_000, 10_000, 100_000), (1_000, 10_000, 100_000), 30, 50),
}

Seconds = Mapping[str, Sequence[tuple[float, bool]]]


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Measure all proposals.

    :return: rows for writes and requests by round trip and number of partitions, then for events, then for priorities.
    """
    size = SCALES[scale]
    SCRATCH.mkdir(parents=True, exist_ok=True)
    written = _written(size)
    return [*_amount_rows(size, written), *_event_rows(size, written), *priority_rows(size.trials, size.orders)]


def _written(scale: Scale) -> dict[float, Seconds]:
    """Return the durations of writes and requests in seconds_by_round_trip, by round trip."""
    seconds_by_round_trip: dict[float, Seconds] = {}
    with (
        TemporaryDirectory(prefix="zookeeper-", dir=SCRATCH) as directory,
        RealZooKeeper(directory, tick_time_ms=2_000, jvm_flags=ZOOKEEPER_FLAGS) as zookeeper,
        SimulatedBrokers(1) as brokers,
    ):
        server = zookeeper.servers[0].port
        prepare_states(server, scale.sizes[-1])
        seconds_of_writes(server, scale.sizes[:1], scale.limit_s)  # warms up the server
        for round_trip_ms in scale.round_trips_ms:
            with DelayProxy(round_trip_ms, [server, *brokers.ports]) as proxy:
                seconds_by_round_trip[round_trip_ms] = {
                    **seconds_of_writes(proxy.ports[0], scale.sizes, scale.limit_s),
                    **seconds_of_requests(proxy.ports[1], scale.sizes, scale.limit_s),
                }
    return seconds_by_round_trip


def _amount_rows(scale: Scale, written: Mapping[float, Seconds]) -> Iterator[dict[str, Any]]:
    for round_trip_ms, ways in written.items():
        for number, partitions in enumerate(scale.sizes):
            yield {
                "round trip, ms": round_trip_ms,
                "partitions": partitions,
                **{f"{way}, ms": _ms(results[number][0]) for way, results in ways.items()},
                "computed": ", ".join(way for way, results in ways.items() if results[number][1]),
            }


def _event_rows(scale: Scale, written: Mapping[float, Seconds]) -> Iterator[dict[str, Any]]:
    for round_trip_ms in scale.round_trips_ms:
        write_s = written[round_trip_ms]["one by one"][0][0] / scale.sizes[0]
        for partitions in scale.event_sizes:
            for row in event_rows(SCRATCH, round_trip_ms, partitions, ZOOKEEPER_FLAGS):
                yield {
                    "event": row["event"],
                    "round trip, ms": round_trip_ms,
                    "partitions": partitions,
                    "znodes": row["znodes"],
                    "round trips": row["round trips"],
                    "commands": row["commands"],
                    "written, ms": row["written, ms"],
                    "applied, ms": row["applied, ms"],
                    "one by one, ms (computed)": _ms(row["znodes"] * write_s),
                }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def main() -> None:
    """Run the measurements and print Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redesign", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only check that all measurements work")
    print(markdown(run("smallest" if parser.parse_args().quick else "full")))


if __name__ == "__main__":
    main()
