"""An in-memory schema registry with the routes of Confluent's REST API that clients use."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

Document = dict[str, Any]

REDIRECTED = 302
"""HTTP status of the response, by schema ID."""


class TestRegistry:
    """Stores schemas, and serves them on a loopback port; a context manager.

    :param user_info: required credentials, ``user:password``.
    :param certificate: file with a private key and certificates for ``https``.
    :ivar requests: the paths of all requests.
    """

    __test__ = False

    def __init__(self, user_info: str | None = None, certificate: Path | None = None) -> None:
        self.requests: list[str] = []
        self.user_info = user_info
        self._schemas: list[Document] = []
        self._subjects: dict[str, list[int]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self, None)

            def do_POST(self) -> None:
                registry.answer(self, json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject: str, schema: str, schema_type: str = "AVRO", references: Any = ()) -> int:
        """Add a version to a subject, and return the ID of the schema."""
        document = {"schema": schema, "schemaType": schema_type, "references": list(references)}
        if document not in self._schemas:
            self._schemas.append(document)
        schema_id = self._schemas.index(document) + 1
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, request: BaseHTTPRequestHandler, body: Any) -> None:
        self.requests.append(request.path)
        status, document = 401, {"error_code": 401, "message": "credentials are missing"}
        if self.user_info is None or request.headers["authorization"] == self._login(self.user_info):
            parts = urlsplit(request.path)
            status, document = self._document(
                [unquote(each) for each in parts.path.strip("/").split("/")], parse_qs(parts.query), body
            )
        data = json.dumps(document).encode()
        request.send_response(status)
        if status == REDIRECTED:
            request.send_header("location", f"{self.url}/schemas/ids/1")
        request.send_header("content-type", "application/vnd.schemaregistry.v1+json")
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    @staticmethod
    def _login(user_info: str) -> str:
        return "Basic " + base64.b64encode(user_info.encode()).decode()

    def _document(self, path: list[str], query: Document, body: Any) -> tuple[int, Any]:
        match path:
            case ["schemas", "ids", "302"]:
                return REDIRECTED, {}
            case ["schemas", "ids", number] if self._has(number):
                return 200, self._schemas[int(number) - 1]
            case ["schemas", "ids", number, "versions"] if self._has(number):
                return 200, [
                    {"subject": name, "version": versions.index(int(number)) + 1}
                    for name, versions in self._subjects.items()
                    if int(number) in versions
                ]
            case ["subjects", name, "versions"] if body is not None:
                known = body.get("schemaType", "AVRO"), body.get("references") or ()
                return 200, {"id": self.register(name, body["schema"], *known)}
            case ["subjects", name, "versions", version] if name in self._subjects:
                versions = self._subjects[name]
                chosen = len(versions) if version == "latest" else int(version)
                if chosen <= len(versions):
                    return 200, self._version(name, chosen)
            case ["subjects", name] if body is not None and name in self._subjects:
                for document in (self._version(name, each + 1) for each in range(len(self._subjects[name]))):
                    if document["schema"] == body["schema"]:
                        return 200, document
        return 404, {"error_code": 40403, "message": "not found"}

    def _version(self, subject: str, version: int) -> Document:
        schema_id = self._subjects[subject][version - 1]
        return {"subject": subject, "version": version, "id": schema_id, **self._schemas[schema_id - 1]}

    def _has(self, number: str) -> bool:
        return number.isdigit() and 0 < int(number) <= len(self._schemas)
