"""The watches of one session: who is called for an event, and what to ask a new connection to watch again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from twisted.logger import Logger

from kreplica.zookeeper.errors import NoNode
from kreplica.zookeeper.jute import pack_text
from kreplica.zookeeper.records import AddWatchMode, EventType, KeeperState, WatchEvent
from kreplica.zookeeper.requests import SetWatches

_log = Logger()

WatchListener: TypeAlias = Callable[[WatchEvent], None]
_ByPath: TypeAlias = dict[str, list[WatchListener]]

# One request to watch again is kept well below the server's limit on a frame.
SET_WATCHES_SIZE_MAX = 128 * 1024


_CHANGES = frozenset(
    {
        EventType.NODE_CREATED,
        EventType.NODE_DELETED,
        EventType.NODE_DATA_CHANGED,
        EventType.NODE_CHILDREN_CHANGED,
    }
)


class Watches:
    """A registry by path, as the server sees paths (with the chroot).

    One-shot listeners are called once and forgotten: each registration is one call, also where the same listener was
    given several times.  Persistent listeners stay until they are removed.
    """

    def __init__(self) -> None:
        self.data: _ByPath = {}
        self.exists: _ByPath = {}
        self.children: _ByPath = {}
        self.persistent: dict[AddWatchMode, _ByPath] = {mode: {} for mode in AddWatchMode}

    def left_by_data(self, path: str, listener: WatchListener) -> Callable[[int], None]:
        """A read of data with a watch was sent.

        :return: to be called with the answer's error code, which says whether the server has left the watch.
        """
        return _left(self.data, path, listener)

    def left_by_children(self, path: str, listener: WatchListener) -> Callable[[int], None]:
        """A read of children with a watch was sent; as ``left_by_data``."""
        return _left(self.children, path, listener)

    def left_by_exists(self, path: str, listener: WatchListener) -> Callable[[int], None]:
        """A question whether a znode exists was sent; where it does not, its creation is watched for."""

        def answered(error: int) -> None:
            if error in (0, NoNode.code):
                registry = self.exists if error else self.data
                registry.setdefault(path, []).append(listener)

        return answered

    def add_persistent(self, path: str, mode: AddWatchMode, listener: WatchListener) -> None:
        self.persistent[mode].setdefault(path, []).append(listener)

    def remove_persistent(self, path: str, mode: AddWatchMode, listener: WatchListener) -> bool:
        """Forget one registration.

        :return: whether nothing at all is left on the path, so that the server can be told.
        """
        listeners = self.persistent[mode].get(path, [])
        if listener in listeners:
            listeners.remove(listener)
            if not listeners:
                del self.persistent[mode][path]
        everything = (self.data, self.exists, self.children, *self.persistent.values())
        return not any(path in registry for registry in everything)

    def listeners_of(self, event: WatchEvent) -> list[WatchListener]:
        """Who is to be called for an event; the one-shot ones among them are forgotten by this."""
        path, found = event.path, []
        if event.type in (EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED):
            found += self.data.pop(path, []) + self.exists.pop(path, [])
        if event.type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            found += self.children.pop(path, [])
        if event.type not in _CHANGES or not any(self.persistent.values()):
            return found
        found += self.persistent[AddWatchMode.PERSISTENT].get(path, [])
        recursive = self.persistent[AddWatchMode.PERSISTENT_RECURSIVE]
        # A recursive watch hears of every znode below it, which makes news of children superfluous.
        if recursive and event.type is not EventType.NODE_CHILDREN_CHANGED:
            for ancestor in _ancestors(path):
                found += recursive.get(ancestor, [])
        return found

    def gaps(self) -> list[tuple[WatchListener, WatchEvent]]:
        """Whom to tell, after a lost connection, that changes may have gone untold, and how.

        Servers make up for one-shot watches only: a persistent one simply goes on.
        """
        return [
            (listener, WatchEvent(EventType.NONE, KeeperState.SYNC_CONNECTED, path))
            for registry in self.persistent.values()
            for path, listeners in registry.items()
            for listener in listeners
        ]

    def requests(self, relative_zxid: int) -> list[SetWatches]:
        """What to send to a new connection; several, where one would grow too long."""
        registries = (self.data, self.exists, self.children, *self.persistent.values())
        batches: list[SetWatches] = []
        batch: tuple[list[str], ...] = ([], [], [], [], [])
        size = 0
        for kind, registry in enumerate(registries):
            for path in registry:
                batch[kind].append(path)
                size += len(pack_text(path))
                if size >= SET_WATCHES_SIZE_MAX:
                    batches.append(SetWatches(relative_zxid, *batch))
                    batch, size = ([], [], [], [], []), 0
        if size:
            batches.append(SetWatches(relative_zxid, *batch))
        return batches


def _left(registry: _ByPath, path: str, listener: WatchListener) -> Callable[[int], None]:
    def answered(error: int) -> None:
        if not error:
            registry.setdefault(path, []).append(listener)

    return answered


def _ancestors(path: str) -> Iterator[str]:
    """The path itself, its parent, and so on to the root."""
    while len(path) > 1:
        yield path
        path = path.rpartition("/")[0]
    yield "/"


def call(listener: WatchListener, event: WatchEvent) -> None:
    """Call a listener; what it raises is logged, for the other listeners and the connection must go on."""
    try:
        listener(event)
    except Exception:
        _log.failure("A watch listener failed on {event}", event=event)
