"""Sequences of requests on a connection before, during and after authentication, for the authorization matrix."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jwt
from authorization_client import CLOSED, PASSWORD, Connection

from kreplica.security.sasl.oauthbearer import build_first_message
from kreplica.wire.messages import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kreplica.wire.messages.api import Api
from tests.support.token_server import claims, ec_key

KEY_ID = "key"


class Step(NamedTuple):
    """A request."""

    api: Api
    version: int
    body: dict[str, Any]


def handshake(mechanism: str = "PLAIN") -> Step:
    return Step(SASL_HANDSHAKE, 1, {"mechanism": mechanism})


def token(text: bytes) -> Step:
    return Step(SASL_AUTHENTICATE, 2, {"auth_bytes": text})


USER = "unprivileged"
VERSIONS = Step(API_VERSIONS, 3, {"client_software_name": "test", "client_software_version": "1"})
METADATA_STEP = Step(METADATA, 1, {"topics": []})
RIGHT = token(f"\0{USER}\0{PASSWORD}".encode())
WRONG = token(b"\0unprivileged\0wrong")

SEQUENCES: Mapping[str, Sequence[Step]] = {
    "versions twice, then authentication": (VERSIONS, VERSIONS, handshake(), RIGHT, METADATA_STEP),
    "versions with an unreadable name": (Step(API_VERSIONS, 3, {"client_software_name": "-x"}), VERSIONS),
    "mechanism that is not enabled": (handshake("SCRAM-SHA-256"), handshake()),
    "mechanism that does not exist": (handshake("x" * 1000), VERSIONS),
    "mechanism without a name": (handshake(""), VERSIONS),
    "handshake twice": (handshake(), handshake(), RIGHT),
    "versions instead of a token": (handshake(), VERSIONS, RIGHT),
    "another request instead of a token": (handshake(), METADATA_STEP, RIGHT),
    "token without handshake": (RIGHT, handshake()),
    "empty token": (handshake(), token(b""), RIGHT),
    "token without a password": (handshake(), token(b"\0unprivileged\0"), RIGHT),
    "token without a user": (handshake(), token(b"\0\0wrong"), RIGHT),
    "token with an authorization ID": (handshake(), token(f"{USER}\0{USER}\0{PASSWORD}".encode()), METADATA_STEP),
    "token with the ID of another user": (handshake(), token(f"admin\0{USER}\0{PASSWORD}".encode()), METADATA_STEP),
    "token with a fourth part": (handshake(), token(f"\0{USER}\0{PASSWORD}\0x".encode()), METADATA_STEP),
    "token that is not UTF-8": (handshake(), token(b"\0\xff\xfe\0x"), METADATA_STEP),
    "right token after a wrong one": (handshake(), WRONG, RIGHT),
    "handshake after a wrong token": (handshake(), WRONG, handshake()),
    "handshake of an authenticated client": (handshake(), RIGHT, handshake(), METADATA_STEP),
    "token of an authenticated client": (handshake(), RIGHT, RIGHT, METADATA_STEP),
    "versions of an authenticated client": (handshake(), RIGHT, VERSIONS, METADATA_STEP),
}


def bearer(
    key: Any = None, algorithm: str = "ES256", extensions: Mapping[str, str] | None = None, **changes: Any
) -> Step:
    """Return the first message of OAUTHBEARER, with a valid or a changed token."""
    signed = jwt.encode(claims(time.time(), **changes), key or ec_key(1), algorithm, {"kid": KEY_ID})
    return token(build_first_message(signed, extensions or {}))


def bearer_sequences() -> Mapping[str, Sequence[Step]]:
    """Return sequences with bearer tokens, which contain the current time."""
    start, confirm, end = handshake("OAUTHBEARER"), token(b"\x01"), METADATA_STEP
    valid = bearer().body["auth_bytes"]
    first = {
        "valid token": bearer(),
        "token with an extension": bearer(extensions={"traceId": "7"}),
        "expired token": bearer(exp=int(time.time()) - 3600),
        "token of another audience": bearer(aud="another"),
        "token of another issuer": bearer(iss="https://another.example.org"),
        "token without a user": bearer(sub=None),
        "token without an end": bearer(exp=None),
        "token of another key": bearer(ec_key(2)),
        "token of another algorithm": bearer("secret" * 10, "HS256"),
        "text instead of a token": token(b"n,,\x01auth=Bearer x.y.z\x01\x01"),
        "message without a token": token(b"n,,\x01auth=Basic x\x01\x01"),
        "message with another user": token(valid.replace(b"n,,", b"n,a=another,")),
        "message with the same user": token(valid.replace(b"n,,", b"n,a=alice,")),
        "message without an end": token(valid[:-1]),
        "empty message": token(b""),
    }
    return {f"{name} of OAUTHBEARER": (start, step, confirm, end) for name, step in first.items()}


def run_sequences(connect: Callable[[], Connection]) -> dict[str, list[Any]]:
    """Return the error codes by name of the sequence."""
    all_steps = {**SEQUENCES, **bearer_sequences()}
    return {f"sequence: {name}": _run(connect(), steps) for name, steps in all_steps.items()}


def _run(connection: Connection, steps: Sequence[Step]) -> list[Any]:
    answers: list[Any] = []
    for step in steps:
        try:
            connection.send(step.api, step.version, step.body)
            response = connection.receive(step.api, step.version)
        except (BrokenPipeError, ConnectionResetError):
            response = None
        answers.append(CLOSED if response is None else response.get("error_code", 0))
    connection.close()
    return answers
