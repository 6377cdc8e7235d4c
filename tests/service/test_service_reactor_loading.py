"""A process without TLS does not load OpenSSL; a process with TLS loads Twisted's TLS support completely."""

import subprocess
import sys
import textwrap

from kreplica.service.process import options
from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.embedded.settings import ZooKeeperServerSettings

LOADED = """
    import sys
    from kreplica.service.process.reactor_loading import load_without_tls
    load_without_tls()
"""


def output_lines(*scripts: str) -> list[str]:
    """Run Python code in a process, and return the lines that it prints."""
    script = "".join(map(textwrap.dedent, scripts))
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_standalone_without_openssl() -> None:
    """No import of ``standalone``, including its admin API, loads OpenSSL or the libraries of record formats."""
    lines = output_lines(
        LOADED,
        """
        import kreplica.service.admin.admin_site, kreplica.service.standalone.standalone
        import twisted.internet.reactor
        libraries = {"OpenSSL", "cryptography", "jsonschema", "treq"}
        libraries |= {"cbor2", "cel", "fastavro", "google.protobuf", "msgpack"}
        print(sorted(libraries & set(sys.modules)))
        """,
    )
    assert lines == ["[]"]


def test_endpoint_with_tls() -> None:
    """The first use of TLS loads it for all modules, and replaces the placeholders."""
    lines = output_lines(
        LOADED,
        """
        from twisted.internet import endpoints, reactor
        from twisted.internet.testing import MemoryReactorClock
        from twisted.internet.protocol import Factory, Protocol
        from twisted.internet.ssl import optionsForClientTLS
        plain = endpoints.TCP4ClientEndpoint(MemoryReactorClock(), "10.0.0.1", 1)
        secured = endpoints.wrapClientTLS(optionsForClientTLS("host"), plain)
        secured.connect(Factory.forProtocol(Protocol))
        from OpenSSL.SSL import Error
        from twisted.internet.ssl import CertificateOptions
        from twisted.protocols.tls import TLSMemoryBIOFactory
        print(endpoints.SSLError is Error, endpoints.CertificateOptions is CertificateOptions)
        print(endpoints.TLSMemoryBIOFactory is TLSMemoryBIOFactory)
        """,
    )
    assert lines == ["True True", "True"]


def test_endpoint_from_a_string() -> None:
    lines = output_lines(
        LOADED,
        """
        from twisted.internet import endpoints
        from twisted.internet.testing import MemoryReactorClock
        endpoints.clientFromString(MemoryReactorClock(), "tls:example.org:443")
        print("OpenSSL" in sys.modules)
        """,
    )
    assert lines == ["True"]


def test_reactor_with_tls() -> None:
    """The reactor can listen with TLS, and declares the interface."""
    lines = output_lines(
        LOADED,
        """
        from twisted.internet import reactor
        from twisted.internet.interfaces import IReactorSSL
        from twisted.internet.protocol import Factory
        from twisted.internet.ssl import CertificateOptions
        port = reactor.listenSSL(0, Factory(), CertificateOptions(), interface="127.0.0.1")
        print(IReactorSSL.providedBy(reactor), port._type, type(port.factory).__name__)
        """,
    )
    assert lines == ["True TLS TLSMemoryBIOFactory"]


def test_tls_loaded_before() -> None:
    """If TLS is already loaded, modules are not changed."""
    lines = output_lines(
        "import twisted.internet.ssl",
        LOADED,
        """
        from twisted.internet import endpoints
        from twisted.protocols.tls import TLSMemoryBIOFactory
        print(endpoints.TLSMemoryBIOFactory is TLSMemoryBIOFactory)
        """,
    )
    assert lines == ["True"]


def test_defaults_of_the_coordinators_limits() -> None:
    """The options module repeats these defaults, because it must not import the coordinator."""
    assert (QuotaBounds().count_max, QuotaBounds().bytes_max) == (options.ZNODES_MAX, options.ZNODE_BYTES_MAX)
    assert ZooKeeperServerSettings().address_connections_max == options.ADDRESS_CONNECTIONS_MAX
