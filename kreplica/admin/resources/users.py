"""``/v1/users``: users with SCRAM credentials, and their passwords."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.znode_writes import ZnodeWrites
from kreplica.admin.http.api import AFTER, LIMIT, Call, JsonResponse, Parameter, Route, page_of
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import COUNT, STRING, listing, one_of, page, record, written
from kreplica.cluster import znodes
from kreplica.runtime.offload import Offload
from kreplica.security.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_SHA_512, ScramCredential
from kreplica.zookeeper import Operation

PATH = "/v1/users"
ONE = f"{PATH}/{{user:path}}"
ITERATIONS = 8192
"""Number of iterations if the request does not set it."""

SALT_BYTES = 16
PASSWORD_CHARACTERS_MAX = 1000

MECHANISM = one_of(*HASHES)
MEMBERS = {
    "user": STRING,
    "mechanisms": listing(record({"mechanism": MECHANISM, "iterations": COUNT}, title="ScramMechanism")),
}
PASSWORD = record(
    {
        "password": {
            "type": "string",
            "minLength": 1,
            "maxLength": PASSWORD_CHARACTERS_MAX,
            "writeOnly": True,
            "description": "Only keys that are derived from it are stored.",
        },
        "mechanism": {**MECHANISM, "default": SCRAM_SHA_512},
        "iterations": {"type": "integer", "minimum": ITERATIONS_MIN, "maximum": ITERATIONS_MAX, "default": ITERATIONS},
    },
    title="NewPassword",
    optional=("mechanism", "iterations"),
)
CHANGED = written(MEMBERS, title="UserChanged", description="The keys in `znodes` are hidden.")
IN_USER = Parameter("user", {"type": "string", "minLength": 1, "maxLength": 1000}, "The user's name, without `User:`.")
_ZNODES = ("/config/users/{user}", f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}")

Row = dict[str, Any]


class KnownCredentials(Protocol):
    """SCRAM credentials of all users."""

    @property
    def users(self) -> Collection[str]: ...

    def mechanisms_of(self, user: str) -> Mapping[str, ScramCredential]: ...


class UserSettings(Protocol):
    """Reads the credentials of all users."""

    @property
    def scram_credentials(self) -> KnownCredentials: ...

    async def read_users(self) -> None:
        """Read the current credentials.

        :raise ZooKeeperError: ZooKeeper is unreachable.
        """


class CredentialWriter(Protocol):
    """Changes credentials in ZooKeeper."""

    async def change(
        self, user: str, changes: Mapping[str, ScramCredential | None], *, dry_run: bool = False
    ) -> Sequence[Operation]: ...


class Users:
    """Users with SCRAM credentials.

    :param offload: derives keys from passwords, which takes milliseconds.
    """

    def __init__(self, settings: UserSettings, writer: CredentialWriter, offload: Offload) -> None:
        self._settings = settings
        self._writer = writer
        self._offload = offload

    def routes(self) -> Sequence[Route]:
        """Return the routes of the list, and of changes of a user."""
        mechanism = Parameter("mechanism", MECHANISM, "Only the credentials of this mechanism; absent: all.")
        return (
            Route(
                "GET",
                PATH,
                self.list_all,
                "All users with SCRAM credentials.",
                response=page("users", record(MEMBERS, title="User")),
                query=(LIMIT, AFTER),
            ),
            Route(
                "PUT",
                ONE,
                self.set_password,
                "Create a user or change its password.",
                response=CHANGED,
                body=PASSWORD,
                query=(IN_USER,),
                znodes=_ZNODES,
            ),
            Route(
                "DELETE",
                ONE,
                self.delete,
                "Delete the credentials of a user.",
                response=CHANGED,
                query=(IN_USER, mechanism),
                znodes=_ZNODES,
                problems={404: "The user has no such credentials."},
            ),
        )

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/users``."""
        await self._settings.read_users()
        page, following = page_of(sorted(self._settings.scram_credentials.users), call)
        return JsonResponse({"users": [self._row(user) for user in page], "next": following})

    async def set_password(self, call: Call) -> JsonResponse:
        """``PUT /v1/users/{user}``."""
        user, mechanism = call.path["user"], call.body.get("mechanism", SCRAM_SHA_512)
        salt, iterations = secrets.token_bytes(SALT_BYTES), call.body.get("iterations", ITERATIONS)
        credential = await self._offload.run(
            ScramCredential.of_password, mechanism, call.body["password"], salt, iterations
        )
        await self._settings.read_users()
        after = {**self._settings.scram_credentials.mechanisms_of(user), mechanism: credential}
        operations = await self._writer.change(user, {mechanism: credential}, dry_run=call.dry_run)
        return _change_response(user, after, operations, call)

    async def delete(self, call: Call) -> JsonResponse:
        """``DELETE /v1/users/{user}``."""
        user, mechanism = call.path["user"], call.query["mechanism"]
        await self._settings.read_users()
        credentials = self._settings.scram_credentials.mechanisms_of(user)
        deleted = [name for name in credentials if mechanism in (None, name)]
        if not deleted:
            of_mechanism = "" if mechanism is None else f" of {mechanism}"
            raise Problem(
                404,
                "RESOURCE_NOT_FOUND",
                f"user {user!r} has no credentials{of_mechanism}",
                what_to_do="GET /v1/users lists the users.",
            )
        after = {name: credential for name, credential in credentials.items() if name not in deleted}
        operations = await self._writer.change(user, dict.fromkeys(deleted), dry_run=call.dry_run)
        return _change_response(user, after, operations, call)

    def _row(self, user: str) -> Row:
        return _user_row(user, self._settings.scram_credentials.mechanisms_of(user))


def _user_row(user: str, credentials: Mapping[str, ScramCredential]) -> Row:
    rows = [{"mechanism": name, "iterations": each.iterations} for name, each in sorted(credentials.items())]
    return {"user": user, "mechanisms": rows}


def _change_response(
    user: str, after: Mapping[str, ScramCredential], operations: Sequence[Operation], call: Call
) -> JsonResponse:
    znode_rows = ZnodeWrites(operations, secrets=tuple(HASHES)).document()
    return JsonResponse({**_user_row(user, after), "dry_run": call.dry_run, "znodes": znode_rows})
