"""Settings for encryption and authentication of a broker's connection to ZooKeeper."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
    BOOLEAN,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    READ_ONLY,
    STRING,
    Row,
    not_implemented_protection,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, OneOf

_SOCKET_CLASSES = ("org.apache.zookeeper.ClientCnxnSocketNetty", "org.apache.zookeeper.ClientCnxnSocketNIO")
_STORE_TYPES = OneOf(("", "PEM", "PKCS12", "JKS"), ignore_case=True)

ZOOKEEPER_SECURITY = (
    Setting(
        "kreplica.zookeeper.sasl.jaas.config", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The login module for SASL DIGEST-MD5 with ZooKeeper: org.apache.zookeeper.server.auth.DigestLoginModule "
        "required username=\"...\" password=\"...\"; as in the Client section of Kafka's JAAS file.",
    ),
    Setting(
        "zookeeper.clientCnxnSocket", STRING, None, OneOf(("", *_SOCKET_CLASSES)), MEDIUM, READ_ONLY,
        "The Java class that Kafka needs for TLS; accepted, but not needed.",
    ),
    Setting(
        "zookeeper.ssl.cipher.suites", LIST, None, ANY, LOW, READ_ONLY,
        "The cipher suites for connections to ZooKeeper, by their IANA or OpenSSL names.",
    ),
    Setting(
        "zookeeper.ssl.client.enable", BOOLEAN, False, ANY, MEDIUM, READ_ONLY,
        "Whether connections to ZooKeeper use TLS; zookeeper.connect must then contain the servers' secure ports.",
    ),
    Setting(
        "zookeeper.ssl.enabled.protocols", LIST, None, ANY, LOW, READ_ONLY,
        "The TLS versions: TLSv1.2, TLSv1.3 or both; defaults to zookeeper.ssl.protocol.",
    ),
    Setting(
        "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", OneOf(("HTTPS", "https", "")), LOW,
        READ_ONLY,
        "With HTTPS, the broker verifies that a server's certificate is valid for the server's host; with an empty "
        "value, it does not.",
    ),
    Setting(
        "zookeeper.ssl.keystore.location", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The file with the private key and the certificate that authenticate the broker to ZooKeeper.",
    ),
    Setting(
        "zookeeper.ssl.keystore.password", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The password of the key store, and of the private key in it.",
    ),
    Setting(
        "zookeeper.ssl.keystore.type", STRING, None, _STORE_TYPES, MEDIUM, READ_ONLY,
        "The format of the key store: PEM or PKCS12; by default, the file's extension determines it (.pem, .p12). "
        "Files in Java's own JKS format must be converted with keytool.",
    ),
    Setting(
        "zookeeper.ssl.protocol", STRING, "TLSv1.2", OneOf(("TLSv1.2", "TLSv1.3")), LOW, READ_ONLY,
        "The TLS version, if zookeeper.ssl.enabled.protocols is not set.",
    ),
    Setting(
        "zookeeper.ssl.truststore.location", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The file with the certificates that the broker trusts; the operating system's if it is not set.",
    ),
    Setting(
        "zookeeper.ssl.truststore.password", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The password of a trust store in PKCS12.",
    ),
    Setting(
        "zookeeper.ssl.truststore.type", STRING, None, _STORE_TYPES, MEDIUM, READ_ONLY,
        "The format of the trust store: PEM or PKCS12; by default, the file's extension determines it.",
    ),
    *not_implemented_protection(
        "certificates are not checked for revocation",
        Row("zookeeper.ssl.crl.enable", BOOLEAN, False, ANY, LOW, READ_ONLY),
        Row("zookeeper.ssl.ocsp.enable", BOOLEAN, False, ANY, LOW, READ_ONLY),
    ),
)
"""Encryption and authentication of the connection to ZooKeeper."""
