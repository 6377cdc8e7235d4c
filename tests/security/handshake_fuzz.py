"""Sends mutated TLS records and unauthenticated requests to the listeners of a server, without real sockets."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import jwt
from OpenSSL import SSL
from tls_peer import TlsPeer
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.logger import LogLevel, globalLogPublisher
from twisted.python.failure import Failure

from kreplica.interfaces.authorization import ANONYMOUS
from kreplica.model import Endpoint
from kreplica.runtime import real_runtime
from kreplica.security.oauth.jwt_validator import JwtRules, JwtValidator
from kreplica.security.oauth.key_set import KeySet
from kreplica.security.sasl.oauthbearer import OAuthBearerServer, build_first_message
from kreplica.security.sasl.plain import PlainServer
from kreplica.security.sasl.scram import HASHES, ScramClient, ScramCredential, ScramServer
from kreplica.security.tls.listener import ListenerTls
from kreplica.security.tls.options import TlsOptions
from kreplica.server.authentication.sasl_config import SaslConfig
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.request import Request
from kreplica.server.transport.listeners import Server
from kreplica.wire.framing import FrameReader, frame
from kreplica.wire.headers import build_request_header
from kreplica.wire.messages import API_VERSIONS, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kreplica.wire.messages.api import Api
from tests.support.token_server import AUDIENCE, ISSUER, claims, ec_key, jwk, key_set

NOW_S = 1_800_000_000
USER, PASSWORD = "alice", "planted-secret"
ITERATIONS, SALT = 4096, b"salt"
TLS_SHARE, SCRAM_SHARE, BEARER_SHARE = 0.08, 0.1, 0.2
"""Shares of the cases that mutate TLS records, SCRAM's final message, and tokens for OAUTHBEARER."""

TIMEOUT_S = 31
"""Time after which the server closes a connection that is not authenticated."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
RULES = JwtRules(audiences=[AUDIENCE], issuer=ISSUER)
BEARER_TOKEN = jwt.encode(claims(NOW_S, sub=USER), ec_key(1), "ES256", {"kid": "key"})
RESPONSE_BYTES_MAX = 65_536
INTERESTING = (0, 1, 127, 128, 255)


class PlainPeer:
    """A client without TLS; see ``TlsPeer``."""

    def __init__(self, server: Server, factory: Any, address: _Address) -> None:
        self._protocol = factory.buildProtocol(address)
        self._wire = _Wire()
        self._protocol.makeConnection(self._wire)
        (self.connection,) = server.resources.connections

    @property
    def lost(self) -> bool:
        return self._wire.lost

    def value(self) -> bytes:
        return self._wire.value()

    def send(self, data: bytes) -> None:
        if not self._wire.lost:
            self._protocol.dataReceived(data)

    def disconnect(self) -> None:
        self._protocol.connectionLost(Failure(_LOST))


class _Wire(StringTransport):
    """Transport of a connection; it receives no data after it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing."""

    def loseConnection(self) -> None:
        self.lost = True

    def abortConnection(self) -> None:
        self.lost = True


class Fuzzer:
    """Runs cases, each with one connection, and checks their effects.

    :ivar outcomes: number of cases by outcome.
    """

    def __init__(self, certificates: Path, seed: int) -> None:
        self._random = Random(seed)
        self._clock = MemoryReactorClock()
        # Installed before the runtime replaces the reactor's clock, because this reactor must keep its own.
        runtime = replace(real_runtime(MemoryReactorClock()), reactor=self._clock)
        table = {METADATA.key: HandlerEntry.of(METADATA, _metadata)}
        self._plain = Server(runtime, table, use_twisted_transport=True)
        self._plain.listen(Endpoint("PLAIN", "0.0.0.0", 9092, "SASL_PLAINTEXT"), None, self._sasl())
        self._secured = Server(runtime, table)
        self._secured.listen(Endpoint("TLS", "0.0.0.0", 9093, "SASL_SSL"), _tls(certificates), self._sasl())
        self._factories = [port[1] for port in self._clock.tcpServers]
        self._client = SSL.Context(SSL.TLS_CLIENT_METHOD)
        self._salted: dict[tuple[bytes, int], bytes] = {}
        self._errors: list[dict[str, Any]] = []
        self.outcomes = {"closed": 0, "open": 0, "authenticated": 0}

    def run(self, count: int) -> None:
        """Run cases.

        :raise AssertionError: a case had a forbidden effect; the message contains the data that the client sent.
        """
        globalLogPublisher.addObserver(self._observe)  # type: ignore[arg-type]
        gc_was_enabled = gc.isenabled()
        try:
            for _ in range(count):
                self._run_case()
        finally:
            globalLogPublisher.removeObserver(self._observe)  # type: ignore[arg-type]
            if gc_was_enabled:
                gc.enable()

    def _observe(self, event: dict[str, Any]) -> None:
        if event.get("log_failure") is not None or event["log_level"] in (LogLevel.error, LogLevel.critical):
            self._errors.append(event)

    def _sasl(self) -> SaslConfig:
        credentials = {name: ScramCredential.of_password(name, PASSWORD, SALT, ITERATIONS) for name in HASHES}
        mechanisms: dict[str, Callable[[], Any]] = {"PLAIN": partial(PlainServer, {USER: PASSWORD})}
        for name in HASHES:
            find = partial(_credential, credentials[name])
            mechanisms[name] = partial(ScramServer, name, find, lambda: f"{self._random.getrandbits(64):x}")
        mechanisms["OAUTHBEARER"] = partial(OAuthBearerServer, JwtValidator(RULES, _Keys(), _now_ms))
        return SaslConfig(mechanisms, _now_ms)

    # --- one case ----------------------------------------------------------------------------------------------------

    def _run_case(self) -> None:
        random = self._random
        name = "TLS" if random.random() < TLS_SHARE else "PLAIN"
        peer: PlainPeer | TlsPeer
        if name == "TLS":
            peer = TlsPeer(self._secured, self._factories[1], self._clock, _Address(random).host)
        else:
            peer = PlainPeer(self._plain, self._factories[0], _Address(random))
        connection = peer.connection
        sent: list[bytes] = []
        try:
            messages = self._tls(peer) if name == "TLS" else self._requests(peer)
            for data in messages:
                sent.append(data)
                for piece in _pieces(random, data):
                    peer.send(piece)
            self._clock.advance(0)
            self._check(name, peer, connection.user, sent)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}; the client sent {sent!r}") from error
        finally:
            if not peer.lost and connection.user == ANONYMOUS and random.random() < 0.1:
                self._clock.advance(TIMEOUT_S)
                assert peer.lost, f"the connection was not closed in time; the client sent {sent!r}"
            peer.disconnect()
        timers = [call for call in self._clock.getDelayedCalls() if call.getTime() > self._clock.seconds()]
        assert not timers, f"{timers} are still active; the client sent {sent!r}"
        assert not len(self._plain.resources.connections) + len(self._secured.resources.connections)

    def _check(self, name: str, peer: PlainPeer | TlsPeer, user: str, sent: list[bytes]) -> None:
        assert not self._errors, self._errors
        assert len(peer.value()) <= RESPONSE_BYTES_MAX
        if name == "PLAIN":
            for response in FrameReader().feed(peer.value()):
                assert len(response) < RESPONSE_BYTES_MAX
        if user != ANONYMOUS:
            assert user == f"User:{USER}"
            self.outcomes["authenticated"] += 1
        else:
            self.outcomes["closed" if peer.lost else "open"] += 1

    def _requests(self, peer: PlainPeer | TlsPeer) -> Iterator[bytes]:
        """Yield requests, and mutate one of them."""
        random = self._random
        if random.random() < SCRAM_SHARE:
            yield from self._scram(peer)
            return
        frames = [_request(random, number) for number in range(random.randint(1, 4))]
        mutated = random.randrange(len(frames))
        frames[mutated] = _mutated(random, frames[mutated])
        yield b"".join(frames)

    def _scram(self, peer: PlainPeer | TlsPeer) -> Iterator[bytes]:
        random = self._random
        mechanism = random.choice(list(HASHES))
        user, password = random.choice([(USER, PASSWORD), (USER, "wrong"), ("unknown", PASSWORD)])
        client = ScramClient(mechanism, user, password, lambda: "nonce", self._salted if password == PASSWORD else {})
        yield _frame(SASL_HANDSHAKE, 1, {"mechanism": mechanism})
        first = _frame(SASL_AUTHENTICATE, 1, {"auth_bytes": client.step(b"")})
        yield _mutated(random, first) if random.random() < 0.3 else first
        responses = list(FrameReader().feed(peer.value()))
        if len(responses) < 2:
            return
        try:
            parsed = SASL_AUTHENTICATE.response.parse(1, responses[1], 4)
            final = client.step(bytes(parsed["auth_bytes"]))
        except Exception:
            return
        whole = _frame(SASL_AUTHENTICATE, 1, {"auth_bytes": final})
        yield _mutated(random, whole) if random.random() < 0.9 else whole

    def _tls(self, peer: PlainPeer | TlsPeer) -> Iterator[bytes]:
        """Yield the records of a client's handshake with one mutated record, or a mutated request."""
        random = self._random
        if random.random() < 0.1:
            yield _mutated(random, _request(random, 0))
            return
        client = SSL.Connection(self._client)
        client.set_connect_state()
        mutated, received = random.randrange(2), 0
        for number in range(2):
            try:
                client.do_handshake()
            except SSL.WantReadError:
                pass
            except SSL.Error:
                return
            try:
                data = client.bio_read(65_536)
            except SSL.WantReadError:
                return
            yield _mutated(random, data) if number == mutated else data
            answer, received = peer.value()[received:], len(peer.value())
            if not answer:
                return
            client.bio_write(answer)


class _Address:
    def __init__(self, random: Random) -> None:
        self.host = f"127.0.0.{random.randint(1, 200)}"
        self.port = 1000


class _Lost(Exception):
    """The peer closed the connection."""


_LOST = _Lost()


class _Keys:
    """The key of an authorization server."""

    keys = KeySet.parse(key_set(jwk(ec_key(1), "key")))

    async def refresh_for_unknown_key(self) -> None:
        """Do nothing: the key does not change."""


def _now_ms() -> int:
    return NOW_S * 1000


def _credential(credential: ScramCredential, user: str) -> ScramCredential | None:
    return credential if user == USER else None


def _metadata(request: Request) -> None:
    request.respond({"brokers": [], "topics": []})


def _tls(certificates: Path) -> ListenerTls:
    options = TlsOptions(keystore_type="PEM", keystore_location=f"{certificates}/broker.pem")
    return ListenerTls(options, lambda: 0.0, _no_offload)


def _no_offload(*_: Any) -> Any:
    raise AssertionError("the files have not changed")


def _frame(api: Api, version: int, body: dict[str, Any]) -> bytes:
    header = build_request_header(api.request_header_version(version), api.key, version, 7, "client")
    return frame(header + api.request.build(version, body))


def _request(random: Random, number: int) -> bytes:
    """Return a valid request."""
    kind = random.randrange(8) if number else random.choice((0, 1, 1, 2, 5))
    if kind == 0:
        software = {"client_software_name": "client", "client_software_version": "1.0"}
        return _frame(API_VERSIONS, random.randint(0, 4), software)
    if kind == 1:
        mechanism = random.choice(MECHANISMS)
        return _frame(SASL_HANDSHAKE, random.randint(0, 1), {"mechanism": mechanism})
    if kind in (2, 3):
        return _frame(SASL_AUTHENTICATE, random.randint(0, 2), {"auth_bytes": _token(random)})
    if kind == 4:
        return frame(_token(random))  # after version 0 of SaslHandshake
    if kind == 5:
        return _frame(METADATA, random.randint(0, 12), {"topics": []})
    if kind == 6:
        return _frame(PRODUCE, 7, {"acks": 1, "timeout_ms": 1, "topic_data": []})
    return frame(build_request_header(1, random.randint(-5, 100), random.randint(0, 5), 7, "client"))


def _token(random: Random) -> bytes:
    texts = (
        f"\0{USER}\0{PASSWORD}",
        f"\0{USER}\0wrong",
        f"{USER}\0{USER}\0{PASSWORD}",
        f"n,,n={USER},r=nonce",
        f"n,a={USER},n={USER},r=nonce,x=y",
        "c=biws,r=nonce,p=AAAA",
        "",
    )
    if random.random() < BEARER_SHARE:
        return build_first_message(BEARER_TOKEN, {"trace": "7"})
    return random.choice(texts).encode()


def _mutated(random: Random, data: bytes) -> bytes:
    """Return the data with one to four changes."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(8)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << random.randrange(8)
        elif kind == 1 and changed:
            changed[at % len(changed)] = random.choice(INTERESTING)
        elif kind == 2:
            del changed[at : at + random.randint(1, 16)]
        elif kind == 3:
            changed[at:at] = random.randbytes(random.randint(1, 16))
        elif kind == 4:
            changed[at:at] = changed[at : at + random.randint(1, 64)]
        elif kind == 5:
            width = random.choice((2, 4))
            number = random.choice((0, 1, -1, 2 ** (8 * width - 1) - 1, -(2 ** (8 * width - 1)), len(changed)))
            changed[at : at + width] = number.to_bytes(width, "big", signed=True)
        elif kind == 6:
            del changed[at:]
        else:
            changed[:4] = random.choice((0, 1, -1, 2**31 - 1, 524_288, 524_289, len(changed))).to_bytes(
                4, "big", signed=True
            )
    return bytes(changed)


def _pieces(random: Random, data: bytes) -> Iterator[bytes]:
    """Yield the data in one or two pieces."""
    at = random.randrange(len(data) + 1) if random.random() < 0.3 else len(data)
    for piece in (data[:at], data[at:]):
        if piece:
            yield piece
