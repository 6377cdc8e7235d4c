"""Guards of authentication and authorization; see ``guard``."""

from __future__ import annotations

from typing import Any

from kreplica.membership.scram_credentials import ScramCredentials
from kreplica.security.sasl.scram import ScramCredential
from kreplica.server.authentication.sasl_session import SaslSession
from kreplica.server.protocol.connection import Connection
from tests.support.mutations.guard import Guard, Place, always, nothing
from tests.support.mutations.scenarios import security

_FIRST: dict[tuple[int, str, str], ScramCredential] = {}


def _first_password(credentials: ScramCredentials, mechanism: str, user: str) -> ScramCredential | None:
    current = credentials.mechanisms_of(user).get(mechanism)
    return current if current is None else _FIRST.setdefault((id(credentials), mechanism, user), current)


def _serve(session: SaslSession, connection: Connection, frame: memoryview) -> None:
    session._listener.frame_received(connection, frame)


def _only_new_users(credentials: ScramCredentials, user: str, config: Any) -> None:
    if user not in credentials.users:
        _apply(credentials, user, config)


_apply = ScramCredentials.apply

SECURITY_GUARDS: tuple[Guard, ...] = (
    Guard(
        "requests require permission",
        (Place("kreplica.server.authorization.permissions:Permissions.permits", always),),
        security.rights_change_under_load,
        "but no ACL allowed it",
    ),
    Guard(
        "changed ACLs invalidate cached decisions",
        (Place("kreplica.security.acls.authorizer:AclAuthorizer.forget", nothing),),
        security.rights_change_under_load,
        "but no ACL allowed it",
    ),
    Guard(
        "expired sessions must reauthenticate",
        (Place("kreplica.server.authentication.sasl_session:SaslSession._received_in_session", _serve),),
        security.rights_change_under_load,
        "but the session expired",
    ),
    Guard(
        "a new password replaces the old one",
        (Place("kreplica.membership.scram_credentials:ScramCredentials.find", _first_password),),
        security.rights_change_under_load,
        "authenticated .* but accepts only",
    ),
    Guard(
        "changes to users are applied",
        (Place("kreplica.membership.scram_credentials:ScramCredentials.apply", _only_new_users),),
        security.rights_change_under_load,
        "has not applied the credentials",
    ),
)
"""The guards, in the order of the table in the documentation."""
