"""A small server that implements the admin API's contract, for states that a real cluster cannot show.

Examples are ten thousand partitions, a token, hostile texts, and short-lived states.
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

from kreplica.admin.resources.dashboard import INDEX, read_pages

from . import contract_world

PAGES = read_pages()
CSP = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
STREAM_EVENTS = 3


class ContractServer:
    """Serves a world while its context is active; ``writes`` has the write requests that it received."""

    def __init__(self, world: contract_world.World, token: str | None = None) -> None:
        self.world = world
        self.token = token
        self.writes: list[tuple[str, str, object]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        self.stopping = threading.Event()
        self.stream_problem: tuple[int, object] | None = None
        """If set, the status and document of the response to requests for streams; open streams end."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ContractServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    _cookie = ""

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    @property
    def owner(self) -> ContractServer:
        return self.server.owner  # type: ignore[attr-defined, no-any-return]

    def _any(self) -> None:
        if self.owner.stopping.is_set():
            self.close_connection = True  # no response, as if the process had ended
            return
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        if not url.path.startswith("/v1/"):
            self._page(url.path)
        elif self.owner.token and (self.command, url.path) == ("POST", "/v1/session"):
            self._log_in(body)
        elif self.owner.token and self.headers.get("cookie") != f"session={self.owner.token}":
            problem = {"title": "UNAUTHORIZED", "detail": "a token is needed", "what_to_do": "Send it."}
            self._json(401, {**problem, "accepts": ["token", "basic"]})
        elif url.path == "/v1/events" or url.path.endswith("/messages/tail"):
            self._stream(url.path)
        else:
            path = [unquote(part) for part in url.path.split("/")[2:]]
            if self.command != "GET" and query.get("dry_run") != "true":
                self.owner.writes.append((self.command, url.path, body))
            status, document = self.owner.world.respond(self.command, path, query, body)
            self._json(status, document)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def _log_in(self, body: object) -> None:
        """Accept the token, or a user with the token as password."""
        token = self.owner.token
        if body in ({"token": token}, {"user": "alice", "password": token}):
            self._cookie = f"session={token}; Path=/; HttpOnly; SameSite=Strict"
            self._json(201, {"user": "User:alice"})
        else:
            self._json(401, {"title": "UNAUTHORIZED", "detail": "the user name or password is wrong"})

    def _page(self, path: str) -> None:
        page = PAGES.get(INDEX if path == "/" else re.sub("^/dashboard/", "", path))
        if page is None:
            self._json(404, {"title": "NOT_FOUND", "detail": path})
            return
        self._head(200, page.content_type, len(page.content))
        self.wfile.write(page.content)

    def _json(self, status: int, document: object) -> None:
        content = json.dumps(document).encode()
        self._head(status, "application/json" if status < 400 else "application/problem+json", len(content))
        self.wfile.write(content)

    def _head(self, status: int, content_type: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Security-Policy", CSP)
        self.send_header("ETag", '"1"')
        if self._cookie:
            self.send_header("Set-Cookie", self._cookie)
            self._cookie = ""
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _stream(self, path: str) -> None:
        """Send a few events, and then comments until the client or the server closes the stream."""
        self.close_connection = True
        if self.owner.stream_problem is not None:
            self._json(*self.owner.stream_problem)
            return
        self._head(200, "text/event-stream", None)
        name = "message" if path.endswith("tail") else "timeline"
        try:
            for number, data in enumerate(self.owner.world.events(name)[:STREAM_EVENTS]):
                self.wfile.write(f"event: {name}\nid: {number}\ndata: {json.dumps(data)}\n\n".encode())
            while not self.owner.stopping.wait(0.1) and self.owner.stream_problem is None:
                self.wfile.write(b": nothing new\n\n")
        except OSError:
            return


def main() -> None:
    """Serve a world to a browser during development: ``python -m tests.dashboard.contract_server``."""
    with ContractServer(contract_world.World(topics=12, partitions=6)) as server:
        print(server.url, flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
