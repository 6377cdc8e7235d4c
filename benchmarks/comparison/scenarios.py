"""Scenarios as data: each line here is a row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

KB = 1000
BATCHES = {16_384: "16 K", 131_072: "128 K", 1_000_000: "1 M"}


class Kind(Enum):
    """Kind of a scenario, which determines how it is measured (``measuring``)."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    TINY = "tiny produces"
    CONNECT = "new connections"
    STEADY = "latency at a share of the maximum rate"
    JAVA_PRODUCE = "ProducerPerformance"
    JAVA_CONSUME = "ConsumerPerformance"
    JAVA_END_TO_END = "EndToEndLatency"
    MEMORY = "memory under load"
    START = "start-up"
    IDLE = "idle connections"
    BROKER_KILLED = "a broker killed"
    BROKER_STOPPED = "a broker shut down"
    CONTROLLER_KILLED = "the controller killed"


FAIL_OVERS = (Kind.BROKER_KILLED, Kind.BROKER_STOPPED, Kind.CONTROLLER_KILLED)
"""Kinds of scenarios that run last, because they need many partitions and unbalance the cluster."""


@dataclass(frozen=True)
class Bound:
    """Lower or upper bound of a measured quantity.

    :param figure: name of a quantity that ``measuring`` returns.
    :param ratio: ratio of kreplica's value to Kafka's in the same run.
    """

    figure: str
    least: float | None = None
    most: float | None = None
    ratio_least: float | None = None
    ratio_most: float | None = None

    def met(self, own: float, other: float | None) -> bool:
        """Return True if the bound is met, or if there is nothing to compare with."""
        ratio = own / other if other else None
        return not (
            (self.least is not None and own < self.least)
            or (self.most is not None and own > self.most)
            or (ratio is not None and self.ratio_least is not None and ratio < self.ratio_least)
            or (ratio is not None and self.ratio_most is not None and ratio > self.ratio_most)
        )

    def absolute(self) -> str:
        """Text of the bound on kreplica's own value."""
        if self.least is not None:
            return f">= {self.least:g}"
        return f"<= {self.most:g}" if self.most is not None else ""

    def relative(self) -> str:
        """Text of the bound on the ratio."""
        if self.ratio_least is not None:
            return f">= {self.ratio_least:g}"
        return f"<= {self.ratio_most:g}" if self.ratio_most is not None else ""


@dataclass(frozen=True)
class Scenario:
    """A scenario with its parameters and targets.

    :param brokers: number of brokers; each partition has a replica on each.
    :param acks: 1 or -1 (all in-sync replicas).
    :param synced: True if records are synced before they are acknowledged (``flush.messages=1``).
    :param records_per_s: rate of records (``LATENCY``).
    :param load_percent: rate of records in percent of the highest steady rate of the slower system (``STEADY``).
    :param count: number of connections (``IDLE``, ``TINY``).
    :param window: in-flight requests on each connection (``TINY``).
    :param share: share of a run's bytes that is written; less than 1 for small records, whose cost clients dominate.
    """

    name: str
    kind: Kind
    bounds: tuple[Bound, ...]
    brokers: int = 1
    record_bytes: int = KB
    batch_bytes: int = 16_384
    acks: int = 1
    synced: bool = False
    records_per_s: int = 1000
    load_percent: int = 100
    linger_ms: int = 0
    count: int = 1
    window: int = 1
    share: float = 1.0
    only_full: bool = False

    @property
    def topic_config(self) -> Mapping[str, str]:
        """Configuration of the scenario's topics."""
        return {"flush.messages": "1"} if self.synced else {}


@dataclass(frozen=True)
class Scale:
    """Amount of work.

    :param rounds: number of rounds, in which each system runs each scenario once; there is a warm-up round in addition.
    :param megabytes: amount of data (in 1e6 bytes) that a throughput scenario writes.
    :param latency_s: duration of a latency scenario in seconds.
    :param partitions: number of partitions in fail-over scenarios.
    :param fail_overs: number of fail-overs of each kind.
    """

    rounds: int
    megabytes: int
    latency_s: int
    tiny_s: float
    is_full: bool
    partitions: int
    fail_overs: int


SCALES = {
    "quick": Scale(3, 200, 2, 1.0, False, partitions=1_000, fail_overs=1),
    "full": Scale(5, 400, 8, 3.0, True, partitions=10_000, fail_overs=3),
}


def _throughput(least: float, us_per_mb: float | None = None, ratio: float = 1.5) -> tuple[Bound, ...]:
    rate = Bound("MB/s", least=least, ratio_least=ratio)
    return (rate,) if us_per_mb is None else (rate, Bound("broker us/MB", most=us_per_mb))


def _latency(p50_ms: float | None, p99_ms: float, ratio: float = 0.5) -> tuple[Bound, ...]:
    p99 = Bound("p99 ms", most=p99_ms, ratio_most=ratio)
    return (p99,) if p50_ms is None else (Bound("p50 ms", most=p50_ms, ratio_most=ratio), p99)


SCENARIOS = (
    Scenario("produce 1 KB, acks=1, 16 K", Kind.PRODUCE, _throughput(600, 900)),
    Scenario("produce 1 KB, acks=1, 128 K", Kind.PRODUCE, _throughput(1300, 450), batch_bytes=131_072),
    Scenario("produce 100 B, acks=1, 16 K", Kind.PRODUCE, (Bound("MB/s", ratio_least=1.5),), record_bytes=100,
             share=0.25, only_full=True),
    Scenario("consume 1 KB", Kind.CONSUME, _throughput(1200, 350), batch_bytes=131_072),
    Scenario("produce 1 KB, fsync, 16 K", Kind.PRODUCE, _throughput(500, ratio=2), synced=True, share=0.25),
    Scenario("produce 1 KB, fsync, 128 K", Kind.PRODUCE, _throughput(1000, ratio=2), synced=True, share=0.5,
             batch_bytes=131_072),
    Scenario("end to end, 1,000/s, acks=1", Kind.LATENCY, _latency(0.2, 1.5), record_bytes=100),
    Scenario("tiny produces, 64 x 8", Kind.TINY, (Bound("per core", least=150_000, ratio_least=1.5),), count=64,
             window=8),
    Scenario("start-up", Kind.START, (Bound("s", most=1.0, ratio_most=0.3), Bound("MB", most=80, ratio_most=0.3))),
    Scenario("10,000 idle connections", Kind.IDLE, (Bound("MB for 10,000", most=30, ratio_most=0.3),), count=10_000),
    Scenario("RF 3, acks=all, 16 K", Kind.PRODUCE, _throughput(250), brokers=3, acks=-1),
    Scenario("RF 3, acks=all, 128 K", Kind.PRODUCE, _throughput(400), brokers=3, acks=-1, batch_bytes=131_072),
    Scenario("RF 3, end to end, 1,000/s", Kind.LATENCY, _latency(0.35, 2), brokers=3, acks=-1, record_bytes=100),
    Scenario("RF 3, end to end, 200 MB/s", Kind.LATENCY, _latency(None, 4, 1), brokers=3, acks=-1,
             records_per_s=200_000, linger_ms=1, batch_bytes=131_072),
    *(
        Scenario(kind.value, kind, (Bound(figure, most=1.0, ratio_most=0.5),), brokers=3)
        for kind, figure in (
            (Kind.BROKER_STOPPED, "since the signal, s"),
            (Kind.BROKER_KILLED, "since the session ended, s"),
            (Kind.CONTROLLER_KILLED, "topic created, since the session ended, s"),
        )
    ),
)  # fmt: skip


@dataclass
class Figures:
    """Measurements of one scenario: system -> quantity -> one number per round."""

    scenario: Scenario
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, system: str, figures: Mapping[str, float]) -> None:
        """Add the measurements of one round."""
        for name, value in figures.items():
            self.samples.setdefault(system, {}).setdefault(name, []).append(value)
