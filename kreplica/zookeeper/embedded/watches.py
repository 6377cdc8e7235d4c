"""Registry of ZooKeeper's one-shot, persistent and recursive watches, without I/O.

A watcher is a value that is opaque to this module (a connection); the method called for each change to a znode returns
the notices to send to watchers.

* A data watch (set by getData and exists) fires when the znode is created, changed or deleted.
* A child watch (set by getChildren) fires when a child is created or deleted, or the znode itself is deleted.
* A persistent watch is in both tables and remains after it has fired; a recursive one is a data watch that also fires
  for all descendants.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import IntFlag
from typing import Generic, NamedTuple, TypeVar

from kreplica.zookeeper.embedded.znode import ROOT, parent_of
from kreplica.zookeeper.errors import Throttled
from kreplica.zookeeper.records import AddWatchMode, EventType, WatcherType

W = TypeVar("W", bound=Hashable)

# Memory limit for one watcher's watches of one kind; a watch counts as its path plus ``WATCH_BYTES``.
WATCHER_BYTES_MAX = 64 << 20
WATCH_BYTES = 256
# Memory limit for all watches of one kind; beyond it, only watchers below ``SMALL_WATCHER_BYTES`` may add watches.
TOTAL_BYTES_MAX = 256 << 20
SMALL_WATCHER_BYTES = 4 << 20


class WatchMode(IntFlag):
    """Kinds of watches that a watcher has on a path."""

    ONCE = 1
    PERSISTENT = 2
    RECURSIVE = 4


ANY_MODE = WatchMode.ONCE | WatchMode.PERSISTENT | WatchMode.RECURSIVE


class Notice(NamedTuple, Generic[W]):
    """Event to send to one watcher."""

    watcher: W
    type: EventType
    path: str


class WatchTable(Generic[W]):
    """Watches of one kind: the watchers of each path and the paths of each watcher.

    :ivar held_bytes: estimated memory of all watches.
    """

    def __init__(self) -> None:
        self.held_bytes = 0
        self.by_path: dict[str, dict[W, int]] = {}
        self.by_watcher: dict[W, dict[str, None]] = {}
        self._sizes: dict[W, int] = {}
        self._recursive_count = 0

    def add(self, path: str, watcher: W, mode: int = WatchMode.ONCE) -> None:
        """Add a watch; a watcher can have watches in several modes on one path.

        :raise Throttled: the watcher, or all watchers together, use too much memory.
        """
        paths = self.by_watcher.setdefault(watcher, {})
        if path not in paths:
            size = self._sizes.get(watcher, 0) + len(path) + WATCH_BYTES
            if size > WATCHER_BYTES_MAX:
                raise Throttled(path, "the watches of this connection use too much memory")
            if self.held_bytes > TOTAL_BYTES_MAX and size > SMALL_WATCHER_BYTES:
                raise Throttled(path, "the watches of all connections use too much memory")
            self.held_bytes += len(path) + WATCH_BYTES
            self._sizes[watcher] = size
            paths[path] = None
        watchers = self.by_path.setdefault(path, {})
        before = watchers.get(watcher, 0)
        watchers[watcher] = before | mode
        self._recursive_count += bool(mode & ~before & WatchMode.RECURSIVE)

    def has(self, path: str, watcher: W, modes: int = ANY_MODE) -> bool:
        """Return True if a watcher watches exactly this path in one of these modes."""
        return bool(self.by_path.get(path, {}).get(watcher, 0) & modes)

    def remove(self, path: str, watcher: W, modes: int = ANY_MODE) -> bool:
        """Remove a watcher's watches in these modes from a path; return False if there are none."""
        watchers = self.by_path.get(path)
        before = watchers.get(watcher, 0) if watchers else 0
        if watchers is None or not before & modes:
            return False
        self._recursive_count -= bool(before & modes & WatchMode.RECURSIVE)
        if before & ~modes:
            watchers[watcher] = before & ~modes
            return True
        del watchers[watcher]
        if not watchers:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        del paths[path]
        self._sizes[watcher] -= len(path) + WATCH_BYTES
        self.held_bytes -= len(path) + WATCH_BYTES
        if not paths:
            del self.by_watcher[watcher]
            del self._sizes[watcher]
        return True

    def forget(self, watcher: W) -> None:
        """Remove all watches of a watcher."""
        for path in list(self.by_watcher.get(watcher, ())):
            self.remove(path, watcher)

    def fire(self, path: str) -> list[W]:
        """Return the watchers to notify of a change to this path, without duplicates; remove their one-shot watches."""
        fired = dict.fromkeys(self._fire_exact(path))
        if self._recursive_count:
            for ancestor in _ancestors(path):
                watchers = self.by_path.get(ancestor, {})
                fired.update(dict.fromkeys(watcher for watcher, mode in watchers.items() if mode & WatchMode.RECURSIVE))
        return list(fired)

    def _fire_exact(self, path: str) -> list[W]:
        watchers = self.by_path.get(path)
        if not watchers:
            return []
        fired = list(watchers)
        for watcher in fired:
            self.remove(path, watcher, WatchMode.ONCE)
        return fired

    def __len__(self) -> int:
        return sum(map(len, self.by_path.values()))


def _ancestors(path: str) -> Iterator[str]:
    while path != ROOT:
        path = parent_of(path)
        yield path


class Watches(Generic[W]):
    """All watches of a server.

    :ivar data: watches set by getData and exists, and persistent watches.
    :ivar children: watches set by getChildren, and persistent watches that are not recursive.
    """

    def __init__(self) -> None:
        self.data: WatchTable[W] = WatchTable()
        self.children: WatchTable[W] = WatchTable()

    # --- adding and removing ---

    def add_persistent(self, path: str, watcher: W, mode: AddWatchMode) -> None:
        """Add a persistent watch."""
        if mode == AddWatchMode.PERSISTENT_RECURSIVE:
            self.data.add(path, watcher, WatchMode.RECURSIVE)
        else:
            self.data.add(path, watcher, WatchMode.PERSISTENT)
            self.children.add(path, watcher, WatchMode.PERSISTENT)

    def has(self, path: str, watcher: W, type_: WatcherType) -> bool:
        """Return True if the watch exists; DATA and CHILDREN select only one-shot watches, as in ZooKeeper 3.9."""
        return any(table.has(path, watcher, modes) for table, modes in self._tables(type_))

    def remove(self, path: str, watcher: W, type_: WatcherType) -> bool:
        """Remove the watches that ``has`` finds; return False if there are none."""
        removed = [table.remove(path, watcher, modes) for table, modes in self._tables(type_)]
        return any(removed)

    def forget(self, watcher: W) -> None:
        """Remove all watches of a watcher."""
        self.data.forget(watcher)
        self.children.forget(watcher)

    def _tables(self, type_: WatcherType) -> list[tuple[WatchTable[W], WatchMode]]:
        if type_ == WatcherType.DATA:
            return [(self.data, WatchMode.ONCE)]
        if type_ == WatcherType.CHILDREN:
            return [(self.children, WatchMode.ONCE)]
        return [(self.data, ANY_MODE), (self.children, ANY_MODE)]

    # --- changes ---

    def created(self, path: str) -> list[Notice[W]]:
        """Return the notices for the creation of a znode."""
        return [
            *(Notice(watcher, EventType.NODE_CREATED, path) for watcher in self.data.fire(path)),
            *self._children_changed(parent_of(path)),
        ]

    def deleted(self, path: str) -> list[Notice[W]]:
        """Return the notices for a deletion; a watcher of both data and children receives only one."""
        fired = dict.fromkeys([*self.data.fire(path), *self.children.fire(path)])
        return [
            *(Notice(watcher, EventType.NODE_DELETED, path) for watcher in fired),
            *self._children_changed(parent_of(path)),
        ]

    def data_changed(self, path: str) -> list[Notice[W]]:
        """Return the notices for a data change."""
        return [Notice(watcher, EventType.NODE_DATA_CHANGED, path) for watcher in self.data.fire(path)]

    def _children_changed(self, path: str) -> list[Notice[W]]:
        return [Notice(watcher, EventType.NODE_CHILDREN_CHANGED, path) for watcher in self.children.fire(path)]

    def __bool__(self) -> bool:
        """True if there is any watch."""
        return bool(self.data.by_path or self.children.by_path)
