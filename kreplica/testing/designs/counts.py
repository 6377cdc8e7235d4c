"""Counters of one event: the columns of the table that are counts."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """Work of the ZooKeeper server, messages between brokers, and truncated bytes.

    :ivar requests: ZooKeeper requests; a multi counts as one.
    :ivar reads: znodes read.
    :ivar writes: znodes created, changed or deleted, including deletions at the end of a session.
    :ivar zookeeper_bytes: requests, responses and watch events.
    :ivar rpcs: commands sent directly from broker to broker; fetches of replicas are not commands.
    :ivar rpc_bytes: bytes of these commands and their responses.
    :ivar queued: state-change requests sent through znodes.
    :ivar truncated_bytes: log bytes that replicas discarded.
    """

    requests: int = 0
    reads: int = 0
    writes: int = 0
    zookeeper_bytes: int = 0
    watches_set: int = 0
    watches_fired: int = 0
    rpcs: int = 0
    rpc_bytes: int = 0
    queued: int = 0
    truncated_bytes: int = 0

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def reset(self) -> None:
        """Set all counters to 0."""
        for field in fields(self):
            setattr(self, field.name, 0)
