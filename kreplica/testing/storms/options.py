"""Options of a storm: its cluster, load and faults.

All are drawn from the seed except ``seconds``, ``journal``, ``ensemble``, ``protected`` and ``security``.
The caller can override each option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any

from kreplica.errors import KreplicaError
from kreplica.testing.clients.idempotent_producer import Load
from kreplica.testing.clients.pipelining_producer import Style
from kreplica.testing.storms.cluster_run import REPLICAS, TOPIC

VALUE_SIZE_MAX = 80
"""Maximum value size in bytes; the largest batch still fits into the smallest segment."""

LOADS = ((5, 1), (10, 5), (20, 5), (20, 10), (50, 10), (50, 20), (100, 10), (100, 20))
"""Messages per second and per batch.  Few batches are sent, because more take longer but rarely find more bugs."""

APPLICATIONS_CHANCE = 0.15

ENSEMBLE_LAGS_S = (0.005, 0.05, 0.3)

PLAIN = "plain"
PRODUCERS = (PLAIN, *(style.value for style in Style))
PRODUCER_WEIGHTS = (0.4, 0.4, 0.2)
REQUEST_TIMEOUTS_S = (3.0, 6.0, 10.0)
"""Request timeouts of the shared producer: shorter and longer than the time until a replica leaves the ISR."""


ALIASES = {
    "answer_timeout_s": "request_timeout_s",
    "calm_s": "fault_interval_s",
    "chain": "applications",
    "loose": "weak_producers",
}
"""Deprecated names of options."""


class BadOption(KreplicaError):
    """Unknown option or invalid value."""


@dataclass(frozen=True, slots=True)
class StormOptions:
    """Options of one storm.

    :param seconds: duration of the faults in virtual time; then the cluster must recover.
    :param brokers: number of brokers; partitions have 3 replicas, so more brokers allow reassignments.
    :param messages_per_s: total rate of the producers.
    :param batch_records: average number of records per batch.
    :param synced: set ``flush.messages=1`` for the topic: then any machine may lose power at any time.
    :param session_ms: the brokers' ``zookeeper.session.timeout.ms``.
    :param lag_ms: the brokers' ``replica.lag.time.max.ms``.
    :param segment_bytes: the topic's ``segment.bytes``.
    :param fault_interval_s: mean time between the starts of two faults.
    :param overlap: maximum number of concurrent faults.
    :param side_topics: create, grow, shrink and delete additional topics.
    :param weak_producers: add producers with ``acks=1`` and without idempotence, on a separate topic.
    :param racks: assign brokers to racks; consumers read from the nearest replica.
    :param applications: programs with the client library write, read as members of groups, and copy one topic to
        another in transactions.
    :param producer: ``plain`` for a simple producer per partition; ``librdkafka`` or ``java`` for one shared producer
        that handles errors as that client does.
    :param request_timeout_s: the producers' request timeout; leaders have half of it to replicate.
    :param journal: brokers write controller journals, which are replayed at the end.
    :param ensemble: number of ZooKeeper servers; with more than one, they lag and elect leaders, and faults of the
        ensemble are injected.
    :param ensemble_lag_s: mean lag of ZooKeeper servers that lag.
    :param protected: brokers authenticate to ZooKeeper and protect their znodes.
    :param security: brokers and additional clients authenticate; passwords, users, ACLs and quotas change.
    """

    seconds: float = 60.0
    brokers: int = 3
    partitions: int = 2
    messages_per_s: int = 100
    batch_records: int = 10
    synced: bool = False
    session_ms: int = 6000
    lag_ms: int = 3000
    segment_bytes: int = 5000
    fault_interval_s: float = 3.0
    overlap: int = 3
    side_topics: bool = False
    weak_producers: bool = False
    racks: bool = False
    applications: bool = False
    journal: bool = False
    producer: str = PLAIN
    request_timeout_s: float = 10.0
    ensemble: int = 1
    ensemble_lag_s: float = 0.02
    protected: bool = False
    security: bool = False

    def __str__(self) -> str:
        return " ".join(f"{name}={_text(value)}" for name, value in asdict(self).items())

    @property
    def load(self) -> Load:
        batches_per_s = self.messages_per_s / self.batch_records / self.partitions
        return Load(
            TOPIC,
            interval_s=1 / batches_per_s,
            records_max=2 * self.batch_records - 1,
            value_size_max=VALUE_SIZE_MAX,
            request_timeout_s=self.request_timeout_s,
        )

    @property
    def style(self) -> Style | None:
        """Client whose error handling the shared producer imitates; None for a simple producer per partition."""
        return None if self.producer == PLAIN else Style(self.producer)


def options_of(seed: int, chosen: Mapping[str, str] | None = None) -> StormOptions:
    """Return the options drawn from a seed, with the caller's overrides.

    :param chosen: the overrides, by name, as text.
    :raise BadOption: one of them is unknown or has an invalid value.
    """
    random = Random(f"{seed}/options")
    producer_random = Random(f"{seed}/options of the producer")
    (producer,) = producer_random.choices(PRODUCERS, PRODUCER_WEIGHTS)
    messages_per_s, batch_records = random.choice(LOADS)
    drawn = StormOptions(
        brokers=REPLICAS + random.choice((0, 0, 1, 2)),
        partitions=random.choice((1, 2, 3)),
        messages_per_s=messages_per_s,
        batch_records=batch_records,
        synced=random.random() < 0.35,
        session_ms=random.choice((3000, 6000, 6000, 10_000)),
        lag_ms=random.choice((1000, 3000, 5000)),
        segment_bytes=random.choice((4000, 10_000, 50_000)),
        fault_interval_s=random.choice((1.0, 2.0, 3.0, 5.0)),
        overlap=random.choice((1, 2, 3, 4)),
        side_topics=random.random() < 0.4,
        weak_producers=random.random() < 0.2,
        racks=random.random() < 0.3,
        applications=Random(f"{seed}/options of the applications").random() < APPLICATIONS_CHANCE,
        producer=producer,
        request_timeout_s=producer_random.choice(REQUEST_TIMEOUTS_S) if producer != PLAIN else 10.0,
        ensemble_lag_s=Random(f"{seed}/options of the ensemble").choice(ENSEMBLE_LAGS_S),
    )
    options = replace(drawn, **_parse(chosen or {}))
    _check(options)
    return options


def _check(options: StormOptions) -> None:
    if options.brokers < REPLICAS:
        raise BadOption(f"brokers={options.brokers}: at least {REPLICAS} are needed, one per replica")
    if options.producer not in PRODUCERS:
        raise BadOption(f"producer={options.producer}: must be one of {', '.join(PRODUCERS)}")
    for field in fields(options):
        value = getattr(options, field.name)
        if not isinstance(value, bool | str) and value <= 0:
            raise BadOption(f"{field.name}={value}: must be greater than 0")


def _parse(chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of options by name; a current name has priority over a deprecated one."""
    deprecated = {ALIASES[name]: text for name, text in chosen.items() if name in ALIASES}
    current = {name: text for name, text in chosen.items() if name not in ALIASES}
    return {name: _parse_value(name, text) for name, text in {**deprecated, **current}.items()}


def _parse_value(name: str, text: str) -> Any:
    kinds: dict[str, type] = {field.name: type(field.default) for field in fields(StormOptions)}
    if name not in kinds:
        raise BadOption(f"unknown option {name!r}; options: {', '.join(kinds)}")
    if kinds[name] is bool:
        if text not in ("yes", "no"):
            raise BadOption(f"{name}={text}: must be yes or no")
        return text == "yes"
    try:
        return kinds[name](text)
    except ValueError:
        kind = "an integer" if kinds[name] is int else "a number"
        raise BadOption(f"{name}={text}: must be {kind}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
