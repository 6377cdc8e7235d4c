"""Application settings drawn from a seed: the number of applications, and their client options."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from kreplica.wire.compression import Codec

CODECS = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP)
STYLES = ("records", "batches", "polls", "handler")
TRANSACTION_VERSIONS = (1, 2)
"""Version 2 raises the producer epoch with every transaction (KIP-890, part 2)."""

PROTOCOLS = ("classic", "classic", "consumer")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky")


@dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """Settings of all applications of a run.

    :param partitions: number of partitions of each topic.
    :param writers: number of writers; ``workers`` and ``readers`` likewise.
    :param copiers: for each copier, the version of the transaction protocol.
    :param protocol: group protocol of both groups.
    :param assignors: for the classic protocol, in order of preference.
    :param static: True if the workers are static members, with instance IDs.
    :param styles: how each worker reads.
    :param auto_commit: for each worker, whether its consumer commits automatically.
    :param interval_s: mean time between two sends of a writer.
    :param fetch_wait_s: maximum wait of fetches, like ``fetch.max.wait.ms``.
    :param fetch_size_max: maximum bytes of a fetch response.
    :param buffer_size_max: maximum bytes that a consumer buffers.
    :param producers: options of each writer's producer.
    """

    partitions: int
    writers: int
    workers: int
    copiers: tuple[int, ...]
    readers: int
    protocol: str
    assignors: tuple[str, ...]
    static: bool
    styles: tuple[str, ...]
    auto_commit: tuple[bool, ...]
    interval_s: float
    fetch_wait_s: float
    fetch_size_max: int
    buffer_size_max: int
    producers: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        protocol = self.protocol if self.protocol == "consumer" else f"{self.protocol} {'/'.join(self.assignors)}"
        styles = ", ".join(
            f"{style}{' with automatic commits' if auto else ''}"
            for style, auto in zip(self.styles, self.auto_commit, strict=True)
        )
        static = "static " if self.static else ""
        return (
            f"{self.partitions} partitions, {self.writers} writers, {self.workers} {static}workers ({styles}) "
            f"with protocol {protocol}, {len(self.copiers)} copiers"
            f"{''.join(f' (transaction version {version})' for version in self.copiers)}, {self.readers} readers"
        )


def settings_of_seed(seed: int) -> ApplicationSettings:
    random = Random(f"{seed}/applications")
    writers, workers = random.choice((1, 1, 2)), random.choice((1, 2, 2, 3))
    protocol, assignor = random.choice(PROTOCOLS), random.choice(ASSIGNORS)
    return ApplicationSettings(
        partitions=random.choice((1, 2, 3, 4)),
        writers=writers,
        workers=workers,
        copiers=tuple(random.choice(TRANSACTION_VERSIONS) for _ in range(random.choice((1, 1, 2)))),
        readers=random.choice((1, 1, 2)),
        protocol=protocol,
        assignors=(assignor,),
        static=random.random() < 0.3,
        styles=tuple(random.choice(STYLES) for _ in range(workers)),
        auto_commit=tuple(random.random() < 0.5 for _ in range(workers)),
        interval_s=random.choice((0.5, 1.0, 2.0, 4.0)),
        fetch_wait_s=random.choice((0.5, 2.0, 5.0)),
        fetch_size_max=random.choice((300, 2000, 1 << 20)),
        buffer_size_max=random.choice((1000, 20_000, 1 << 20)),
        producers=tuple(_producer(random) for _ in range(writers)),
    )


def _producer(random: Random) -> dict[str, Any]:
    return {
        "codec": random.choice(CODECS),
        "linger_s": random.choice((0.0, 0.0, 0.005, 0.3)),
        "batch_size": random.choice((200, 1000, 16_384)),
        "memory_size_max": random.choice((4000, 100_000, 32 << 20)),
        "delivery_timeout_s": random.choice((5.0, 30.0, 120.0)),
    }
