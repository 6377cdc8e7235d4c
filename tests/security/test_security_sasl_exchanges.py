"""SASL exchanges between clients and brokers, and JAAS configurations."""

from __future__ import annotations

import hmac
import random
from base64 import b64encode
from hashlib import pbkdf2_hmac, sha256

import pytest

from kreplica.errors import AuthenticationError
from kreplica.security.sasl.jaas import parse_jaas
from kreplica.security.sasl.plain import PlainClient, PlainServer
from kreplica.security.sasl.scram import (
    HASHES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramClient,
    ScramCredential,
    ScramServer,
)

PASSWORD = "pencil"
SALT = b"a salt of the test"


def server(mechanism: str, password: str = PASSWORD, user: str = "user") -> ScramServer:
    credential = ScramCredential.of_password(mechanism, password, SALT, 4096)
    return ScramServer(mechanism, {user: credential}.get, lambda: "of-the-server")


def client(mechanism: str, password: str = PASSWORD, user: str = "user") -> ScramClient:
    return ScramClient(mechanism, user, password, lambda: "of-the-client", {})


def run_exchange(one: ScramClient, other: ScramServer) -> None:
    """Pass tokens until the client is done."""
    token = b""
    while not one.is_complete:
        sent = one.step(token)
        if one.is_complete:
            return
        token = other.step(sent)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["user", "a,b=c", "Ärger"])
def test_both_sides_of_scram(mechanism: str, user: str) -> None:
    one, other = client(mechanism, user=user), server(mechanism, user=user)
    run_exchange(one, other)
    assert other.user == user


def test_scram_example_of_rfc_7677() -> None:
    """The messages are those in section 3 of the RFC."""
    one = ScramClient(SCRAM_SHA_256, "user", PASSWORD, lambda: "rOprNGfwEbeRWgbNEkqO", {})
    assert one.step(b"") == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = one.step(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    one.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert one.is_complete


def test_wrong_passwords() -> None:
    """Neither side continues, and the errors do not contain passwords."""
    for one, other in (
        (client(SCRAM_SHA_512, "wrong"), server(SCRAM_SHA_512)),
        (client(SCRAM_SHA_512, user="nobody-knows"), server(SCRAM_SHA_512)),
    ):
        with pytest.raises(AuthenticationError, match="invalid user name or password") as caught:
            run_exchange(one, other)
        assert other.user is None
        assert PASSWORD not in str(caught.value)
    impostor = client(SCRAM_SHA_256)
    impostor.step(b"")
    impostor.step(b"r=of-the-clientx,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationError, match="the broker did not prove that it knows the password"):
        impostor.step(b"v=AAAA")


def test_nonce_of_old_librdkafka() -> None:
    """The final message may contain the client's nonce twice, as in Kafka; another broker's nonce is rejected."""

    def final(nonce: str, challenge: str) -> bytes:
        without_proof = f"c=biws,r={nonce}"
        messages = f"n=user,r=of-the-client,{challenge},{without_proof}".encode()
        key = hmac.digest(pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, 4096), b"Client Key", "sha256")
        signature = hmac.digest(sha256(key).digest(), messages, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    other = server(SCRAM_SHA_256)
    challenge = other.step(b"n,,n=user,r=of-the-client").decode()
    other.step(final("of-the-clientof-the-clientof-the-server", challenge))
    assert other.user == "user"
    other = server(SCRAM_SHA_256)
    challenge = other.step(b"n,,n=user,r=of-the-client").decode()
    with pytest.raises(AuthenticationError, match="nonce of the final SCRAM message does not match"):
        other.step(final("of-the-clientof-another-server", challenge))


@pytest.mark.parametrize("proof", ["AAAA", "A", "\N{LATIN SMALL LETTER O WITH DIAERESIS}", "=", ""])
def test_invalid_proofs(proof: str) -> None:
    other = server(SCRAM_SHA_256)
    nonce = other.step(b"n,,n=user,r=of-the-client").decode().split(",")[0]
    with pytest.raises(AuthenticationError, match="SCRAM"):
        other.step(f"c=biws,{nonce},p={proof}".encode())


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"r=another,s=c2FsdA==,i=4096", "malformed"),
        (b"r=of-the-client,s=c2FsdA==,i=4096", "malformed"),
        (b"r=of-the-clientx,s=c2FsdA==,i=1", "requests 1 SCRAM iterations"),
        (b"r=of-the-clientx,s=c2FsdA==,i=999999999", "requests 999999999 SCRAM iterations"),
        (b"r=of-the-clientx,s=!,i=4096", "invalid Base64"),
    ],
)
def test_invalid_challenges(challenge: bytes, message: str) -> None:
    one = client(SCRAM_SHA_256)
    one.step(b"")
    with pytest.raises(AuthenticationError, match=message):
        one.step(challenge)


def test_mutated_messages() -> None:
    """Mutated SCRAM messages raise only the typed error; random PLAIN messages are always rejected."""
    rng = random.Random(1)
    for _ in range(3000):
        one, other = client(SCRAM_SHA_256), server(SCRAM_SHA_256)
        token, sent = b"", b""
        try:
            for _ in range(rng.randrange(1, 3)):
                sent = one.step(token)
                token = other.step(sent)
            mutated = bytearray(one.step(token) or sent)
            for _ in range(rng.randrange(1, 4)):
                mutated[rng.randrange(len(mutated))] = rng.randrange(256)
            other.step(bytes(mutated))
        except AuthenticationError:
            continue
    for _ in range(3000):
        plain = PlainServer({"user": PASSWORD})
        try:
            plain.step(rng.randbytes(rng.randrange(40)))
        except AuthenticationError:
            continue
        pytest.fail(f"accepted as {plain.user}")


def test_plain() -> None:
    one, other = PlainClient("user", PASSWORD), PlainServer({"user": PASSWORD})
    assert other.step(one.step(b"")) == b""
    assert other.user == "user"
    for token, message in (
        (b"\0user\0wrong", "invalid user name or password"),
        (b"\0other\0pencil", "invalid user name or password"),
        (b"admin\0user\0pencil", "to act as another user"),
        (b"\0user\0", "no password"),
        (b"\0\0pencil", "no user name"),
        (b"user", "1 parts instead of 3"),
        (b"\0\xff\0pencil", "not valid UTF-8"),
    ):
        with pytest.raises(AuthenticationError, match=message) as caught:
            PlainServer({"user": PASSWORD}).step(token)
        assert PASSWORD not in str(caught.value)


def test_format_of_credentials() -> None:
    """Credentials have the format that Kafka stores in ZooKeeper."""
    credential = ScramCredential.of_password(SCRAM_SHA_256, PASSWORD, SALT, 4096)
    assert ScramCredential.parse(credential.format()) == credential
    assert credential.format().startswith("salt=YSBzYWx0")
    assert "stored_key" not in repr(credential)
    with pytest.raises(ValueError, match="needs salt, stored_key, server_key and iterations"):
        ScramCredential.parse("salt=YQ==,stored_key=YQ==")


def test_jaas() -> None:
    entry = parse_jaas(
        """org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password='two "words"' user_alice="a\\"b;c=d";"""
    )
    assert entry.module == "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert entry.options == {"username": "admin", "password": 'two "words"', "user_alice": 'a"b;c=d'}
    assert "words" not in repr(entry)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a login module"),
        ("Module username=x;", "column 8: expected a login module and required"),
        ("Module required username=\"x", "column 26: a quotation mark is missing"),
        ("Module required username x;", 'column 17: expected name="value"'),
        ("Module required username=x", "column 27: expected ; at the end"),
        ("Module required; Other required;", "column 18: expected only one login module"),
    ],
)
def test_invalid_jaas(text: str, message: str) -> None:
    """The error contains the column, but no value."""
    with pytest.raises(ValueError, match="column") as caught:
        parse_jaas(text)
    assert message in str(caught.value)
