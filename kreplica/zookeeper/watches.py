"""Watch registry of one session: finds the listeners of an event and restores the watches after a reconnect."""

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

# Maximum size of one setWatches request, well below the server's frame limit.
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
    """Listeners by server path (with the chroot).

    A one-shot listener is called once per registration, even if the same listener was registered several times.
    Persistent listeners remain registered until they are removed.
    """

    def __init__(self) -> None:
        self.data: _ByPath = {}
        self.exists: _ByPath = {}
        self.children: _ByPath = {}
        self.persistent: dict[AddWatchMode, _ByPath] = {mode: {} for mode in AddWatchMode}

    @property
    def count(self) -> int:
        """Number of watches that the server stores for this session: one per path and kind."""
        return sum(map(len, (self.data, self.exists, self.children, *self.persistent.values())))

    def prepare_data(self, path: str, listener: WatchListener) -> Callable[[int], None]:
        """Prepare the registration of a data watch whose request has been sent.

        :return: callback that takes the response's error code and registers the watch if it is 0.
        """
        return _registration(self.data, path, listener)

    def prepare_children(self, path: str, listener: WatchListener) -> Callable[[int], None]:
        """Prepare the registration of a child watch; see ``prepare_data``."""
        return _registration(self.children, path, listener)

    def prepare_exists(self, path: str, listener: WatchListener) -> Callable[[int], None]:
        """Prepare the registration of an exists watch, which waits for the creation if the znode does not exist."""

        def on_response(error: int) -> None:
            if error in (0, NoNode.code):
                registry = self.exists if error else self.data
                registry.setdefault(path, []).append(listener)

        return on_response

    def add_persistent(self, path: str, mode: AddWatchMode, listener: WatchListener) -> None:
        self.persistent[mode].setdefault(path, []).append(listener)

    def remove_persistent(self, path: str, mode: AddWatchMode, listener: WatchListener) -> bool:
        """Remove one registration.

        :return: True if no watch of any kind is left on the path.
        """
        listeners = self.persistent[mode].get(path, [])
        if listener in listeners:
            listeners.remove(listener)
            if not listeners:
                del self.persistent[mode][path]
        everything = (self.data, self.exists, self.children, *self.persistent.values())
        return not any(path in registry for registry in everything)

    def listeners_of(self, event: WatchEvent) -> list[WatchListener]:
        """Return the listeners of an event and remove the one-shot ones."""
        path, found = event.path, []
        if event.type in (EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED):
            found += self.data.pop(path, []) + self.exists.pop(path, [])
        if event.type in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            found += self.children.pop(path, [])
        if event.type not in _CHANGES or not any(self.persistent.values()):
            return found
        found += self.persistent[AddWatchMode.PERSISTENT].get(path, [])
        recursive = self.persistent[AddWatchMode.PERSISTENT_RECURSIVE]
        # A recursive watch receives the events of all descendants, so children events are redundant.
        if recursive and event.type is not EventType.NODE_CHILDREN_CHANGED:
            for ancestor in _ancestors(path):
                found += recursive.get(ancestor, [])
        return found

    def reconnect_events(self) -> list[tuple[WatchListener, WatchEvent]]:
        """Return the listeners to call after a connection loss, with an event that reports possibly missed changes.

        Servers report missed changes for one-shot watches only, not for persistent ones.
        """
        return [
            (listener, WatchEvent(EventType.NONE, KeeperState.SYNC_CONNECTED, path))
            for registry in self.persistent.values()
            for path, listeners in registry.items()
            for listener in listeners
        ]

    def requests(self, relative_zxid: int) -> list[SetWatches]:
        """Return the requests that restore the watches on a new connection, split by size."""
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


def _registration(registry: _ByPath, path: str, listener: WatchListener) -> Callable[[int], None]:
    def on_response(error: int) -> None:
        if not error:
            registry.setdefault(path, []).append(listener)

    return on_response


def _ancestors(path: str) -> Iterator[str]:
    """Yield the path and its ancestors up to the root."""
    while len(path) > 1:
        yield path
        path = path.rpartition("/")[0]
    yield "/"


def call_listener(listener: WatchListener, event: WatchEvent) -> None:
    """Call a listener and log its exceptions, which must not affect other listeners or the connection."""
    try:
        listener(event)
    except Exception:
        _log.failure("A watch listener failed on {event}", event=event)
