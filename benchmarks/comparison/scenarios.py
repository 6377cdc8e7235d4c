"""What is measured, as data: a new row of the table is a new line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

KB = 1000
BATCHES = {16_384: "16 K", 131_072: "128 K", 1_000_000: "1 M"}


class Kind(Enum):
    """How it is measured (``measuring``)."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    TINY = "tiny produces"
    START = "start-up"
    IDLE = "idle connections"
    BROKER_KILLED = "a broker killed"
    BROKER_STOPPED = "a broker shut down"
    CONTROLLER_KILLED = "the controller killed"


FAIL_OVERS = (Kind.BROKER_KILLED, Kind.BROKER_STOPPED, Kind.CONTROLLER_KILLED)
"""They need many partitions, and each leaves a cluster that has to find its balance again: they come last."""


@dataclass(frozen=True)
class Bound:
    """What a figure is to be, at least or at most.

    :param figure: one of those that ``measuring`` gives.
    :param ratio: of kreplica's figure to Kafka's in the same run.
    """

    figure: str
    least: float | None = None
    most: float | None = None
    ratio_least: float | None = None
    ratio_most: float | None = None

    def met(self, own: float, other: float | None) -> bool:
        """Whether it is; what cannot be compared is not missed."""
        ratio = own / other if other else None
        return not (
            (self.least is not None and own < self.least)
            or (self.most is not None and own > self.most)
            or (ratio is not None and self.ratio_least is not None and ratio < self.ratio_least)
            or (ratio is not None and self.ratio_most is not None and ratio > self.ratio_most)
        )

    def absolute(self) -> str:
        """For people."""
        if self.least is not None:
            return f">= {self.least:g}"
        return f"<= {self.most:g}" if self.most is not None else ""

    def relative(self) -> str:
        """For people."""
        if self.ratio_least is not None:
            return f">= {self.ratio_least:g}"
        return f"<= {self.ratio_most:g}" if self.ratio_most is not None else ""


@dataclass(frozen=True)
class Scenario:
    """One thing to do.

    :param brokers: processes; each partition has a replica on each.
    :param acks: 1 or -1 (all in sync).
    :param synced: whether only what is on the disk is acknowledged (``flush.messages=1``).
    :param records_per_s: of ``LATENCY``.
    :param count: of connections (``IDLE``, ``TINY``).
    :param window: requests under way on each connection (``TINY``).
    :param share: of the bytes that a run writes: clients, not brokers, are what small records cost.
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
    linger_ms: int = 0
    count: int = 1
    window: int = 1
    share: float = 1.0
    only_full: bool = False

    @property
    def topic_config(self) -> Mapping[str, str]:
        """Of the scenario's topics."""
        return {"flush.messages": "1"} if self.synced else {}


@dataclass(frozen=True)
class Scale:
    """How much is measured.

    :param rounds: each system does each scenario once in a round, after one that does not count.
    :param megabytes: (1e6 bytes) that a throughput scenario writes.
    :param latency_s: seconds of a latency scenario.
    :param partitions: of a cluster that loses a broker.
    :param fail_overs: how often it loses one in each way.
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
            (Kind.CONTROLLER_KILLED, "topic made since the session ended, s"),
        )
    ),
)  # fmt: skip


@dataclass
class Figures:
    """What was measured of one scenario: by system, by figure, one number for each round."""

    scenario: Scenario
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, system: str, figures: Mapping[str, float]) -> None:
        """One round's."""
        for name, value in figures.items():
            self.samples.setdefault(system, {}).setdefault(name, []).append(value)
