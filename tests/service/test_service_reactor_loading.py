"""A process that has no use for TLS does not load OpenSSL; one that has finds all of Twisted's TLS as ever."""

import subprocess
import sys
import textwrap

from kreplica.service.process import options
from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.embedded.settings import CoordinatorSettings

LOADED = """
    import sys
    from kreplica.service.process.reactor_loading import load_without_tls
    load_without_tls()
"""


def said(*scripts: str) -> list[str]:
    """The lines that Python prints, in a process of its own."""
    script = "".join(map(textwrap.dedent, scripts))
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_whole_standalone_without_openssl() -> None:
    """All that ``standalone`` imports, its admin API with it, takes no TLS."""
    lines = said(
        LOADED,
        """
        import kreplica.service.admin.admin_site, kreplica.service.standalone.standalone
        import twisted.internet.reactor
        print(sorted({"OpenSSL", "cryptography", "jsonschema", "treq"} & set(sys.modules)))
        """,
    )
    assert lines == ["[]"]


def test_endpoint_with_tls() -> None:
    """The first to ask for TLS loads it, for all: nobody sees a stand-in any more."""
    lines = said(
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


def test_endpoint_of_a_string() -> None:
    """A string asks for TLS, too."""
    lines = said(
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
    """The reactor listens with TLS, and says that it can."""
    lines = said(
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


def test_where_tls_is_loaded_already() -> None:
    """What is there stays as it is."""
    lines = said(
        "import twisted.internet.ssl",
        LOADED,
        """
        from twisted.internet import endpoints
        from twisted.protocols.tls import TLSMemoryBIOFactory
        print(endpoints.TLSMemoryBIOFactory is TLSMemoryBIOFactory)
        """,
    )
    assert lines == ["True"]


def test_options_have_the_defaults_of_the_coordinators_limits() -> None:
    """The options module repeats them, because it must not import the coordinator."""
    assert (QuotaBounds().count_max, QuotaBounds().bytes_max) == (options.ZNODES_MAX, options.ZNODE_BYTES_MAX)
    assert CoordinatorSettings().address_connections_max == options.ADDRESS_CONNECTIONS_MAX
