"""Interface of the topics and clients that a run has in addition to its main topic."""

from __future__ import annotations

from typing import Protocol

from kreplica.model import TopicPartition


class Companion(Protocol):
    """Topics or clients that take part in a run, and must converge at its end."""

    @property
    def hosts(self) -> list[str]:
        """Hosts of the clients."""

    @property
    def keys(self) -> list[TopicPartition]:
        """Partitions, including internal ones, whose committed records must survive."""

    def converge(self) -> None:
        """Wait until topics and clients have recovered from all faults, and check their records.

        :raise AssertionError: a check failed.
        :raise TimeoutError: they did not recover.
        """
