"""Interface through which a log notifies the log directory that owns it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from kreplica.storage.segments.damage import Damage

LogT = TypeVar("LogT", contravariant=True)


class LogOwner(Protocol[LogT]):
    """Notified by a log of events that its log directory must act on."""

    def rolled(self, log: LogT) -> None:
        """A segment was closed and can be synced."""

    def start_offset_advanced(self, log: LogT) -> None:
        """The log start offset moved; the checkpoint must be updated."""

    def truncated(self, log: LogT) -> None:
        """The log was truncated; checkpointed offsets may be beyond its end."""

    def failed(self, log: LogT, error: OSError) -> None:
        """The device failed; later writes cannot be trusted."""

    def damaged(self, log: LogT, damage: Damage) -> None:
        """A stored batch is corrupt or unreadable."""

    def remove(self, log: LogT, paths: list[str]) -> None:
        """These files are no longer needed."""

    def rejected(self, log: LogT, error: OSError) -> None:
        """An append was rejected for lack of space, file descriptors or memory."""

    def flush_due(self, log: LogT) -> None:
        """At least ``flush.messages`` records are not synced yet."""
