"""Paths and names in memory, and what a power loss leaves of them.

Each directory is there twice: as programs see it and as it is on the device.  Only ``sync`` of a directory makes its
names durable, as POSIX has it: syncing a new file, or the directory itself, says nothing about the entry in its parent.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator
from functools import lru_cache
from random import Random

from kreplica.testing.simulator.content import LOSS_RATES, Content


def os_error(number: int, path: str) -> OSError:
    """The exception that Linux's answer becomes in Python (``FileNotFoundError`` and so on)."""
    return OSError(number, os.strerror(number), path)


@lru_cache(maxsize=10_000)
def split(path: str) -> tuple[str, ...]:
    """The names on the way to it; none for the root.

    :raise OSError: ``ENOENT``, it is empty.
    """
    if not path:
        raise os_error(errno.ENOENT, path)
    return tuple(name for name in posixpath.normpath(path).split("/") if name not in ("", "."))


class Directory:
    """Names as programs see them (``names``) and as a power loss would leave them (``durable``)."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}

    def contents(self) -> Iterator[Content]:
        """All files below, in the order of their names."""
        for _, node in sorted(self.names.items()):
            if isinstance(node, Directory):
                yield from node.contents()
            else:
                yield node

    def settle(self) -> None:
        """See again only what is durable, here and below: the state after a restart."""
        self.names = dict(self.durable)
        for node in self.names.values():
            if isinstance(node, Directory):
                node.settle()


Node = Content | Directory
Assignment = tuple[Directory, str, Node | None]


class Namespace:
    """The tree of names, and the changes to it that are not yet durable, in the order they were made.

    Each change is atomic, and each directory keeps the order of its own; a rename orders two directories.
    """

    def __init__(self) -> None:
        self.root = Directory()
        self._pending: list[tuple[Assignment, ...]] = []

    def change(self, *assignments: Assignment) -> None:
        """Change names, at once for programs and later (or never) on the device.

        :param assignments: (directory, name, what it now names or None), all of them or none after a power loss.
        """
        for directory, name, node in assignments:
            if node is None:
                del directory.names[name]
            else:
                directory.names[name] = node
        self._pending.append(assignments)

    def sync(self, directory: Directory) -> None:
        """Make the names in it durable, with the earlier changes that those depend on."""
        wanted = {directory}
        chosen: list[tuple[Assignment, ...]] = []
        rest: list[tuple[Assignment, ...]] = []
        for change in reversed(self._pending):
            touched = {where for where, _, _ in change}
            if touched & wanted:
                wanted |= touched
                chosen.append(change)
            else:
                rest.append(change)
        self._pending = rest[::-1]
        for change in reversed(chosen):
            self._persist(change)

    def sync_all(self) -> None:
        """Make every name durable."""
        for change in self._pending:
            self._persist(change)
        self._pending.clear()

    def lose_power(self, random: Random) -> None:
        """Of every directory, keep the durable names and some first part of the later changes."""
        rate = random.choice(LOSS_RATES)
        stopped: set[Directory] = set()
        for change in self._pending:
            touched = {where for where, _, _ in change}
            if touched & stopped or random.random() < rate:
                stopped |= touched
            else:
                self._persist(change)
        self._pending.clear()
        self.root.settle()

    def _persist(self, change: tuple[Assignment, ...]) -> None:
        for directory, name, node in change:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node

    def files(self) -> Iterator[tuple[str, Content]]:
        """All files by path, in the order of their names."""
        yield from _files("", self.root)

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that would hold it, and its name there ("" for the root).

        :raise OSError: ``ENOENT`` or ``ENOTDIR`` on the way there.
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
        """What has that path, or None."""
        try:
            parent, name = self.parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return parent.names.get(name) if name else self.root

    def directory(self, path: str) -> Directory:
        """:raise OSError: ``ENOENT`` or ``ENOTDIR``, where it is none."""
        node = self.find(path)
        if isinstance(node, Directory):
            return node
        raise os_error(errno.ENOENT if node is None else errno.ENOTDIR, path)

    def content(self, path: str) -> Content:
        """:raise OSError: ``ENOENT`` or ``EISDIR``, where it is no file."""
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
