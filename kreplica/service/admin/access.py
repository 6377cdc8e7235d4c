"""Builds the admin API's access rules and TLS configuration from the files that the settings name.

``kreplica.settings.consistency`` requires a token for a listener that other machines can reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.error import VerifyError
from twisted.web.iweb import IPolicyForHTTPS

from kreplica.admin.http.access import LOOPBACK_NAMES, Access
from kreplica.errors import SettingsError
from kreplica.runtime.disk import Disk
from kreplica.settings.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from twisted.internet.ssl import CertificateOptions

TOKEN = "kreplica.admin.token.file"
CERTIFICATE = "kreplica.admin.tls.certificate.file"
KEY = "kreplica.admin.tls.key.file"

TOKEN_LENGTH_MIN = 16

_PEM_HEADER = b"-----BEGIN CERTIFICATE-----"


def admin_access(disk: Disk, settings: BrokerSettings, host: str) -> Access:
    """Return the access rules of an admin listener.

    :raise SettingsError: the token file cannot be read, or does not hold exactly one ASCII token of the minimum length.
    """
    path: str = settings[TOKEN]
    if not path:
        return Access(hosts=tuple(dict.fromkeys((*LOOPBACK_NAMES, host.lower()))))
    token = _read(disk, TOKEN, path).strip()
    if len(token) < TOKEN_LENGTH_MIN or not token.isascii() or len(token.split()) != 1:
        raise SettingsError(
            f"{TOKEN}: {path} must hold one token of at least {TOKEN_LENGTH_MIN} characters, such as the "
            "output of `openssl rand -hex 32`"
        )
    # A page that uses DNS rebinding does not know the token, so any host name is accepted.
    return Access(hosts=None, token=token)


def admin_tls(disk: Disk, settings: BrokerSettings) -> CertificateOptions | None:
    """Return the TLS configuration of the listener; None for plain HTTP.

    :raise SettingsError: the files cannot be read, or do not contain a certificate and its key.
    """
    if not settings[CERTIFICATE]:
        return None
    from OpenSSL.SSL import Error as SslError
    from twisted.internet.ssl import Certificate, CertificateOptions, PrivateCertificate

    certificates = _read(disk, CERTIFICATE, settings[CERTIFICATE])
    key = _read(disk, KEY, settings[KEY])
    blocks = [_PEM_HEADER + each for each in certificates.split(_PEM_HEADER)[1:]]
    if not blocks:
        raise SettingsError(f"{CERTIFICATE}: {settings[CERTIFICATE]} has no PEM certificate")
    own, *chain = blocks
    try:
        pair: Any = PrivateCertificate.loadPEM(own + key)
        options = CertificateOptions(
            privateKey=pair.privateKey.original,
            certificate=pair.original,
            extraCertChain=[Certificate.loadPEM(each).original for each in chain],
        )
        options.getContext()
    except (ValueError, SslError, VerifyError) as error:
        raise SettingsError(
            f"{CERTIFICATE}, {KEY}: cannot load a PEM certificate from {settings[CERTIFICATE]} and its key from "
            f"{settings[KEY]}: {error}"
        ) from None
    return options


def admin_trust(disk: Disk, settings: BrokerSettings) -> IPolicyForHTTPS | None:
    """Return the trust policy for other brokers' admin listeners; None if this broker has no certificate.

    :raise SettingsError: the file cannot be read.
    """
    if not settings[CERTIFICATE]:
        return None
    from twisted.internet.ssl import Certificate

    from kreplica.admin.peers.trust import trusting

    pieces = _read(disk, CERTIFICATE, settings[CERTIFICATE]).split(_PEM_HEADER)[1:]
    return trusting([Certificate.loadPEM(_PEM_HEADER + piece) for piece in pieces])


def _read(disk: Disk, name: str, path: str) -> bytes:
    try:
        return disk.read_file(path)
    except OSError as error:
        raise SettingsError(f"{name}: {path} cannot be read: {error.strerror}") from None
