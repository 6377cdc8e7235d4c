"""Encryption of passwords in dynamic settings; the expected values were written by Apache Kafka 3.9.1."""

from __future__ import annotations

import pytest

from kreplica.security.passwords import CIPHERS, GCM, KEY_FACTORIES, PasswordEncoder

KAFKA_CBC = (
    "initializationVector:N5lPPCUzqmBWbuLOk1MVEQ==,keyLength:128,salt:wxRKvZZJHENxnhIED9IIXH30+PG8R2Xp7xIK6pChQFkzwVLy"
    "b4u97vdjGX3hdLvt3Wag0M1Z91Z/gc/82SIuJEzDZs1C/7We3HcT9aWWRht2Dh3jaafisH3Vqjw0Kx1VxW+nq9qOgGvvZjzGwH1QZmRu6vJdHJF9"
    "/hJ8UT9egR0oaIY/8kBntrqN4K2xHs5l5qMb4HUIVAJq9qj0HHblBsmYzusWTq+MsyH+PfApIwPpNjhI3GQjMdvPh3HRgwE2ict2jbBWG7FvkDd7"
    "S49KfhWuQ4NZDpjIAyOz9Ki5hxuvnQ3JgGEwC+98S9r2QJRu68lsxcql0JLsXy6mttYpyg==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512"
    ",cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:5,encryptedPassword:Esw6IhNmg3h16S6OJkzoVQ=="
)
KAFKA_GCM = (
    "initializationVector:3VsVhN6Wqry6dcI8,keyLength:128,salt:r4Jp1mAlctaj36DCfcESOr1j0pxQhi9JiFxBzpqfsjLvIIpVr8FfQqWL"
    "52Sr0H83q1xP/znQZonpjR1PulqvFMkd2cRT0PGQku+4sH4M65pQqH+TqIIFG1PLlxqTs/H3eyONUYjHPgA0/bHZoetulK6onQijEo2naZhohLKd"
    "uelVUuf2ez8tWsnXL4vURUWW+z7fDZBic0OyqR0onu5L+5jihbDesdhYwzprx3dyIDaCNBpRegMqRSTKuHdZaslRVStZnMYdBVeS43VU9CEHG5j1"
    "d0GzkuPsCoBCtDYmWL2VSNi4GFojUljBlhs7w7QeT/hLGlhkTiP3BuO51sI9Qg==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
    "cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength:128,iterations:4096,passwordLength:5,"
    "encryptedPassword:+2r06D4XYWiB0oBnV3oT97zseSd+SR4="
)


@pytest.mark.parametrize("encoded", [KAFKA_CBC, KAFKA_GCM])
def test_values_of_kafka(encoded: str) -> None:
    assert PasswordEncoder(secret="sesame").decode(encoded) == "grüße"


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("key_factory", KEY_FACTORIES)
def test_round_trip(cipher: str, key_factory: str) -> None:
    """Each value has its own salt and the names that Kafka reads, and can be decrypted with the same secret."""
    encoder = PasswordEncoder(
        secret="sesame", cipher=cipher, key_factory=key_factory, key_bits=256, iterations=1024
    )
    for text in ("", "a password", "-----BEGIN\n-----END\n" * 200, "\N{LOCK}"):
        encoded = encoder.encode(text)
        assert PasswordEncoder(secret="sesame").decode(encoded) == text
        assert encoded != encoder.encode(text)
        names = {part.partition(":")[0] for part in encoded.split(",")}
        expected = KAFKA_GCM if cipher == GCM else KAFKA_CBC
        assert names == {part.partition(":")[0] for part in expected.split(",")}


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "not encrypted",
        KAFKA_CBC.replace("passwordLength:5", "passwordLength:6"),
        KAFKA_CBC.replace("iterations:4096", "iterations:4097"),
        KAFKA_CBC.replace("iterations:4096", "iterations:9999999999"),
        KAFKA_CBC.replace("AES/CBC", "DES/CBC"),
        KAFKA_CBC.replace("keyLength:128", "keyLength:127"),
        KAFKA_CBC.replace("initializationVector:N5l", "initializationVector:N"),
        KAFKA_GCM.replace("encryptedPassword:+2", "encryptedPassword:+3"),
    ],
)
def test_damaged_values(encoded: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be decrypted: check password\.encoder\.secret"):
        PasswordEncoder(secret="sesame").decode(encoded)


def test_wrong_secret() -> None:
    """Neither the error nor the representation contains a secret."""
    encoder = PasswordEncoder(secret="planted-secret")
    for encoded in (KAFKA_CBC, KAFKA_GCM):
        with pytest.raises(ValueError, match="cannot be decrypted") as caught:
            encoder.decode(encoded)
        assert "planted" not in str(caught.value)
    assert "planted" not in repr(encoder)
