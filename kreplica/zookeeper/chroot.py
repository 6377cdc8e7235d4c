"""Paths as a client's caller names them, and as the server knows them."""

from __future__ import annotations

from kreplica.zookeeper.errors import BadArguments
from kreplica.zookeeper.watches import WatchListener


class Chroot:
    """The place under which a client sees everything.

    :param path: without a slash at its end; empty for the whole tree.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def absolute(self, path: str) -> str:
        """The server's name of a caller's path.

        :raise BadArguments: where it is no path.  Servers look at this in an order of their own, and a chroot would
            hide a missing slash from them.
        """
        if path[:1] != "/" or "//" in path or (path[-1] == "/" and path != "/") or "\0" in path:
            raise BadArguments(path, "a path begins with a slash, and something stands between any two")
        if "/." in path and not {".", ".."}.isdisjoint(path.split("/")):
            raise BadArguments(path, "a path has no relative parts")
        if not self.path:
            return path
        return self.path if path == "/" else self.path + path

    def relative(self, path: str) -> str:
        """The caller's name of a server's path."""
        return path.removeprefix(self.path) or "/"

    def listener(self, listener: WatchListener) -> WatchListener:
        """The same listener, for events that have the server's paths."""
        if not self.path:
            return listener
        return lambda event: listener(event._replace(path=self.relative(event.path)))

    def prefixes(self) -> list[str]:
        """Its own path and those above it, from the top."""
        parts = self.path.split("/")[1:]
        return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
