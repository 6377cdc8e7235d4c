"""What a run may have besides the main topic and its clients."""

from __future__ import annotations

from typing import Protocol

from kreplica.model import TopicPartition


class Companion(Protocol):
    """Topics or clients that take part in a run, and that are to be well when it converges."""

    @property
    def hosts(self) -> list[str]:
        """Where its clients are."""

    @property
    def committed_ends(self) -> dict[TopicPartition, int]:
        """By partition of its own, the first offset beyond what is known to be committed."""

    def converge(self) -> None:
        """All faults are over, everything runs: what belongs to it must be whole.

        :raise AssertionError: it is not.
        :raise TimeoutError: it does not come to that.
        """
