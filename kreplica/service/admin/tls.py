"""Builds TLS for the admin API from the files that the settings name, and trust in other brokers' certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.error import VerifyError
from twisted.web.iweb import IPolicyForHTTPS

from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk
from kreplica.service.admin.access import AUTHENTICATION, CERTIFICATE, read_file
from kreplica.settings.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from OpenSSL import SSL

    from kreplica.security.tls.contexts import ServerTls
    from kreplica.security.tls.reloading import ReloadedTls

KEY = "kreplica.admin.tls.key.file"
CLIENT_CA = "kreplica.admin.tls.client.ca.file"

_PEM_HEADER = b"-----BEGIN CERTIFICATE-----"


def admin_tls(runtime: Runtime, settings: BrokerSettings) -> ReloadedTls | None:
    """Return the listener's TLS, which reads changed files again; None for plain HTTP.

    :raise SettingsError: see ``load_admin_tls``.
    """
    if not settings[CERTIFICATE]:
        return None
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.reloading import ReloadedTls

    disk = runtime.disk
    files = [settings[name] for name in (CERTIFICATE, KEY, CLIENT_CA) if settings[name]]
    return ReloadedTls(files, lambda: load_admin_tls(disk, settings), runtime.reactor.seconds, runtime.offload.run)


def load_admin_tls(disk: Disk, settings: BrokerSettings) -> ServerTls:
    """Return the listener's TLS.

    :raise SettingsError: the files cannot be read, or do not contain a certificate and its key.
    """
    from OpenSSL.SSL import Error as SslError
    from twisted.internet.ssl import Certificate, CertificateOptions, PrivateCertificate

    from kreplica.security.tls.contexts import ServerTls

    certificates = read_file(disk, CERTIFICATE, settings[CERTIFICATE])
    key = read_file(disk, KEY, settings[KEY])
    blocks = [_PEM_HEADER + each for each in certificates.split(_PEM_HEADER)[1:]]
    if not blocks:
        raise SettingsError(f"{CERTIFICATE}: {settings[CERTIFICATE]} contains no PEM certificate")
    own, *chain = blocks
    try:
        pair: Any = PrivateCertificate.loadPEM(own + key)
        options = CertificateOptions(
            privateKey=pair.privateKey.original,
            certificate=pair.original,
            extraCertChain=[Certificate.loadPEM(each).original for each in chain],
        )
        context: SSL.Context = options.getContext()
        loaded = [each.original.to_cryptography() for each in (pair, *map(Certificate.loadPEM, chain))]
    except (ValueError, SslError, VerifyError) as error:
        raise SettingsError(
            f"{CERTIFICATE}, {KEY}: cannot load a PEM certificate from {settings[CERTIFICATE]} and its key from "
            f"{settings[KEY]}: {error}"
        ) from None
    if "certificate" in settings[AUTHENTICATION]:
        _request_client_certificates(context, disk, settings)
    return ServerTls(context, loaded)


def _request_client_certificates(context: Any, disk: Disk, settings: BrokerSettings) -> None:
    """Request certificates from clients, but allow other ways to authenticate.

    :raise SettingsError: the file of certificate authorities cannot be read, or has no certificate.
    """
    from OpenSSL.SSL import VERIFY_PEER
    from OpenSSL.SSL import Error as SslError
    from twisted.internet.ssl import Certificate

    path = settings[CLIENT_CA]
    blocks = read_file(disk, CLIENT_CA, path).split(_PEM_HEADER)[1:]
    try:
        authorities = [Certificate.loadPEM(_PEM_HEADER + each).original for each in blocks]
    except (ValueError, SslError) as error:
        raise SettingsError(f"{CLIENT_CA}: {path} is not a PEM file with certificates: {error}") from None
    if not authorities:
        raise SettingsError(f"{CLIENT_CA}: {path} contains no PEM certificate")
    for each in authorities:
        context.get_cert_store().add_cert(each)
        context.add_client_ca(each)
    context.set_verify(VERIFY_PEER, lambda connection, certificate, error, depth, is_valid: bool(is_valid))
    context.set_session_id(b"kreplica-admin")  # required to resume sessions of clients with certificates


def admin_trust(disk: Disk, settings: BrokerSettings) -> IPolicyForHTTPS | None:
    """Return the trust policy for other brokers' admin listeners; None if this broker has no certificate.

    :raise SettingsError: the file cannot be read.
    """
    if not settings[CERTIFICATE]:
        return None
    from twisted.internet.ssl import Certificate

    from kreplica.admin.peers.trust import trust_policy

    pieces = read_file(disk, CERTIFICATE, settings[CERTIFICATE]).split(_PEM_HEADER)[1:]
    return trust_policy([Certificate.loadPEM(_PEM_HEADER + piece) for piece in pieces])
