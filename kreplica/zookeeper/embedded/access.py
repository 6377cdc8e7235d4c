"""Access control: checks ACLs against the identities of a connection, without I/O.

An identity is ``(scheme, id)``: every connection has ``("ip", address)``; ``addAuth`` adds ``("digest", "user:hash")``,
SASL adds ``("sasl", user)``, and a client certificate adds ``("x509", subject)``.
"""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Any, TypeAlias

from kreplica.zookeeper.errors import AuthFailed, InvalidAcl, NoAuth
from kreplica.zookeeper.records import OPEN_ACL, Acl, Permission

Identity: TypeAlias = tuple[str, str]

ANYONE: Identity = ("world", "anyone")


# Maximum number of distinct ACLs kept for sharing; a cluster has only a few.
SHARED_ACLS_MAX = 1000


class AclPool:
    """Shares one object among equal ACLs to save memory; most protected znodes have one of a few ACLs."""

    def __init__(self) -> None:
        self._shared: dict[tuple[Acl, ...], tuple[Acl, ...]] = {}

    def share(self, acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
        """Return the shared object that equals this ACL."""
        if len(self._shared) >= SHARED_ACLS_MAX:
            self._shared.clear()
        return self._shared.setdefault(acl, acl)


def check_access(acl: tuple[Acl, ...], permissions: int, identities: Sequence[Identity], path: str) -> None:
    """Raise an error unless the ACL grants at least one of the given permissions.

    :param permissions: ``Permission`` flags; any one of them is sufficient.
    :raise NoAuth: none of the permissions is granted.
    """
    if acl is not OPEN_ACL and not is_allowed(acl, permissions, identities):
        raise NoAuth(path)


def is_allowed(acl: tuple[Acl, ...], permissions: int, identities: Sequence[Identity]) -> bool:
    """Return True if an entry grants any of the given permissions to any of the identities."""
    return any(
        entry.permissions & permissions
        and (entry[1:] == ANYONE or any(_matches(entry, identity) for identity in identities))
        for entry in acl
    )


def _matches(entry: Acl, identity: Identity) -> bool:
    scheme, name = identity
    if scheme != entry.scheme:
        return False
    if scheme == "ip":
        return ipaddress.ip_address(name) in ipaddress.ip_network(entry.id, strict=False)
    return name == entry.id


def digest_identity(credentials: bytes) -> Identity:
    """Return the digest identity of ``user:password``: the user and a SHA-1 hash, as in ACLs.

    :raise AuthFailed: if the credentials have no colon or the user is not UTF-8.
    """
    user, colon, _password = credentials.partition(b":")
    if not colon:
        raise AuthFailed(None, "digest credentials must have the form user:password")
    try:
        name = user.decode()
    except UnicodeDecodeError:
        raise AuthFailed(None, "the user's name is not UTF-8") from None
    return "digest", f"{name}:{b64encode(sha1(credentials).digest()).decode()}"


def certificate_identity(certificate: Any) -> Identity:
    """Return the identity of a client's certificate (OpenSSL's ``X509``): its subject, formatted as in Java."""
    # Imported here because it imports the certificate library.
    from kreplica.security.tls.distinguished_names import rfc2253

    return "x509", rfc2253(certificate.to_cryptography().subject)


def authenticate(scheme: str, credentials: bytes, address: str) -> Identity:
    """Return the identity that an ``addAuth`` request adds.

    :param address: the peer's IP address, used for scheme ``ip``.
    :raise AuthFailed: for invalid credentials and unknown schemes; the connection is then closed.
    """
    if scheme == "digest":
        return digest_identity(credentials)
    if scheme == "ip":
        return "ip", address
    raise AuthFailed(None, f"authentication scheme {scheme!r} is not supported; use digest or ip")


def effective_acl(requested: Iterable[Acl], identities: Sequence[Identity], path: str) -> tuple[Acl, ...]:
    """Return the ACL to store for a requested ACL: ``auth`` is replaced with the caller's identities.

    :raise InvalidAcl: if the ACL is empty or contains an unknown scheme or an invalid identity.
    """
    entries: dict[Acl, None] = {}
    for entry in requested:
        if entry.scheme == "auth":
            own = [Acl(entry.permissions, *identity) for identity in identities if identity[0] != "ip"]
            if not own:
                raise InvalidAcl(path, "scheme auth requires an authenticated identity")
            entries.update(dict.fromkeys(own))
        elif _is_valid(entry):
            entries[entry] = None
        else:
            raise InvalidAcl(path)
    if not entries:
        raise InvalidAcl(path, "the ACL is empty")
    acl = tuple(entries)
    return OPEN_ACL if acl == OPEN_ACL else acl


def _is_valid(entry: Acl) -> bool:
    if entry.scheme == "world":
        return entry.id == "anyone"
    if entry.scheme == "digest":
        return entry.id.count(":") == 1
    if entry.scheme in ("sasl", "x509"):
        return bool(entry.id)
    if entry.scheme == "ip":
        try:
            ipaddress.ip_network(entry.id, strict=False)
        except ValueError:
            return False
        return True
    return False


def hide_digests(acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
    """Return the ACL with its password hashes masked, for clients without ADMIN permission."""
    return tuple(
        entry._replace(id=entry.id.partition(":")[0] + ":x") if entry.scheme == "digest" else entry for entry in acl
    )


def may_see_digests(acl: tuple[Acl, ...], identities: Sequence[Identity]) -> bool:
    """Return True if an identity has ADMIN permission and so may read the ACL's password hashes."""
    return acl is OPEN_ACL or is_allowed(acl, Permission.ADMIN, identities)
