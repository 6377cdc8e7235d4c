"""Serves the dashboard: ``/`` and the files of the package ``kreplica.admin.dashboard``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable

from kreplica.admin.http.api import Call, Parameter, RawResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.runtime.offload import Offload

PACKAGE = "kreplica.admin.dashboard"

INDEX = "index.html"

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

FILE = {"type": "string", "minLength": 1, "maxLength": 200}


class Dashboard:
    """Serves the files of the dashboard, about 200 kB, which are read on the first request and cached."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._pages: Mapping[str, RawResponse] | None = None

    def routes(self) -> Sequence[Route]:
        """Return the routes of the page and its files."""
        return (
            Route("GET", "/", self.index, "The dashboard, for a browser.", media_type="text/html"),
            Route(
                "GET",
                "/dashboard/{file:path}",
                self.file,
                "A script, style sheet or image of the dashboard.",
                query=(Parameter("file", FILE, "Path of the file in the dashboard's directory."),),
                problems={404: "The dashboard has no such file."},
                media_type="*/*",
            ),
        )

    async def index(self, call: Call) -> RawResponse:
        """``GET /``."""
        return await self._page(INDEX)

    async def file(self, call: Call) -> RawResponse:
        """``GET /dashboard/{file}``."""
        return await self._page(call.path["file"])

    async def _page(self, name: str) -> RawResponse:
        pages = self._pages
        if pages is None:
            # Two concurrent first requests both read the files; the second result is kept.
            pages = self._pages = await self._offload.run(read_pages)
        page = pages.get(name)
        if page is None:
            raise Problem(404, "NOT_FOUND", f"the dashboard has no file {name!r}", what_to_do="Open / in a browser.")
        return page


def read_pages() -> dict[str, RawResponse]:
    """Read every file of the dashboard by its relative path; blocking.

    Requests are looked up in this mapping, so a path from a client is never opened.
    """
    return dict(_pages_in(resources.files(PACKAGE), ""))


def _pages_in(folder: Traversable, prefix: str) -> list[tuple[str, RawResponse]]:
    found: list[tuple[str, RawResponse]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = prefix + entry.name
        content_type = CONTENT_TYPES.get("." + entry.name.rpartition(".")[2])
        if entry.is_dir():
            found += _pages_in(entry, path + "/")
        elif content_type is not None:
            content = entry.read_bytes()
            found.append((path, RawResponse(content, content_type, etag=hashlib.sha256(content).hexdigest()[:16])))
    return found
