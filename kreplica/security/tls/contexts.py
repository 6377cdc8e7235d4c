"""OpenSSL contexts for listeners and clients, and the verification of servers by clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

from cryptography import x509
from OpenSSL import SSL, crypto
from service_identity import CertificateError, VerificationError
from service_identity.cryptography import verify_certificate_hostname, verify_certificate_ip_address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from zope.interface import implementer

from kreplica.errors import SettingsError
from kreplica.security.tls.distinguished_names import rfc2253
from kreplica.security.tls.options import PROTOCOLS, TlsOptions
from kreplica.security.tls.stores import KeyEntry, Read, load_key, load_trusted, read_file

_VERSIONS = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}
_CLIENT_AUTH = {
    "none": SSL.VERIFY_NONE,
    "requested": SSL.VERIFY_PEER,
    "required": SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
}
_IANA_PREFIX = "TLS_"
_TLS13 = ("TLS_AES_", "TLS_CHACHA20_")
_SESSION_ID = b"kreplica"
_VERIFY_ERRORS = {
    7: "the signature was not made by the certificate authority in the trust store",
    9: "the certificate is not valid yet",
    10: "the certificate has expired",
    18: "the certificate is self-signed and not in the trust store",
    19: "the certificate authority is not in the trust store",
    20: "the certificate authority is not in the trust store",
    21: "the server did not send a chain that leads to a certificate in the trust store",
}
"""Reasons, by OpenSSL's verification error (X509_V_ERR_*)."""


class ServerTls(NamedTuple):
    """The current TLS of a server.

    :param certificates: the server's certificate and its issuers, in this order.
    :param client: TLS of the connections that this server opens to its peers; None if it opens none.
    """

    context: SSL.Context
    certificates: Sequence[x509.Certificate]
    client: ClientTls | None = None


def load_server_tls(options: TlsOptions, read: Read = read_file) -> ServerTls:
    """Return the TLS of a listener.

    :raise SettingsError: the settings or files are invalid; the message names the setting and the file.
    """
    entry = load_key(options, read)
    if entry is None:
        raise SettingsError(
            f"{options.name('keystore_location')} is not set: a listener with TLS needs a key and a certificate; "
            "`kreplica tls dev-ca` makes some for tests"
        )
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    _configure(context, options)
    _use_key(context, entry)
    mode = _CLIENT_AUTH[options.client_auth]
    context.set_session_id(_SESSION_ID)
    context.set_verify(mode, _accept_verified)
    if mode != SSL.VERIFY_NONE:
        trusted = load_trusted(options, read)
        if trusted is None:
            context.set_default_verify_paths()
        else:
            _trust(context, trusted)
            for certificate in trusted:
                context.add_client_ca(certificate)
    return ServerTls(context, entry.chain)


class ClientTls:
    """TLS of a client; creates one ``HostVerification`` per connection.

    :raise SettingsError: the settings or files are invalid; the message names the setting and the file.
    """

    def __init__(self, options: TlsOptions, read: Read = read_file) -> None:
        algorithm = options.endpoint_identification_algorithm.lower()
        if algorithm not in ("https", ""):
            name = options.name("endpoint_identification_algorithm")
            raise SettingsError(f"{name}={algorithm}: use https, or an empty value to accept a certificate of any host")
        self._verifies_host = algorithm == "https"
        entry, trusted = load_key(options, read), load_trusted(options, read)
        self._context = context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        _configure(context, options)
        if entry is not None:
            _use_key(context, entry)
        if trusted is None:
            context.set_default_verify_paths()
        else:
            _trust(context, trusted)

    def creator(self, host: str, *, verifies_host: bool = True) -> HostVerification:
        """Return the object that creates and verifies one connection to a host.

        :param verifies_host: False to accept a certificate of any host, regardless of the options.
        """
        return HostVerification(self._context, host, verifies_host=verifies_host and self._verifies_host)

    def replace(self, other: ClientTls) -> None:
        """Use another object's certificates and options for new connections."""
        self._context, self._verifies_host = other._context, other._verifies_host


@implementer(IOpenSSLClientConnectionCreator)
class HostVerification:
    """Creates the TLS connection to a host and verifies its certificate.

    :ivar certificate_error: reason why the host's certificate was rejected; None if it was not.
    """

    def __init__(self, context: SSL.Context, host: str, *, verifies_host: bool) -> None:
        self._context = context
        self._host = host
        self._verifies_host = verifies_host
        self.certificate_error: str | None = None

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        connection = SSL.Connection(self._context, None)
        connection.set_verify(SSL.VERIFY_PEER, self._verify)
        if not _is_address(self._host):
            connection.set_tlsext_host_name(self._host.encode("idna"))
        return connection

    def _verify(self, _: SSL.Connection, presented: crypto.X509, error: int, depth: int, is_valid: int) -> bool:
        """Return True if a certificate in the chain is acceptable; the host's own certificate has depth 0."""
        certificate = presented.to_cryptography()
        subject = rfc2253(certificate.subject)
        if not is_valid:
            self.certificate_error = f"{subject}: {_VERIFY_ERRORS.get(error, f'OpenSSL verification error {error}')}"
            return False
        if depth or not self._verifies_host:
            return True
        verify = verify_certificate_ip_address if _is_address(self._host) else verify_certificate_hostname
        try:
            verify(certificate, self._host)
        except (VerificationError, CertificateError):
            self.certificate_error = f"the certificate of {subject} is not valid for the host {self._host}"
            return False
        return True


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _trust(context: SSL.Context, certificates: Iterable[x509.Certificate]) -> None:
    store = context.get_cert_store()
    assert store is not None, "every context has a store"
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)  # as in Java, a trusted certificate need not be a root
    for certificate in certificates:
        store.add_cert(crypto.X509.from_cryptography(certificate))


def _accept_verified(connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, is_ok: int) -> bool:
    return bool(is_ok)


def _use_key(context: SSL.Context, entry: KeyEntry) -> None:
    own, *others = entry.chain
    context.use_certificate(own)
    for each in others:
        context.add_extra_chain_cert(each)
    context.use_privatekey(entry.key)


def _configure(context: SSL.Context, options: TlsOptions) -> None:
    """Set the protocols and cipher suites."""
    unknown = [name for name in options.enabled_protocols if name not in PROTOCOLS]
    if unknown or not options.enabled_protocols:
        raise SettingsError(
            f"{options.name('enabled_protocols')}={','.join(options.enabled_protocols)}: "
            f"the protocols are {', '.join(PROTOCOLS)}"
        )
    enabled = sorted(options.enabled_protocols)
    context.set_min_proto_version(_VERSIONS[enabled[0]])
    context.set_max_proto_version(_VERSIONS[enabled[-1]])
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE | SSL.OP_NO_RENEGOTIATION)
    suites = list(options.cipher_suites)
    if suites:
        _set_ciphers(context, options, suites)


def _set_ciphers(context: SSL.Context, options: TlsOptions, suites: list[str]) -> None:
    newer = [name for name in suites if name.startswith(_TLS13)]
    older = [openssl_name(name) for name in suites if not name.startswith(_TLS13)]
    try:
        if older:
            context.set_cipher_list(":".join(older).encode())
        if newer:
            context.set_tls13_ciphersuites(":".join(newer).encode())
    except SSL.Error:
        raise SettingsError(
            f"{options.name('cipher_suites')}={','.join(suites)}: OpenSSL supports none of these suites"
        ) from None


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name for the IANA name of a TLS 1.2 cipher suite; other names are returned unchanged."""
    if not suite.startswith(_IANA_PREFIX):
        return suite
    name = suite.removeprefix(_IANA_PREFIX).replace("_WITH_", "_")
    name = name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC_", "_")
    return name.removeprefix("RSA_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_", "-")
