"""Builds the admin API's protection and TLS configuration from the settings and the files that they name.

``kreplica.settings.consistency`` requires a token for a listener that other machines can reach.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from twisted.internet.error import VerifyError
from twisted.web.iweb import IPolicyForHTTPS

from kreplica.admin.http.access import LOOPBACK_NAMES, Access
from kreplica.admin.http.callers import Authorizer
from kreplica.admin.security.failures import FailureLimit
from kreplica.admin.security.guard import CertificateUser, Guard
from kreplica.admin.security.passwords import Credentials, PasswordVerifier
from kreplica.admin.security.sessions import Sessions
from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk
from kreplica.settings.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from twisted.internet.ssl import CertificateOptions

TOKEN = "kreplica.admin.token.file"
CERTIFICATE = "kreplica.admin.tls.certificate.file"
KEY = "kreplica.admin.tls.key.file"
CLIENT_CA = "kreplica.admin.tls.client.ca.file"
AUTHENTICATION = "kreplica.admin.authentication"

WILDCARDS = ("", "0.0.0.0", "::")

TOKEN_LENGTH_MIN = 16

_PEM_HEADER = b"-----BEGIN CERTIFICATE-----"


def admin_access(settings: BrokerSettings, host: str) -> Access:
    """Return the access rules of an admin listener for all requests.

    :param host: the address to listen on.
    """
    modes, names = settings[AUTHENTICATION], settings["kreplica.admin.hosts"]
    if settings[TOKEN] and not set(modes) - {"token"} and not names:
        # A page that uses DNS rebinding does not know the token, so any host name is accepted.
        return Access(hosts=None)
    own = [endpoint.host for endpoint in settings.advertised_listeners if endpoint.host]
    hosts = (*LOOPBACK_NAMES, host, *own, socket.gethostname(), *names)
    known = tuple(dict.fromkeys(each.lower() for each in hosts if each not in WILDCARDS))
    return Access(hosts=known, accepts_addresses=host not in LOOPBACK_NAMES)


def admin_token(disk: Disk, settings: BrokerSettings) -> bytes | None:
    """Return the token of the admin API; None if it has none.

    :raise SettingsError: the token file cannot be read, or does not hold exactly one ASCII token of the minimum length.
    """
    path: str = settings[TOKEN]
    if not path:
        return None
    token = _read(disk, TOKEN, path).strip()
    if len(token) < TOKEN_LENGTH_MIN or not token.isascii() or len(token.split()) != 1:
        raise SettingsError(
            f"{TOKEN}: {path} must hold one token of at least {TOKEN_LENGTH_MIN} characters, such as the "
            "output of `openssl rand -hex 32`"
        )
    return token


def admin_guard(
    runtime: Runtime,
    settings: BrokerSettings,
    token: bytes | None,
    credentials: Credentials,
    authorizer: Authorizer | None,
) -> Guard:
    """Return the authentication and authorization of an admin listener.

    :param credentials: the SCRAM credentials of all users.
    :param authorizer: None if each authenticated caller may do everything.
    :raise SettingsError: the rules for the users of certificates are invalid.
    """
    if token is None:
        return Guard(authorizer=authorizer)
    modes, seconds = settings[AUTHENTICATION], runtime.reactor.seconds
    passwords = PasswordVerifier(credentials, runtime.offload, seconds) if "basic" in modes else None
    sessions = Sessions(
        f"kreplica-session-{settings['broker.id']}",
        seconds,
        runtime.wall_clock_ms,
        settings["kreplica.admin.session.ms"] / 1000,
        is_secure=bool(settings[CERTIFICATE]),
        credentials_of=None if passwords is None else passwords.credentials_of,
    )
    return Guard(
        token=token,
        limit=FailureLimit(seconds),
        passwords=passwords,
        user_of_certificate=_user_of_certificate(settings) if "certificate" in modes else None,
        sessions=sessions,
        authorizer=authorizer,
    )


def _user_of_certificate(settings: BrokerSettings) -> CertificateUser:
    # Imported here because only TLS needs them.
    from kreplica.security.tls.distinguished_names import rfc2253
    from kreplica.security.tls.principal_rules import parse_rules, user_of

    try:
        rules = parse_rules(settings["ssl.principal.mapping.rules"])
    except ValueError as error:
        raise SettingsError(f"ssl.principal.mapping.rules: {error}") from None
    return lambda certificate: user_of(rules, rfc2253(certificate.to_cryptography().subject))


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
        context = options.getContext()
    except (ValueError, SslError, VerifyError) as error:
        raise SettingsError(
            f"{CERTIFICATE}, {KEY}: cannot load a PEM certificate from {settings[CERTIFICATE]} and its key from "
            f"{settings[KEY]}: {error}"
        ) from None
    if "certificate" in settings[AUTHENTICATION]:
        _request_client_certificates(context, disk, settings)
    return options


def _request_client_certificates(context: Any, disk: Disk, settings: BrokerSettings) -> None:
    """Request certificates from clients, which may also authenticate without one.

    :raise SettingsError: the authorities' file cannot be read, or has no certificate.
    """
    from OpenSSL.SSL import VERIFY_PEER
    from OpenSSL.SSL import Error as SslError
    from twisted.internet.ssl import Certificate

    path = settings[CLIENT_CA]
    blocks = _read(disk, CLIENT_CA, path).split(_PEM_HEADER)[1:]
    try:
        authorities = [Certificate.loadPEM(_PEM_HEADER + each).original for each in blocks]
    except (ValueError, SslError) as error:
        raise SettingsError(f"{CLIENT_CA}: {path} is not a PEM file with certificates: {error}") from None
    if not authorities:
        raise SettingsError(f"{CLIENT_CA}: {path} has no PEM certificate")
    for each in authorities:
        context.get_cert_store().add_cert(each)
        context.add_client_ca(each)
    context.set_verify(VERIFY_PEER, lambda connection, certificate, error, depth, is_valid: bool(is_valid))
    context.set_session_id(b"kreplica-admin")  # necessary to resume sessions of clients with certificates


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
