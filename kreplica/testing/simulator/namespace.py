"""Paths and names in memory, and their state after a power loss.

Each directory has two states: as programs see it and as it is on the device.  Only ``sync`` of a directory makes its
names durable, as in POSIX: syncing a new file, or the directory itself, does not persist the entry in its parent.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random

from kreplica.testing.simulator.content import LOSS_RATES, Content


def os_error(number: int, path: str) -> OSError:
    """Return the exception that Python raises for an errno (``FileNotFoundError`` and so on)."""
    return OSError(number, os.strerror(number), path)


@lru_cache(maxsize=10_000)
def split(path: str) -> tuple[str, ...]:
    """Split a path into its names; the root has none.

    :raise OSError: ``ENOENT``: the path is empty.
    """
    if not path:
        raise os_error(errno.ENOENT, path)
    return tuple(name for name in posixpath.normpath(path).split("/") if name not in ("", "."))


class Directory:
    """Directory entries as programs see them (``names``) and as they are on the device (``durable``).

    :ivar modified_ms: time of the last change of ``names``.
    """

    __slots__ = ("_durable_ms", "durable", "modified_ms", "names")

    def __init__(self, modified_ms: int) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = self._durable_ms = modified_ms

    def assign(self, name: str, node: Node | None, now_ms: int) -> None:
        """Add, replace or remove an entry, as seen by programs."""
        if node is None:
            del self.names[name]
        else:
            self.names[name] = node
        self.modified_ms = now_ms

    def persist(self, name: str, node: Node | None) -> None:
        """Make the change of an entry durable."""
        if node is None:
            self.durable.pop(name, None)
        else:
            self.durable[name] = node
        self._durable_ms = self.modified_ms

    def contents(self) -> Iterator[Content]:
        for _, node in sorted(self.names.items()):
            if isinstance(node, Directory):
                yield from node.contents()
            else:
                yield node

    def revert_to_durable(self) -> None:
        """Reset the names in the whole tree to the durable ones: the state after a restart."""
        self.names = dict(self.durable)
        self.modified_ms = self._durable_ms
        for node in self.names.values():
            if isinstance(node, Directory):
                node.revert_to_durable()


Node = Content | Directory
Assignment = tuple[Directory, str, Node | None]


class Namespace:
    """Tree of names, and the ordered list of changes to it that are not yet durable.

    Each change is atomic, and changes of one directory become durable in order; a rename orders two directories.

    :param clock_ms: source of modification times.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.root = Directory(clock_ms())
        self._pending: list[tuple[Assignment, ...]] = []

    def change(self, *assignments: Assignment) -> None:
        """Change names as seen by programs now, and on the device later or never.

        :param assignments: (directory, name, new node or None); after a power loss all of them are durable, or none.
        """
        for directory, name, node in assignments:
            directory.assign(name, node, self._clock_ms())
        self._pending.append(assignments)

    def sync(self, directory: Directory) -> None:
        """Make the names of a directory durable, with the earlier changes that they depend on."""
        directories = {directory}
        chosen: list[tuple[Assignment, ...]] = []
        remaining: list[tuple[Assignment, ...]] = []
        for change in reversed(self._pending):
            touched = {directory for directory, _, _ in change}
            if touched & directories:
                directories |= touched
                chosen.append(change)
            else:
                remaining.append(change)
        self._pending = remaining[::-1]
        for change in reversed(chosen):
            self._persist(change)

    def sync_all(self) -> None:
        for change in self._pending:
            self._persist(change)
        self._pending.clear()

    def lose_power(self, random: Random) -> None:
        """Keep the durable names and, for every directory, a random prefix of its later changes."""
        rate = random.choice(LOSS_RATES)
        stopped: set[Directory] = set()
        for change in self._pending:
            touched = {directory for directory, _, _ in change}
            if touched & stopped or random.random() < rate:
                stopped |= touched
            else:
                self._persist(change)
        self._pending.clear()
        self.root.revert_to_durable()

    def _persist(self, change: tuple[Assignment, ...]) -> None:
        for directory, name, node in change:
            directory.persist(name, node)

    def files(self) -> Iterator[tuple[str, Content]]:
        yield from _files("", self.root)

    def parent(self, path: str) -> tuple[Directory, str]:
        """Return the directory that contains a path, and the path's name in it ("" for the root).

        :raise OSError: ``ENOENT`` or ``ENOTDIR`` for one of its ancestors.
        """
        names = split(path)
        directory = self.root
        for name in names[:-1]:
            node = directory.names.get(name)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if isinstance(node, Content):
                raise os_error(errno.ENOTDIR, path)
            directory = node
        return directory, names[-1] if names else ""

    def find(self, path: str) -> Node | None:
        try:
            parent, name = self.parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return parent.names.get(name) if name else self.root

    def directory(self, path: str) -> Directory:
        """Return the directory at a path.

        :raise OSError: ``ENOENT``, or ``ENOTDIR`` if the path is a file.
        """
        node = self.find(path)
        if isinstance(node, Directory):
            return node
        raise os_error(errno.ENOENT if node is None else errno.ENOTDIR, path)

    def content(self, path: str) -> Content:
        """Return the content of the file at a path.

        :raise OSError: ``ENOENT``, or ``EISDIR`` if the path is a directory.
        """
        node = self.find(path)
        if isinstance(node, Content):
            return node
        raise os_error(errno.ENOENT if node is None else errno.EISDIR, path)


def _files(path: str, directory: Directory) -> Iterator[tuple[str, Content]]:
    for name, node in sorted(directory.names.items()):
        if isinstance(node, Directory):
            yield from _files(f"{path}/{name}", node)
        else:
            yield f"{path}/{name}", node
