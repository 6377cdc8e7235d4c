"""Settings of the embedded ZooKeeper server, read from the file of ``twistd kreplica coordinator --config FILE``."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import LIST, LOW, MEDIUM, PASSWORD, READ_ONLY, STRING
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, EachOneOf, OneOf

PREFIX = "kreplica.coordinator."
_STORE_TYPES = OneOf(("", "PEM", "PKCS12", "JKS"), ignore_case=True)

ZOOKEEPER_SERVER = (
    Setting(
        f"{PREFIX}anonymous.clients", STRING, "local", OneOf(("none", "local", "all")), MEDIUM, READ_ONLY,
        "Clients that need not authenticate with SASL or a certificate: none, local (those on a loopback address), or "
        "all. If other machines can connect and have no way to authenticate, the server starts only with all.",
    ),
    Setting(
        f"{PREFIX}sasl.jaas.config", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The users of SASL DIGEST-MD5: org.apache.zookeeper.server.auth.DigestLoginModule required user_NAME=\"...\"; "
        "as in the Server section of ZooKeeper's JAAS file.",
    ),
    Setting(
        f"{PREFIX}ssl.cipher.suites", LIST, (), ANY, LOW, READ_ONLY,
        "The TLS cipher suites, by their IANA or OpenSSL names; empty means OpenSSL's default.",
    ),
    Setting(
        f"{PREFIX}ssl.client.auth", STRING, "required", OneOf(("required", "requested", "none")), MEDIUM, READ_ONLY,
        "Whether clients with TLS must have a certificate (required), may have one (requested), or need not "
        "(none). The subject of the certificate is an identity for ACLs (x509).",
    ),
    Setting(
        f"{PREFIX}ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), EachOneOf(("TLSv1.2", "TLSv1.3")), MEDIUM,
        READ_ONLY,
        "The TLS versions: TLSv1.2, TLSv1.3 or both.",
    ),
    Setting(
        f"{PREFIX}ssl.keystore.location", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The file with the private key and the certificate chain. A changed file is read again when a client connects.",
    ),
    Setting(
        f"{PREFIX}ssl.keystore.password", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The password of the key store, and of the private key in it.",
    ),
    Setting(
        f"{PREFIX}ssl.keystore.type", STRING, None, _STORE_TYPES, MEDIUM, READ_ONLY,
        "The format of the key store: PEM or PKCS12; by default, the file's extension determines it (.pem, .p12).",
    ),
    Setting(
        f"{PREFIX}ssl.listener", STRING, "", ANY, MEDIUM, READ_ONLY,
        "The address of a second listener, with TLS, as host:port; without it, TLS is disabled.",
    ),
    Setting(
        f"{PREFIX}ssl.truststore.location", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The file with the certificates of the authorities that sign client certificates; the operating system's if it "
        "is not set.",
    ),
    Setting(
        f"{PREFIX}ssl.truststore.password", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The password of a trust store in PKCS12.",
    ),
    Setting(
        f"{PREFIX}ssl.truststore.type", STRING, None, _STORE_TYPES, MEDIUM, READ_ONLY,
        "The format of the trust store: PEM or PKCS12; by default, the file's extension determines it.",
    ),
)
"""Encryption and authentication of the embedded ZooKeeper server."""
