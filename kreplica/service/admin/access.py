"""Builds the admin API's access control from the settings and the files that they name.

``kreplica.settings.consistency`` requires a token for a listener that other machines can reach.
"""

from __future__ import annotations

import socket

from kreplica.admin.http.access import LOOPBACK_NAMES, Access
from kreplica.admin.http.callers import Authorizer
from kreplica.admin.security.failures import FailureLimit
from kreplica.admin.security.guard import CertificateUser, Guard
from kreplica.admin.security.passwords import Credentials, PasswordVerifier
from kreplica.admin.security.sessions import Sessions
from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk
from kreplica.security.sasl.bearer_token import TokenValidator
from kreplica.settings.broker_settings import BrokerSettings

TOKEN = "kreplica.admin.token.file"
CERTIFICATE = "kreplica.admin.tls.certificate.file"
AUTHENTICATION = "kreplica.admin.authentication"

WILDCARDS = ("", "0.0.0.0", "::")

TOKEN_LENGTH_MIN = 16



def admin_access(settings: BrokerSettings, host: str) -> Access:
    """Return an admin listener's access rules, which apply to all requests.

    :param host: the address to listen on.
    """
    modes, names = settings[AUTHENTICATION], settings["kreplica.admin.hosts"]
    if settings[TOKEN] and not set(modes) - {"token"} and not names:
        # A page that uses DNS rebinding does not have the token, so any host name can be accepted.
        return Access(hosts=None)
    own = [endpoint.host for endpoint in settings.advertised_listeners if endpoint.host]
    hosts = (*LOOPBACK_NAMES, host, *own, socket.gethostname(), *names)
    known = tuple(dict.fromkeys(each.lower() for each in hosts if each not in WILDCARDS))
    return Access(hosts=known, accepts_addresses=host not in LOOPBACK_NAMES)


def admin_token(disk: Disk, settings: BrokerSettings) -> bytes | None:
    """Return the token of the admin API; None if none is configured.

    :raise SettingsError: the token file cannot be read, or does not contain exactly one ASCII token of at least the
        minimum length.
    """
    path: str = settings[TOKEN]
    if not path:
        return None
    token = read_file(disk, TOKEN, path).strip()
    if len(token) < TOKEN_LENGTH_MIN or not token.isascii() or len(token.split()) != 1:
        raise SettingsError(
            f"{TOKEN}: {path} must contain one token of at least {TOKEN_LENGTH_MIN} characters, such as the "
            "output of `openssl rand -hex 32`"
        )
    return token


def admin_guard(
    runtime: Runtime,
    settings: BrokerSettings,
    token: bytes | None,
    credentials: Credentials,
    authorizer: Authorizer | None,
    bearer_tokens: TokenValidator | None = None,
) -> Guard:
    """Return the authentication and authorization of an admin listener.

    :param credentials: the SCRAM credentials of all users.
    :param authorizer: None if every authenticated caller may do everything.
    :param bearer_tokens: None if tokens from an authorization server are not accepted.
    :raise SettingsError: the rules that map certificates to users are invalid.
    """
    if token is None:
        return Guard(authorizer=authorizer)
    modes, seconds = settings[AUTHENTICATION], runtime.reactor.seconds
    passwords = PasswordVerifier(credentials, runtime.offload, seconds) if "basic" in modes else None
    is_secure = bool(settings[CERTIFICATE])
    # Browsers accept a cookie with this prefix only over TLS and only from this host.
    prefix = "__Host-" if is_secure else ""
    sessions = Sessions(
        f"{prefix}kreplica-session-{settings['broker.id']}",
        seconds,
        runtime.wall_clock_ms,
        settings["kreplica.admin.session.ms"] / 1000,
        is_secure=is_secure,
        credentials_of=None if passwords is None else passwords.credentials_of,
    )
    return Guard(
        token=token,
        limit=FailureLimit(seconds),
        passwords=passwords,
        user_of_certificate=_user_of_certificate(settings) if "certificate" in modes else None,
        bearer_tokens=bearer_tokens,
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


def read_file(disk: Disk, name: str, path: str) -> bytes:
    """Return the content of a file.

    :param name: name of the setting, for the error.
    :raise SettingsError: the file cannot be read.
    """
    try:
        return disk.read_file(path)
    except OSError as error:
        raise SettingsError(f"{name}: {path} cannot be read: {error.strerror}") from None
