"""Kafka's security settings.  Settings of features that are not implemented accept only their default."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
    AT_START,
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    STRING,
    Row,
    not_implemented,
    not_implemented_protection,
)
from kreplica.settings.definitions.oauth import OAUTH, OAUTH_LOGIN, OAUTH_VALIDATION
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, OneOf, at_least, between

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
KEY_FACTORIES = tuple(f"PBKDF2WithHmacSHA{bits}" for bits in (1, 224, 256, 384, 512))
PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

SECURITY = (
    Setting(
        "ssl.cipher.suites", LIST, (), ANY, MEDIUM, AT_START,
        "The TLS cipher suites, by their IANA or OpenSSL names; empty means OpenSSL's default.",
    ),
    Setting(
        "ssl.client.auth", STRING, "none", OneOf(("required", "requested", "none")), MEDIUM, AT_START,
        "Whether clients must have a certificate (required), may have one (requested), or need not (none).",
    ),
    Setting(
        "ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), ANY, MEDIUM, AT_START,
        "The TLS versions: TLSv1.2, TLSv1.3 or both.",
    ),
    Setting(
        "ssl.endpoint.identification.algorithm", STRING, "https", OneOf(("https", "HTTPS", "")), LOW, AT_START,
        "With https, the broker verifies that the certificate of another broker is valid for its host; with an "
        "empty value, it does not.",
    ),
    Setting(
        "ssl.key.password", PASSWORD, None, ANY, MEDIUM, PER_BROKER,
        "The password of the private key in PEM; for a key in PKCS12, the password of the key store is used.",
    ),
    Setting(
        "ssl.keystore.certificate.chain", PASSWORD, None, ANY, MEDIUM, PER_BROKER,
        "The certificate chain in PEM, the broker's own certificate first; an alternative to ssl.keystore.location.",
    ),
    Setting(
        "ssl.keystore.key", PASSWORD, None, ANY, MEDIUM, PER_BROKER,
        "The private key in PEM; needs ssl.keystore.certificate.chain.",
    ),
    Setting(
        "ssl.keystore.location", STRING, None, ANY, MEDIUM, PER_BROKER,
        "The file with the private key and the certificate chain. A changed file is read again when a client connects.",
    ),
    Setting(
        "ssl.keystore.password", PASSWORD, None, ANY, MEDIUM, PER_BROKER,
        "The password of a key store in PKCS12.",
    ),
    Setting(
        "ssl.keystore.type", STRING, "JKS", ANY, MEDIUM, PER_BROKER,
        "The format of the key store: PEM or PKCS12. Files in Java's own JKS format must be converted with keytool.",
    ),
    Setting(
        "ssl.principal.mapping.rules", STRING, "DEFAULT", ANY, LOW, AT_START,
        "Comma-separated rules, RULE:pattern/replacement/[LU], that convert the distinguished name of a client's "
        "certificate to a user name; DEFAULT uses the whole name (KIP-371).",
    ),
    Setting(
        "ssl.truststore.certificates", PASSWORD, None, ANY, MEDIUM, PER_BROKER,
        "The trusted certificates in PEM; an alternative to ssl.truststore.location.",
    ),
    Setting(
        "ssl.truststore.location", STRING, None, ANY, MEDIUM, PER_BROKER,
        "The file with the trusted certificates; the operating system's if it is not set. A changed file is read again "
        "when a client connects.",
    ),
    Setting(
        "ssl.truststore.password", PASSWORD, None, ANY, MEDIUM, PER_BROKER,
        "The password of a trust store in PKCS12.",
    ),
    Setting(
        "ssl.truststore.type", STRING, "JKS", ANY, MEDIUM, PER_BROKER,
        "The format of the trust store: PEM or PKCS12.",
    ),
    *not_implemented(
        "OpenSSL, not a Java security provider, implements TLS",
        Row("ssl.keymanager.algorithm", STRING, "SunX509", ANY, MEDIUM, READ_ONLY),
        Row("ssl.provider", STRING, None, ANY, MEDIUM, READ_ONLY),
        Row("ssl.secure.random.implementation", STRING, None, ANY, LOW, READ_ONLY),
        Row("ssl.trustmanager.algorithm", STRING, "PKIX", ANY, MEDIUM, READ_ONLY),
    ),
    *not_implemented(
        "ssl.enabled.protocols determines the TLS versions",
        Row("ssl.protocol", STRING, "TLSv1.3", ANY, MEDIUM, READ_ONLY),
    ),
    Setting(
        "ssl.allow.dn.changes", BOOLEAN, False, ANY, LOW, AT_START,
        "Whether a dynamic change of the key store may change the certificate's distinguished name. After a change to "
        "the file itself, the certificate may have any name.",
    ),
    Setting(
        "ssl.allow.san.changes", BOOLEAN, False, ANY, LOW, AT_START,
        "Whether a dynamic change of the key store may remove host names and addresses from the certificate. After a "
        "change to the file itself, the certificate may have any host names and addresses.",
    ),
    *not_implemented_protection(
        "Java classes cannot be loaded",
        Row("ssl.engine.factory.class", CLASS, None, ANY, LOW, PER_BROKER),
        Row("security.providers", STRING, None, ANY, LOW, READ_ONLY),
    ),
    Setting(
        "connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW, READ_ONLY,
        "How long the response to a failed authentication is delayed.",
    ),
    Setting(
        "connections.max.reauth.ms", LONG, 0, at_least(0), MEDIUM, READ_ONLY,
        "How long an authenticated session lasts before the client must authenticate again (KIP-368). 0 means "
        "unlimited.",
    ),
    Setting(
        "sasl.enabled.mechanisms", LIST, ("GSSAPI",), ANY, MEDIUM, AT_START,
        "The SASL mechanisms of listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and those of plugins. "
        "GSSAPI is not supported, so this setting is necessary for listeners with SASL.",
    ),
    Setting(
        "sasl.jaas.config", PASSWORD, None, ANY, MEDIUM, AT_START,
        "The login module of a listener's mechanism; requires the prefix listener.name.LISTENER.MECHANISM. in lower "
        "case. Options: username and password for connections to other brokers, clientId and clientSecret for "
        "OAUTHBEARER; for PLAIN, user_NAME is the password of NAME.",
    ),
    Setting(
        "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", ANY, MEDIUM, AT_START,
        "The SASL mechanism for connections between brokers.",
    ),
    *OAUTH,
    Setting(
        "sasl.server.max.receive.size", INT, 524_288, at_least(1), MEDIUM, READ_ONLY,
        "The maximum size of a request from a client that has not authenticated yet.",
    ),
    *not_implemented_protection(
        "only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are supported, without Java classes",
        Row("sasl.client.callback.handler.class", CLASS, None, ANY, MEDIUM, READ_ONLY),
        Row("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", ANY, MEDIUM, PER_BROKER),
        Row("sasl.kerberos.min.time.before.relogin", LONG, 60_000, ANY, MEDIUM, PER_BROKER),
        Row("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), ANY, MEDIUM, PER_BROKER),
        Row("sasl.kerberos.service.name", STRING, None, ANY, MEDIUM, PER_BROKER),
        Row("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, ANY, MEDIUM, PER_BROKER),
        Row("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, ANY, MEDIUM, PER_BROKER),
        Row("sasl.login.class", CLASS, None, ANY, MEDIUM, READ_ONLY),
        Row("sasl.mechanism.controller.protocol", STRING, "GSSAPI", ANY, HIGH, READ_ONLY),
        Row(
            "principal.builder.class", CLASS, PRINCIPAL_BUILDER, ANY, MEDIUM, PER_BROKER,
        ),
    ),
    Setting(
        "allow.everyone.if.no.acl.found", BOOLEAN, False, ANY, MEDIUM, READ_ONLY,
        "Whether a resource without ACLs may be used by everyone; has no effect without authorizer.class.name.",
        listed=False,
    ),
    Setting(
        "authorizer.class.name", STRING, "", OneOf(("", ACL_AUTHORIZER)), LOW, READ_ONLY,
        "kafka.security.authorizer.AclAuthorizer authorizes each request with the ACLs in ZooKeeper; empty allows all "
        "requests, unless kreplica.authorizer is set.",
    ),
    Setting(
        "super.users", STRING, None, ANY, MEDIUM, READ_ONLY,
        "Principals that may do everything, separated by semicolons: User:admin;User:broker. With an authorizer, the "
        "brokers' own users must be among them, or have ACLs for ClusterAction.",
        listed=False,
    ),
    Setting(
        "delegation.token.secret.key", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The secret from which the secrets of delegation tokens are computed (KIP-48); it must be the same on all "
        "brokers. Without it, delegation tokens are disabled.",
    ),
    Setting(
        "delegation.token.master.key", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The former name of delegation.token.secret.key, used if the current name is not set.",
    ),
    Setting(
        "delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1), MEDIUM, READ_ONLY,
        "The maximum lifetime of a delegation token, after which it cannot be renewed.",
    ),
    Setting(
        "delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1), MEDIUM, READ_ONLY,
        "How long a delegation token is valid after its creation, and after each renewal.",
    ),
    Setting(
        "delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW, READ_ONLY,
        "How often the controller removes expired delegation tokens.",
    ),
    Setting(
        "password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding",
        OneOf(("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding")), LOW, READ_ONLY,
        "The cipher of passwords in dynamic settings.",
    ),
    Setting(
        "password.encoder.iterations", INT, 4096, between(1024, 1_000_000), LOW, READ_ONLY,
        "The number of iterations used to derive the key from password.encoder.secret.",
    ),
    Setting(
        "password.encoder.key.length", INT, 128, between(128, 256), LOW, READ_ONLY,
        "The length in bits of the key derived from password.encoder.secret: 128, 192 or 256.",
    ),
    Setting(
        "password.encoder.keyfactory.algorithm", STRING, None, OneOf(KEY_FACTORIES), LOW, READ_ONLY,
        "The function that derives a key from password.encoder.secret; PBKDF2WithHmacSHA512 if it is not set.",
    ),
    Setting(
        "password.encoder.old.secret", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The previous value of password.encoder.secret; when the broker starts, it uses this value to decrypt its "
        "passwords in ZooKeeper, and encrypts them with the current one.",
    ),
    Setting(
        "password.encoder.secret", PASSWORD, None, ANY, MEDIUM, READ_ONLY,
        "The secret that encrypts passwords of dynamic settings in ZooKeeper. Without it, dynamic settings "
        "cannot contain passwords or PEM text.",
    ),
)
"""Encryption, authentication and authorization."""

TLS_SETTINGS = tuple(each.name for each in SECURITY if each.name.startswith("ssl.") and each.implemented)
"""TLS settings."""

DYNAMIC_TLS_SETTINGS = tuple(name for name in TLS_SETTINGS if "store." in name or name == "ssl.key.password")
"""TLS settings that can change at run time, but only for individual listeners."""

PER_LISTENER = (
    *TLS_SETTINGS,
    *OAUTH_LOGIN,
    *OAUTH_VALIDATION,
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
)
"""Settings that ``listener.name.L.`` can set for one listener."""

PER_MECHANISM = ("sasl.jaas.config", *OAUTH_LOGIN, *OAUTH_VALIDATION)
"""Settings that ``listener.name.L.M.`` can set for one mechanism of one listener."""
