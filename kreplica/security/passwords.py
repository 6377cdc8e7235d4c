"""Encryption of passwords in dynamic settings, in the format of Apache Kafka's ``password.encoder.*`` (KIP-226)."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7

CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
CIPHERS = (CBC, GCM)
KEY_FACTORIES: Mapping[str, hashes.HashAlgorithm] = {
    "PBKDF2WithHmacSHA512": hashes.SHA512(),
    "PBKDF2WithHmacSHA384": hashes.SHA384(),
    "PBKDF2WithHmacSHA256": hashes.SHA256(),
    "PBKDF2WithHmacSHA224": hashes.SHA224(),
    "PBKDF2WithHmacSHA1": hashes.SHA1(),
}
"""Hash functions, by the name of Java's key factory."""

DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"

ITERATIONS_MAX = 1_000_000
_SALT_BYTES = 256
_BLOCK_BITS = 128
_CBC_IV_BYTES, _GCM_IV_BYTES = 16, 12
_GCM_TAG_BITS = "128"


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordEncoder:
    """Encrypts text with a key that is derived from a secret.

    Encryption takes a few milliseconds because of the many iterations: run it in a thread.
    """

    secret: str = field(repr=False)
    cipher: str = CBC
    key_factory: str = DEFAULT_KEY_FACTORY
    key_bits: int = 128
    iterations: int = 4096

    def encode(self, text: str) -> str:
        """Return the encrypted text, with the parameters that are needed to decrypt it."""
        salt = os.urandom(_SALT_BYTES)
        key = _key(self.secret, salt, KEY_FACTORIES[self.key_factory], self.iterations, self.key_bits)
        data = text.encode()
        more = {}
        if self.cipher == GCM:
            vector = os.urandom(_GCM_IV_BYTES)
            encrypted = AESGCM(key).encrypt(vector, data, None)
            more["authenticationTagLength"] = _GCM_TAG_BITS
        else:
            vector = os.urandom(_CBC_IV_BYTES)
            padder, encryptor = PKCS7(_BLOCK_BITS).padder(), Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
            encrypted = encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()
        values = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": str(self.key_bits),
            "salt": b64encode(salt).decode(),
            "iterations": str(self.iterations),
            "encryptedPassword": b64encode(encrypted).decode(),
            "passwordLength": str(_java_length(text)),
            "initializationVector": b64encode(vector).decode(),
            **more,
        }
        return ",".join(f"{name}:{value}" for name, value in values.items())

    def decode(self, encoded: str) -> str:
        """Decrypt a text that was encrypted with the same secret; its parameters may differ.

        :raise ValueError: the value is malformed, or was encrypted with another secret; the message contains no secret.
        """
        values = dict(part.partition(":")[::2] for part in encoded.split(","))
        try:
            key_factory, cipher = KEY_FACTORIES[values["keyFactoryAlgorithm"]], values["cipherAlgorithm"]
            iterations, key_bits = int(values["iterations"]), int(values["keyLength"])
            salt, encrypted = b64decode(values["salt"]), b64decode(values["encryptedPassword"])
            vector, length = b64decode(values["initializationVector"]), int(values["passwordLength"])
            if cipher not in CIPHERS or not 1 <= iterations <= ITERATIONS_MAX:
                raise ValueError(cipher)
            key = _key(self.secret, salt, key_factory, iterations, key_bits)
            text = _decrypt(cipher, key, vector, encrypted).decode()
        except (KeyError, ValueError, InvalidTag):
            raise ValueError("the value cannot be decrypted: check password.encoder.secret") from None
        if _java_length(text) != length:
            raise ValueError("the value cannot be decrypted: check password.encoder.secret")
        return text


def _key(secret: str, salt: bytes, algorithm: hashes.HashAlgorithm, iterations: int, bits: int) -> bytes:
    return PBKDF2HMAC(algorithm, bits // 8, salt, iterations).derive(secret.encode())


def _decrypt(cipher: str, key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    if cipher == GCM:
        return AESGCM(key).decrypt(vector, encrypted, None)
    decryptor, unpadder = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor(), PKCS7(_BLOCK_BITS).unpadder()
    return unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
