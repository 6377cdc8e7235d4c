"""A multithreaded authorization server that serves keys, and tokens for the client credentials grant."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
SECRET = "planted-secret-4"


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(number: int) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key(number: int) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, key_id: str | None, **more: Any) -> dict[str, Any]:
    """Return the public key as an entry for a key set."""
    kind = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    maker: Any = next((maker for base, maker in kind.items() if isinstance(key, base)), OKPAlgorithm)
    row = maker.to_jwk(key.public_key(), as_dict=True)
    row.pop("key_ops", None)
    return {**row, **({} if key_id is None else {"kid": key_id}), **more}


def key_set(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"keys": rows}).encode()


def claims(now_s: float, **changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token, with changes; None removes a claim."""
    base = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": int(now_s), "exp": int(now_s) + 300}
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


class TokenServer:
    """State of the server.

    :ivar key: signs tokens; ``keys`` is the published set.
    :ivar lifetime_s: lifetime of tokens.
    :ivar is_down: True to respond to every request with 503.
    :ivar tokens: the tokens that have been issued.
    """

    def __init__(self) -> None:
        self.key, self.key_id = rsa_key(1), "one"
        self.keys = key_set(jwk(self.key, self.key_id))
        self.lifetime_s = 300.0
        self.is_down = False
        self.tokens: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.key_requests = 0
        self.url = ""

    def rotate(self) -> None:
        """Sign with another key; tokens of the previous one become invalid."""
        self.key, self.key_id = rsa_key(2), "two"
        self.keys = key_set(jwk(self.key, self.key_id))

    def token(self, user: str = "alice", **changes: Any) -> str:
        now_s = time.time()
        body = claims(now_s, **{"sub": user, "exp": now_s + self.lifetime_s, **changes})
        return jwt.encode(body, self.key, algorithm="RS256", headers={"kid": self.key_id})

    def answer(self, method: str, path: str, authorization: str, body: str) -> tuple[int, bytes]:
        if path == "/keys":
            self.key_requests += 1
        if self.is_down:
            return 503, b"down"
        if (method, path) == ("GET", "/keys"):
            return 200, self.keys
        if (method, path) == ("POST", "/token"):
            user, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            if secret != SECRET:
                return 401, b'{"error": "invalid_client", "error_description": "planted-secret-9"}'
            self.forms.append(parse_qs(body))
            self.tokens.append(self.token(user))
            return 200, json.dumps({"access_token": self.tokens[-1], "token_type": "Bearer"}).encode()
        if path == "/moved":
            return 302, b""
        return 404, b"{}"


@contextmanager
def token_server(certificates: Path | None = None) -> Iterator[TokenServer]:
    """Run an authorization server on loopback.

    :param certificates: directory with a certificate for TLS.
    """
    state = TokenServer()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            status, content = state.answer(self.command, self.path, self.headers.get("authorization", ""), body)
            self.send_response(status)
            if status == 302:
                self.send_header("location", f"{state.url}/token")
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "broker.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if certificates is None else "https"
    state.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
