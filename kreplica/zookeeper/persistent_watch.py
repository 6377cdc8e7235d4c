"""Persistent watches (ZooKeeper 3.6) and their removal."""

from __future__ import annotations

from kreplica.zookeeper.errors import NoWatcher
from kreplica.zookeeper.records import AddWatchMode, Opcode
from kreplica.zookeeper.requests import RemoveWatches
from kreplica.zookeeper.responses import decode_count, decode_empty
from kreplica.zookeeper.session import Session
from kreplica.zookeeper.watches import WatchListener


class Watch:
    """Persistent watch, returned by ``add_watch``; ends with its session."""

    def __init__(self, session: Session, path: str, absolute: str, mode: AddWatchMode, listener: WatchListener) -> None:
        self.path = path
        self._session = session
        self._absolute = absolute
        self._mode = mode
        self._listener = listener
        self._is_removed = False

    def on_response(self, error: int) -> None:
        """Register the listener if the request succeeded; called by the connection."""
        if not error:
            self._session.watches.add_persistent(self._absolute, self._mode, self._listener)

    def decode(self, data: bytes, start: int, end: int) -> Watch:
        """Decode the response; called by the connection."""
        decode_count(data, start, end)
        return self

    async def remove(self) -> None:
        """Stop calling the listener, even before the server responds; idempotent.

        The server can only remove all of a session's watches on a path together, so the request is sent when the last
        of them is removed.
        """
        if self._is_removed:
            return
        self._is_removed = True
        was_last = self._session.watches.remove_persistent(self._absolute, self._mode, self._listener)
        if was_last and not self._session.state.ended:
            body = RemoveWatches(self._absolute).encode()
            try:
                await self._session.submit(Opcode.REMOVE_WATCHES, body, decode_empty, self.path)
            except NoWatcher:
                pass  # the watch was lost with the connection in the meantime
