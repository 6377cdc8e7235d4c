"""Keys and certificates from Kafka's key stores and trust stores: PEM, as files or text (KIP-651), and PKCS12."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

from kreplica.errors import SettingsError
from kreplica.security.tls.options import TlsOptions

Key = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey
"""The supported types of private keys."""

Read = Callable[[str], bytes]
"""Returns the content of a file; raises OSError."""

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_KEY_END = b"PRIVATE KEY-----"
_TYPES = ("JKS", "PKCS12", "PEM")


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key with its certificate chain, starting with the key's own certificate."""

    key: Key
    chain: tuple[x509.Certificate, ...]

    def __repr__(self) -> str:
        return f"<KeyEntry of {self.chain[0].subject.rfc4514_string()}>"


def read_file(path: str) -> bytes:
    """Return the content of a file."""
    return Path(path).read_bytes()


def load_key(options: TlsOptions, read: Read = read_file) -> KeyEntry | None:
    """Return the key and certificates of the key store; None if none is configured.

    :raise SettingsError: a file cannot be read, or does not contain one key with its certificate, or a password is
        wrong. The message names the setting and the file, and contains no secret.
    """
    chain, key = options.keystore_certificate_chain, options.keystore_key
    store_type = _store_type(options, "keystore_type", options.keystore_type)
    if chain is not None or key is not None:
        names = f"{options.name('keystore_certificate_chain')} and {options.name('keystore_key')}"
        if chain is None or key is None:
            raise SettingsError(f"{names}: both must be set")
        if store_type != "PEM":
            raise SettingsError(f"{names} are PEM text: set {options.name('keystore_type')}=PEM")
        if options.keystore_location is not None:
            raise SettingsError(f"{names} cannot be combined with {options.name('keystore_location')}")
        return _pem_entry(names, key.encode(), chain.encode(), options)
    path = options.keystore_location
    if path is None:
        return None
    place = f"{options.name('keystore_location')}={path}"
    data = _read(place, path, read)
    if store_type == "PEM":
        return _pem_entry(place, data, data, options)
    loaded = _pkcs12(place, path, data, options.keystore_password, options.name("keystore_password"))
    if loaded.key is None or loaded.cert is None:
        raise SettingsError(f"{place}: the file contains no private key with a certificate")
    own = loaded.cert.certificate
    others = [each.certificate for each in loaded.additional_certs]
    return KeyEntry(_check_type(place, loaded.key), (own, *_chain_of(own, others)))


def load_trusted(options: TlsOptions, read: Read = read_file) -> tuple[x509.Certificate, ...] | None:
    """Return the certificates of the trust store; None if none is configured and the system's certificates are used.

    :raise SettingsError: as for ``load_key``, or the trust store contains no certificate.
    """
    text = options.truststore_certificates
    store_type = _store_type(options, "truststore_type", options.truststore_type)
    if text is not None:
        name = options.name("truststore_certificates")
        if store_type != "PEM":
            raise SettingsError(f"{name} is PEM text: set {options.name('truststore_type')}=PEM")
        if options.truststore_location is not None:
            raise SettingsError(f"{name} cannot be combined with {options.name('truststore_location')}")
        return _pem_certificates(name, text.encode())
    path = options.truststore_location
    if path is None:
        return None
    place = f"{options.name('truststore_location')}={path}"
    data = _read(place, path, read)
    if store_type == "PEM":
        return _pem_certificates(place, data)
    loaded = _pkcs12(place, path, data, options.truststore_password, options.name("truststore_password"))
    found = tuple(each.certificate for each in loaded.additional_certs)
    if loaded.cert is not None:
        found = (loaded.cert.certificate, *found)
    if not found:
        raise SettingsError(f"{place}: the file contains no certificate")
    return found


def _store_type(options: TlsOptions, attribute: str, value: str) -> str:
    store_type = value.upper()
    if store_type not in _TYPES:
        raise SettingsError(f"{options.name(attribute)}={value}: the types are PEM, PKCS12 and JKS")
    return store_type


def _read(place: str, path: str, read: Read) -> bytes:
    try:
        return read(path)
    except OSError as error:
        raise SettingsError(f"{place} cannot be read: {error.strerror or error}") from None


def _pem_entry(place: str, key: bytes, chain: bytes, options: TlsOptions) -> KeyEntry:
    if _KEY_END not in key:
        raise SettingsError(f"{place}: there is no PEM private key")
    password = options.key_password
    encoded = None if password is None else password.encode()
    block = key[key.index(b"-----BEGIN", max(0, key.index(_KEY_END) - 40)) :] if b"-----BEGIN" in key else key
    try:
        loaded = load_pem_private_key(block, encoded)
    except TypeError:
        name = options.name("key_password")
        needs = f"is encrypted: set {name}" if password is None else f"is not encrypted: remove {name}"
        raise SettingsError(f"{place}: the private key {needs}") from None
    except ValueError:
        name = options.name("key_password")
        reason = "cannot be read" if password is None else f"cannot be read: check {name}"
        raise SettingsError(f"{place}: the private key {reason}") from None
    certificates = _pem_certificates(place, chain)
    if loaded.public_key() != certificates[0].public_key():
        raise SettingsError(f"{place}: the private key does not belong to the first certificate")
    return KeyEntry(_check_type(place, loaded), certificates)


def _check_type(place: str, key: object) -> Key:
    if not isinstance(key, Key):
        raise SettingsError(f"{place}: the type of the private key is not RSA, EC, Ed25519 or Ed448")
    return key


def _pem_certificates(place: str, data: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(data))
    except ValueError:
        raise SettingsError(f"{place}: there is no valid PEM certificate") from None


def _pkcs12(place: str, path: str, data: bytes, password: str | None, name: str) -> pkcs12.PKCS12KeyAndCertificates:
    if data[:4] in _JKS_MAGIC:
        target = f"{path.removesuffix('.jks')}.p12"
        raise SettingsError(
            f"{place}: the file is in Java's own JKS format, which only Java reads. Convert it with "
            f"`keytool -importkeystore -srckeystore {path} -destkeystore {target} -deststoretype PKCS12`, and set "
            f"the location to {target} and the type to PKCS12"
        )
    if b"-----BEGIN" in data[:1000]:
        raise SettingsError(f"{place}: the file is in PEM format: set the store's type to PEM")
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        advice = f"check {name}" if password else f"set {name} if it has a password"
        raise SettingsError(f"{place}: the file cannot be read as PKCS12: {advice}") from None


def _chain_of(own: x509.Certificate, others: Iterable[x509.Certificate]) -> Iterable[x509.Certificate]:
    """Return the issuers of a certificate, in order."""
    by_subject = {each.subject: each for each in others}
    current = own
    while current.issuer != current.subject and current.issuer in by_subject:
        current = by_subject.pop(current.issuer)
        yield current
