"""A certificate authority that issues certificates to brokers and clients, for development and tests."""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kreplica.errors import SettingsError, reason_of

_CLOCK_SKEW = datetime.timedelta(days=1)


class Authority(NamedTuple):
    """The key and certificate that sign other certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def open_authority(directory: Path, days: int) -> Authority:
    """Return the authority in ``ca.key`` and ``ca.pem``; create the files if neither exists.

    :param days: validity of a new CA certificate.
    :raise SettingsError: the files cannot be read or created.
    """
    key_path, certificate_path = directory / "ca.key", directory / "ca.pem"
    try:
        if not key_path.exists() and not certificate_path.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            key = ec.generate_private_key(ec.SECP256R1())
            # The name is unique, so that verification errors show which CA was used.
            name = _name(f"kreplica development CA {secrets.token_hex(4)}")
            builder = _builder(name, name, key, days).add_extension(
                x509.BasicConstraints(ca=True, path_length=0), critical=True
            )
            authority = Authority(key, builder.sign(key, hashes.SHA256()))
            _write(key_path, _private(key))
            _write(certificate_path, authority.certificate.public_bytes(Encoding.PEM))
            return authority
        loaded = load_pem_private_key(key_path.read_bytes(), None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise SettingsError(f"{key_path}: the key was not created by `kreplica tls dev-ca`")
        return Authority(loaded, x509.load_pem_x509_certificate(certificate_path.read_bytes()))
    except (OSError, ValueError) as error:
        text = f"{directory}: the certificate authority cannot be read or created: {reason_of(error)}"
        raise SettingsError(text) from None


def create_certificate(directory: Path, authority: Authority, name: str, hosts: Sequence[str], days: int) -> Path:
    """Create ``NAME.pem`` with a private key, its certificate and the authority's certificate; return the path.

    :param name: common name of the subject.
    :param hosts: names and IP addresses for which the certificate is valid; empty for clients.
    :raise SettingsError: the file already exists or cannot be created.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.certificate.subject, key, days)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    certificates = [builder.sign(authority.key, hashes.SHA256()), authority.certificate]
    path = directory / f"{name}.pem"
    try:
        _write(path, _private(key) + b"".join(each.public_bytes(Encoding.PEM) for each in certificates))
    except OSError as error:
        raise SettingsError(f"{path} cannot be created: {error.strerror}") from None
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, data: bytes) -> None:
    """Create a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
