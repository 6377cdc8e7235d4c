"""An admin API with scripted responses, and a function that runs commands in this process."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support import real_reactor


@dataclass(frozen=True)
class ReceivedRequest:
    """A request that the server received."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass
class FakeAdmin:
    """A server on loopback with a response for each request that a test expects.

    A response is a document, ``(status, document)``, ``(status, content type, bytes)``, the bytes of a stream of
    events, or a list of these, used one after another; the last one is repeated.
    """

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    requests: list[ReceivedRequest] = field(default_factory=list)

    def answer(self, request: ReceivedRequest) -> tuple[int, str, bytes]:
        self.requests.append(request)
        key = f"{request.method} {request.path}"
        if key not in self.answers:
            return _json(404, {"title": "Not Found", "status": 404, "detail": f"nothing is at {request.path}"})
        answer = self.answers[key]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, bytes):
            return 200, "text/event-stream", answer
        if isinstance(answer, tuple) and len(answer) == 3:
            return answer
        return _json(*answer) if isinstance(answer, tuple) else _json(200, answer)

    @property
    def last(self) -> ReceivedRequest:
        return self.requests[-1]


def _json(status: int, document: Any) -> tuple[int, str, bytes]:
    kind = "application/problem+json" if status >= 400 else "application/json"
    return status, kind, json.dumps(document).encode()


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[FakeAdmin]:
    """Serve a scripted admin API on loopback."""
    fake = FakeAdmin()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = ReceivedRequest(self.command, parts.path, dict(parse_qsl(parts.query)), body, headers)
            status, kind, content = fake.answer(request)
            self.send_response(status)
            self.send_header("content-type", kind)
            with suppress(ConnectionError):  # the client may have disconnected
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        fake.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
        yield fake
        server.shutdown()
        thread.join()


class SingleRun:
    """Runs the work of one command; like the reactor of a process, it can run only once."""

    def __init__(self) -> None:
        self._was_run = False

    def __call__(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        assert not self._was_run, "the command runs the reactor a second time"
        self._was_run = True
        return run_here(work)


def run_here(work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """Run the work of a command and return its result; can be used for many commands in one process."""
    from twisted.internet import reactor

    return real_reactor.run(work(reactor))
