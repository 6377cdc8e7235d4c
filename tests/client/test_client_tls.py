"""TLS through a terminating proxy, with real sockets and certificates."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

PROGRAM = """
import json, sys
from twisted.internet.endpoints import SSL4ServerEndpoint
from twisted.internet.ssl import Certificate, PrivateCertificate
from twisted.internet.task import react
from twisted.protocols.portforward import ProxyFactory

from kreplica.client import ClientOptions, Cluster, errors, default_runtime, tls_endpoints


async def main(reactor, broker_port, own, other, name):
    certificate = PrivateCertificate.loadPEM(open(own).read())
    proxy = SSL4ServerEndpoint(reactor, 0, certificate.options(), interface="127.0.0.1")
    listening = await proxy.listen(ProxyFactory("127.0.0.1", int(broker_port)))
    results = []
    for host, trusted in [("127.0.0.1", own), ("127.0.0.1", other), (name, own)]:
        runtime = default_runtime(endpoint=tls_endpoints(trustRoot=Certificate.loadPEM(open(trusted).read())))
        options = ClientOptions(connect_timeout_s=10, operation_timeout_s=10)
        bootstrap = f"{host}:{listening.getHost().port}"
        async with Cluster(bootstrap, options=options, runtime=runtime) as cluster:
            try:
                results.append(sorted((await cluster.refresh()).brokers))
            except errors.ClientError as error:
                results.append(type(error).__name__)
    print(json.dumps(results))
    await listening.stopListening()


react(main, sys.argv[1:])
"""


def certificate(path: Path) -> Path:
    """Create a self-signed certificate for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + made.public_bytes(encoding))
    return path


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    with KafkaCluster(1) as cluster:
        yield cluster


def test_certificates_and_names_are_checked(broker: KafkaCluster, tmp_path: Path) -> None:
    """A wrong certificate or host name is rejected."""
    port = broker.bootstrap_servers.rpartition(":")[2]
    own, other = certificate(tmp_path / "own.pem"), certificate(tmp_path / "other.pem")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, port, own, other, "localhost"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trusted, foreign, misnamed = json.loads(done.stdout)
    assert trusted == [1]
    assert foreign in ("ConnectionFailed", "ConnectionLost")
    assert misnamed in ("ConnectionFailed", "ConnectionLost")
