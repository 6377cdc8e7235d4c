"""Whom a log reports to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kreplica.storage.inspection.damage import Damage
    from kreplica.storage.log.log import Log
    from kreplica.storage.log.readable_log import ReadableLog


class LogOwner(Protocol):
    """Whoever keeps a log (a log directory): told what it has to act on."""

    def rolled(self, log: Log) -> None:
        """A segment was closed, and may be synced."""

    def start_offset_advanced(self, log: Log) -> None:
        """The log start offset is to be remembered."""

    def truncated(self, log: Log) -> None:
        """The offsets that were remembered may be beyond the log's end."""

    def failed(self, log: ReadableLog, error: OSError) -> None:
        """The device failed: nothing may be trusted to be written any more."""

    def damaged(self, log: ReadableLog, damage: Damage) -> None:
        """A batch is not what was written, or cannot be read."""

    def remove(self, log: Log, paths: list[str]) -> None:
        """Files that nobody needs any more."""

    def refused(self, log: Log, error: OSError) -> None:
        """An append was refused: there is no room, no descriptor or no memory for it now."""

    def flush_due(self, log: Log) -> None:
        """``flush.messages`` are not synced yet."""
