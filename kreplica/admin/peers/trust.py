"""Which certificates of other brokers are trusted: those that the system trusts, and those that this broker shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet._sslverify import IOpenSSLTrustRoot
from twisted.internet.ssl import Certificate, platformTrust, trustRootFromCertificates
from twisted.web.client import BrowserLikePolicyForHTTPS
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer


@implementer(IOpenSSLTrustRoot)
class _Several:
    """Roots of trust, together."""

    def __init__(self, *roots: Any) -> None:
        self._roots = roots

    def _addCACertsToContext(self, context: Any) -> None:
        for root in self._roots:
            root._addCACertsToContext(context)


def trusting(certificates: Sequence[Certificate]) -> IPolicyForHTTPS:
    """Trust whom the system trusts, and whom these certificates vouch for.

    A cluster has its own authority, or one certificate for all: it stands in the file of every broker then.
    """
    own = trustRootFromCertificates(certificates)
    policy: IPolicyForHTTPS = BrowserLikePolicyForHTTPS(_Several(platformTrust(), own))
    return policy
