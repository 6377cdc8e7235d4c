"""Decides which certificates of other brokers are trusted: the system's authorities and this broker's own chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Twisted has no public name for the interface of trust roots, and no public way to combine two of them.
from twisted.internet._sslverify import IOpenSSLTrustRoot
from twisted.internet.ssl import Certificate, platformTrust, trustRootFromCertificates
from twisted.web.client import BrowserLikePolicyForHTTPS
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer


@implementer(IOpenSSLTrustRoot)
class _CombinedTrust:
    """Trust root that contains the authorities of several trust roots."""

    def __init__(self, *roots: Any) -> None:
        self._roots = roots

    def _addCACertsToContext(self, context: Any) -> None:
        for root in self._roots:
            root._addCACertsToContext(context)


def trust_policy(certificates: Sequence[Certificate]) -> IPolicyForHTTPS:
    """Return a policy that trusts the system's authorities and these certificates.

    A cluster may have its own authority, or one certificate for all brokers; either is in each broker's certificate
    file.
    """
    own = trustRootFromCertificates(certificates)
    policy: IPolicyForHTTPS = BrowserLikePolicyForHTTPS(_CombinedTrust(platformTrust(), own))
    return policy
