"""Connections secured according to a Java client's configuration."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import replace

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kreplica.blocking.blocking_runtime import BlockingRuntime, default_runtime, tcp_socket, tls_sockets
from kreplica.blocking.token_login import BlockingLoginIo
from kreplica.errors import SettingsError
from kreplica.security.client_config import parse_client_config
from kreplica.security.oauth.login import TokenLogin
from kreplica.security.oauth.login_options import LoginOptions
from kreplica.security.tls.options import TlsOptions
from kreplica.security.tls.stores import KeyEntry, load_key, load_trusted

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def secured_runtime(config: Mapping[str, str]) -> BlockingRuntime:
    """Return a runtime whose connections are secured.

    :param config: see ``kreplica.client.secured_endpoints``; ``ssl.cipher.suites`` is not supported.
    :raise SettingsError: a setting is unknown or invalid, or a file cannot be read.
    """
    security = parse_client_config(config)
    connect = tcp_socket if security.tls is None else tls_sockets(_context(security.tls))
    sasl = security.sasl
    if not isinstance(sasl, LoginOptions):
        return default_runtime(connect=connect, sasl=sasl)
    is_secure = sasl.url is not None and sasl.url.is_secure
    runtime = default_runtime(connect=connect)
    io = BlockingLoginIo(runtime, sasl, _context(sasl.tls) if is_secure else None)
    return replace(runtime, sasl=TokenLogin(sasl, io))


def _context(options: TlsOptions) -> ssl.SSLContext:
    if options.cipher_suites:
        raise SettingsError("ssl.cipher.suites is not supported by the blocking client: remove it")
    unknown = [name for name in options.enabled_protocols if name not in _VERSIONS]
    if unknown or not options.enabled_protocols:
        configured = ",".join(options.enabled_protocols)
        raise SettingsError(f"ssl.enabled.protocols={configured}: the protocols are {', '.join(_VERSIONS)}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[min(options.enabled_protocols)]
    context.maximum_version = _VERSIONS[max(options.enabled_protocols)]
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # like Java, also trust a certificate that is not a root
    context.check_hostname = options.endpoint_identification_algorithm.lower() == "https"
    trusted = load_trusted(options)
    if trusted is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata="".join(each.public_bytes(Encoding.PEM).decode() for each in trusted))
    entry = load_key(options)
    if entry is not None:
        _load_key(context, entry)
    return context


def _load_key(context: ssl.SSLContext, entry: KeyEntry) -> None:
    key = entry.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # The module ssl loads keys only from files; only the owner can read this file, which is deleted immediately.
    with tempfile.NamedTemporaryFile(prefix="kreplica-") as file:
        file.write(key + b"".join(each.public_bytes(Encoding.PEM) for each in entry.chain))
        file.flush()
        context.load_cert_chain(file.name)
