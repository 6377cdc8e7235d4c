"""Names and data of the znodes of delegation tokens, as Kafka 3.9 writes them; the secrets are not stored."""

from __future__ import annotations

import json
from urllib.parse import quote, unquote_plus

from kreplica.security.tokens.token import DelegationToken

ROOT = "/delegation_token"
TOKENS = f"{ROOT}/tokens"
CHANGES = f"{ROOT}/token_changes"
CHANGE_PREFIX = "token_change_"
PATHS = (ROOT, CHANGES, TOKENS)
"""Persistent znodes, parents first."""

VERSION = 3
"""Version of the data; version 3 added the requester (KIP-373)."""

_REQUESTER_FROM = 3


def path_of(token_id: str) -> str:
    """Return the path of a token's znode."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """Return the data of a token's znode."""
    document = {
        "version": VERSION,
        "owner": _sanitize(token.owner),
        "tokenRequester": _sanitize(token.requester),
        "renewers": [_sanitize(each) for each in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_token(data: bytes) -> DelegationToken:
    """Return the token in the data of a znode.

    :raise ValueError: the data is malformed or has an unknown version.
    """
    try:
        document = json.loads(data)
        version = document["version"]
        if not 1 <= version <= VERSION:
            raise ValueError(f"version {version} is not supported")
        owner = _principal(document["owner"])
        requester = _principal(document["tokenRequester"]) if version >= _REQUESTER_FROM else owner
        return DelegationToken(
            str(document["tokenId"]),
            owner,
            requester,
            tuple(_principal(each) for each in document["renewers"]),
            int(document["issueTimestamp"]),
            int(document["expiryTimestamp"]),
            int(document["maxTimestamp"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"malformed delegation token: {type(error).__name__}: {error}") from None


def _sanitize(principal: str) -> str:
    """Encode a principal as Kafka does: URL-encoded by Java's rules, with asterisks encoded too."""
    return quote(principal, safe="").replace("~", "%7E")


def _principal(text: str) -> str:
    principal = unquote_plus(text)
    if ":" not in principal:
        raise ValueError(f"{principal!r} is not a principal such as User:alice")
    return principal
