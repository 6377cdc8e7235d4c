"""Maps between the client's paths and the server's paths, and creates the chroot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.zookeeper.default_acls import AclOf
from kreplica.zookeeper.errors import BadArguments, NodeExists, NoNode
from kreplica.zookeeper.records import OPEN_ACL, Opcode
from kreplica.zookeeper.requests import Create, Exists
from kreplica.zookeeper.responses import decode_created, decode_stat
from kreplica.zookeeper.watches import WatchListener

# Sends a request: operation code, body, decoder of the response, path for errors.
Submit = Callable[[Opcode, bytes, Callable[[bytes, int, int], Any], str], Deferred[Any]]


class Chroot:
    """Path prefix that a client adds to all of its paths.

    :param path: without a trailing slash; empty for the whole tree.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def absolute(self, path: str) -> str:
        """Return the server's path for a client's path.

        :raise BadArguments: if the path is invalid.  The path is checked here because the chroot prefix would hide a
            missing leading slash from the server.
        """
        if path[:1] != "/" or "//" in path or (path[-1] == "/" and path != "/") or "\0" in path:
            raise BadArguments(path, "a path must start with a slash and must not contain an empty component")
        if "/." in path and not {".", ".."}.isdisjoint(path.split("/")):
            raise BadArguments(path, "a path must not contain relative components")
        if not self.path:
            return path
        return self.path if path == "/" else self.path + path

    def relative(self, path: str) -> str:
        """Return the client's path for a server's path."""
        return path.removeprefix(self.path) or "/"

    def listener(self, listener: WatchListener) -> WatchListener:
        """Wrap a listener so that its events carry the client's paths."""
        if not self.path:
            return listener
        return lambda event: listener(event._replace(path=self.relative(event.path)))

    def prefixes(self) -> list[str]:
        """Return the chroot's path and its ancestors, shortest first."""
        parts = self.path.split("/")[1:]
        return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


async def create_znodes(paths: Iterable[str], submit: Submit, acl_of: AclOf | None) -> None:
    """Create the znodes that do not exist.

    :param paths: the server's paths, parents first.
    """
    for path in paths:
        try:
            await submit(Opcode.EXISTS, Exists(path).encode(), decode_stat, path)
            continue
        except NoNode:
            pass
        acl = OPEN_ACL if acl_of is None else acl_of(path)
        try:
            await submit(Opcode.CREATE2, Create(path, acl=acl).encode(), decode_created, path)
        except NodeExists:
            pass  # created concurrently by another client
