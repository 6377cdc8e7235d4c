"""Rules for delegation tokens: lifetimes, visibility, and data in ZooKeeper."""

from __future__ import annotations

import json

import pytest

from kreplica.security.sasl.scram import SCRAM_SHA_256, ScramClient, ScramServer
from kreplica.security.tokens.token import DelegationToken, TokenLifetimes, hmac_of, is_visible
from kreplica.security.tokens.token_cache import TokenCache
from kreplica.security.tokens.znodes import decode_token, encode_token

LIFETIMES = TokenLifetimes(max_ms=1000, renewal_ms=400)
TOKEN = DelegationToken("id", "User:a", "User:b", ("User:c",), 10, 20, 30)


@pytest.mark.parametrize(
    ("requested_ms", "max_ms", "expires_ms"),
    [(-1, 1050, 450), (0, 1050, 450), (5000, 1050, 450), (1000, 1050, 450), (300, 350, 350), (1, 51, 51)],
)
def test_lifetimes(requested_ms: int, max_ms: int, expires_ms: int) -> None:
    token = LIFETIMES.new_token("id", "User:a", "User:a", [], requested_ms, 50)
    assert (token.issued_ms, token.max_ms, token.expires_ms) == (50, max_ms, expires_ms)


def test_token_is_valid_in_its_last_millisecond() -> None:
    """A token is valid until the end of the millisecond in which it expires, as in Kafka."""
    assert [TOKEN.is_expired(now_ms) for now_ms in (19, 20, 21)] == [False, False, True]
    assert TOKEN.valid_for(15, 10).expires_ms == 25
    assert TOKEN.valid_for(15, 2**62).expires_ms == 30
    assert [LIFETIMES.renewal_of(period_ms) for period_ms in (-1, 0, 7)] == [400, 0, 7]


def test_visible_tokens() -> None:
    other = DelegationToken("other", "User:x", "User:x", (), 10, 20, 30)

    def visible(user: str, owners: set[str] | None, *describable: DelegationToken) -> list[DelegationToken]:
        return [token for token in (TOKEN, other) if is_visible(token, user, owners, lambda one: one in describable)]

    for user in ("User:a", "User:b", "User:c"):
        assert visible(user, None) == [TOKEN]
    assert visible("User:z", None, other) == [other]
    assert visible("User:z", {"User:c"}, TOKEN, other) == [TOKEN]
    assert visible("User:a", {"User:x"}) == []
    assert [TOKEN.may_be_renewed_by(user) for user in ("User:a", "User:b", "User:c")] == [True, False, True]


def test_znodes_of_kafka() -> None:
    """Principals are encoded as Java's URLEncoder does; znodes of older versions have no requester."""
    token = DelegationToken("id", "User:a b*~", "User:CN=x,O=y", ("User:é",), 1, 2, 3)
    document = json.loads(encode_token(token))
    assert document["owner"] == "User%3Aa%20b%2A%7E"
    assert document["tokenRequester"] == "User%3ACN%3Dx%2CO%3Dy"
    assert document["renewers"] == ["User%3A%C3%A9"]
    assert decode_token(encode_token(token)) == token
    del document["tokenRequester"]
    old = decode_token(json.dumps({**document, "version": 2}).encode())
    assert old.requester == old.owner == "User:a b*~"


@pytest.mark.parametrize(
    "change",
    [
        *({"version": version} for version in (4, 0, "1")),
        *({"owner": owner} for owner in ("a", None)),
        {"renewers": 1},
        {"tokenId": 0},
    ],
)
def test_malformed_znodes(change: dict[str, object]) -> None:
    document = {**json.loads(encode_token(TOKEN)), **change}
    if "tokenId" in change:
        del document["tokenId"]
    with pytest.raises(ValueError, match="malformed delegation token"):
        decode_token(json.dumps(document).encode())
    with pytest.raises(ValueError, match="malformed delegation token"):
        decode_token(b"not JSON")


def test_secret_of_kafka() -> None:
    """The secret is the HMAC-SHA-512 of the ID, with the bytes of the key."""
    expected = (
        "b42af09057bac1e2d41708e48a902e09b5ff7f12ab428a4fe86653c73dd248fb"
        "82f948a549f7b791a5b41915ee4d1ec3935357e4e2317250d0372afa2ebeeb3a"
    )
    # A published test vector of HMAC-SHA-512.
    assert hmac_of("The quick brown fox jumps over the lazy dog", b"key").hex() == expected


def test_token_cache() -> None:
    cache = TokenCache(b"key")
    first, second = TOKEN, DelegationToken("2", "User:x", "User:x", (), 10, 20, 30)
    cache.put(first)
    cache.put(second)
    assert cache.find_by_hmac(cache.hmac_of(second)) == second
    stored = cache.credential(SCRAM_SHA_256, "id")
    assert stored is not None
    assert (stored.owner, stored.expires_ms) == ("a", 20)
    cache.put(first.valid_for(20, 5))
    renewed = cache.credential(SCRAM_SHA_256, "id")
    assert renewed is not None
    assert (renewed.expires_ms, renewed.credential is stored.credential) == (25, True)
    cache.remove("id")
    assert (cache.find("id"), cache.find_by_hmac(cache.hmac_of(first)), cache.credential(SCRAM_SHA_256, "id")) == (
        None,
        None,
        None,
    )
    cache.remove("2")
    cache.remove("2")
    assert not cache.tokens


@pytest.mark.parametrize("extension", [",tokenauth=true", ",tokenauth=TRUE", ",x=y,tokenauth=true", ""])
def test_announced_tokens(extension: str) -> None:
    """Only a client that announces a token authenticates with one; user names and token IDs are separate."""
    cache = TokenCache(b"key")
    cache.put(TOKEN)

    def tokens_only(token_id: str):
        return cache.credential(SCRAM_SHA_256, token_id)

    broker = ScramServer(SCRAM_SHA_256, lambda _: None, lambda: "nonce", tokens_only)
    message = f"n,,n=id,r=x{extension}".encode()
    if extension:
        assert broker.step(message).startswith(b"r=xnonce,s=")
        assert (broker.uses_token, broker.expires_ms, broker.user) == (True, 20, None)
    else:
        with pytest.raises(Exception, match="invalid user name or password"):
            broker.step(message)
    client = ScramClient(SCRAM_SHA_256, "id", "secret", lambda: "x", {}, uses_token=True)
    assert client.step(b"") == b"n,,n=id,r=x,tokenauth=true"
