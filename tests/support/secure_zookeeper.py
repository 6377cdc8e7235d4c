"""A real ZooKeeper with SASL DIGEST-MD5, and a second port with TLS."""

from __future__ import annotations

from pathlib import Path

from kreplica.security.tls.development_ca import create_certificate, open_authority
from tests.support.real_zookeeper import RealZooKeeper, free_ports

PASSWORDS = {"alice": "open sesame", "bob": '"quoted"', "jürgen": "grün"}

_JAAS = """\
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="open sesame" user_bob="\\"quoted\\"" user_jürgen="grün";
};
"""


def make_certificates(directory: Path) -> Path:
    """Create a CA with certificates for a server and a client, and another CA; return the directory."""
    authority = open_authority(directory, 10)
    create_certificate(directory, authority, "server", ["127.0.0.1", "localhost"], 10)
    create_certificate(directory, authority, "broker", [], 10)
    open_authority(directory / "other", 10)
    return directory


class SecureZooKeeper:
    """A ZooKeeper with SASL, and a second port with TLS.

    :param certificates: as ``make_certificates`` creates them.
    :param client_auth: ``none``, or ``need`` to require client certificates.
    :ivar tls_address: ``host:port`` of the port with TLS.
    """

    def __init__(self, directory: Path, certificates: Path, client_auth: str = "none") -> None:
        (directory / "jaas.conf").write_text(_JAAS)
        (tls_port,) = free_ports(1)
        self.tls_address = f"127.0.0.1:{tls_port}"
        self.zookeeper = RealZooKeeper(
            directory,
            sync_to_disk=False,
            settings={
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": tls_port,
                "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": certificates / "server.pem",
                "ssl.trustStore.location": certificates / "ca.pem",
                "ssl.clientAuth": client_auth,
            },
            jvm_flags=[f"-Djava.security.auth.login.config={directory / 'jaas.conf'}"],
        )

    @property
    def address(self) -> str:
        """``host:port`` without TLS."""
        return self.zookeeper.connect_string
