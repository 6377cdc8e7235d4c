"""A watch that stays after it has fired (ZooKeeper 3.6), and how it is taken back."""

from __future__ import annotations

from kreplica.zookeeper.errors import NoWatcher
from kreplica.zookeeper.records import AddWatchMode, Opcode
from kreplica.zookeeper.requests import RemoveWatches
from kreplica.zookeeper.responses import decode_count, decode_empty
from kreplica.zookeeper.session import Session
from kreplica.zookeeper.watches import WatchListener


class Watch:
    """A watch that stays, as ``add_watch`` gives it; ends with its session."""

    def __init__(self, session: Session, path: str, absolute: str, mode: AddWatchMode, listener: WatchListener) -> None:
        self.path = path
        self._session = session
        self._absolute = absolute
        self._mode = mode
        self._listener = listener

    def answered(self, error: int) -> None:
        """Called by the connection."""
        if not error:
            self._session.watches.add_persistent(self._absolute, self._mode, self._listener)

    def decode(self, data: bytes, start: int, end: int) -> Watch:
        """Called by the connection."""
        decode_count(data, start, end)
        return self

    async def remove(self) -> None:
        """Stop calling the listener, at once; again does nothing.

        The server is told when nothing else of this session watches the path, for it can only remove all of them.
        """
        nothing_left = self._session.watches.remove_persistent(self._absolute, self._mode, self._listener)
        if nothing_left and not self._session.state.ended:
            body = RemoveWatches(self._absolute).encode()
            try:
                await self._session.submit(Opcode.REMOVE_WATCHES, body, decode_empty, self.path)
            except NoWatcher:
                pass  # gone with a connection that was lost meanwhile
