"""Mapping between the client's paths and the server's paths."""

from __future__ import annotations

from kreplica.zookeeper.errors import BadArguments
from kreplica.zookeeper.watches import WatchListener


class Chroot:
    """Path prefix that a client adds to all of its paths.

    :param path: without a trailing slash; empty for the whole tree.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def absolute(self, path: str) -> str:
        """Return the server's path for a client's path.

        :raise BadArguments: if the path is invalid.  It is checked here because a chroot would hide a missing
            leading slash from the server.
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
