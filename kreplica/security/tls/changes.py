"""Rules for changing a listener's certificates at run time, as in Kafka (KIP-226, KIP-978)."""

from __future__ import annotations

from cryptography import x509

from kreplica.errors import SettingsError
from kreplica.security.tls.contexts import ServerTls
from kreplica.security.tls.distinguished_names import rfc2253
from kreplica.security.tls.handshakes import handshake_failure
from kreplica.security.tls.options import TlsOptions


def check_change(old_options: TlsOptions, old: ServerTls, options: TlsOptions, new: ServerTls) -> None:
    """Check that a listener may change to new certificates.

    If the servers connect to each other, the old trust store must accept the new certificate, and the new trust store
    must accept the old one, so that servers with old settings and servers with new settings can connect.

    :raise SettingsError: the change is not allowed; the message names the setting.
    """
    if options.has_truststore and not old_options.has_truststore:
        raise SettingsError(
            f"{options.truststore_name}: a trust store cannot be added at run time to a listener that has none"
        )
    _check_names(options, old.certificates[0], new.certificates[0])
    if old.client is not None and new.client is not None:
        _check_trust(options, old, new)


def _check_names(options: TlsOptions, old: x509.Certificate, new: x509.Certificate) -> None:
    if old.subject != new.subject and not options.allow_dn_changes:
        raise SettingsError(
            f"{options.keystore_name}: the distinguished name of the certificate would change from "
            f"{rfc2253(old.subject)} to {rfc2253(new.subject)}; {options.name('allow_dn_changes')}=true in the "
            "broker's file allows it"
        )
    missing = _alternative_names(old) - _alternative_names(new)
    if missing and not options.allow_san_changes:
        raise SettingsError(
            f"{options.keystore_name}: the certificate is no longer valid for {', '.join(sorted(missing))}; "
            f"{options.name('allow_san_changes')}=true in the broker's file allows it"
        )


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in extension.value}


def _check_trust(options: TlsOptions, old: ServerTls, new: ServerTls) -> None:
    for server, client in ((old, new), (new, old)):
        assert client.client is not None
        failure = handshake_failure(server.context, client.client)
        if failure is None:
            continue
        # The rejected certificate is the server's if the client failed, otherwise the client's.
        if (server if failure.at_client else client) is new:
            raise SettingsError(
                f"{options.keystore_name}: the brokers' current trust store does not trust the new certificate: "
                f"{failure.reason}. First add its certificate authority to the trust store of each broker"
            )
        raise SettingsError(
            f"{options.truststore_name}: the new trust store does not trust the brokers' current certificate: "
            f"{failure.reason}. Keep its certificate authority until all brokers have new certificates"
        )
