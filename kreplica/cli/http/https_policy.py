"""TLS of the admin API client: trusted certificates, and the client's own certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import (
    Certificate,
    PrivateCertificate,
    optionsForClientTLS,
    platformTrust,
    trustRootFromCertificates,
)
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


@implementer(IPolicyForHTTPS)
class ClientPolicy:
    """Verifies the server's certificate and host name, and presents the client's certificate.

    :param own: None to present no certificate.
    :param chain: intermediate certificates to present.
    """

    def __init__(self, trust_root: Any, own: PrivateCertificate | None, chain: list[Any]) -> None:
        self._trust_root = trust_root
        self._own = own
        self._more: dict[str, Any] = {"extraCertChain": chain} if chain else {}

    def creatorForNetloc(self, hostname: bytes, port: int) -> IOpenSSLClientConnectionCreator:
        creator: IOpenSSLClientConnectionCreator = optionsForClientTLS(
            hostname.decode("ascii"),
            trustRoot=self._trust_root,
            clientCertificate=self._own,
            extraCertificateOptions=self._more,
        )
        return creator


def https_policy(ca_file: Path | None, certificate_file: Path | None) -> ClientPolicy:
    """Return the policy of a client.

    :param ca_file: certificates (PEM) to trust; None for the system's.
    :param certificate_file: private key and certificates (PEM) of this client, its own certificate first.
    """
    trust_root: Any = platformTrust()
    if ca_file is not None:
        trust_root = trustRootFromCertificates([Certificate.loadPEM(each) for each in _certificates(ca_file)])
    if certificate_file is None:
        return ClientPolicy(trust_root, None, [])
    own, *chain = _certificates(certificate_file)
    pair = PrivateCertificate.loadPEM(own + b"\n" + certificate_file.read_bytes())
    return ClientPolicy(trust_root, pair, [Certificate.loadPEM(each).original for each in chain])


def _certificates(path: Path) -> list[bytes]:
    parts = path.read_bytes().split(_END)[:-1]
    return [part[part.index(_BEGIN) :] + _END for part in parts]
