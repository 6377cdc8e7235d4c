"""``/v1/session``: login of the dashboard, and logout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, STRING, TIME_MS, nullable, one_of, record
from kreplica.admin.security.guard import Guard
from kreplica.admin.security.sessions import Login
from kreplica.security.sasl.bearer_token import TOKEN_CHARACTERS_MAX

PATH = "/v1/session"

_SECRET = {"type": "string", "minLength": 1, "maxLength": 1000, "writeOnly": True}
_TOKEN = {
    **_SECRET,
    "maxLength": TOKEN_CHARACTERS_MAX,
    "description": "The token of the admin API or, if `bearer` is enabled, a token (JWT) of the authorization server.",
}
SESSION = record(
    {
        "user": {**STRING, "description": "`User:ANONYMOUS` if the API has no authentication."},
        "is_super": {**BOOLEAN, "description": "True if the user may do everything, because the login used the token."},
        "method": one_of("none", "token", "basic", "certificate", "bearer", "session"),
        "ends_at_ms": {
            **nullable(TIME_MS),
            "description": "End of the session in milliseconds since 1970, at the latest the expiry of a bearer "
            "token; null without a session.",
        },
    },
    title="Session",
)
LOGIN = record(
    {"user": {**STRING, "maxLength": 1000}, "password": _SECRET, "token": _TOKEN},
    title="Login",
    optional=("user", "password", "token"),
    minProperties=1,
    description="Either `user` and `password`, or `token`.",
)


class SessionResource:
    """Sessions of the dashboard.

    :param guard: verifies credentials, and keeps the sessions.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def routes(self) -> Sequence[Route]:
        """Return the routes of the caller's session, login and logout."""
        wrong = {401: "The user name, the password or the token is wrong."}
        return (
            Route("GET", PATH, self.show, "The caller, and the caller's session.", response=SESSION),
            Route(
                "POST",
                PATH,
                self.log_in,
                "Log in: the response sets the session cookie.",
                response=SESSION,
                status=201,
                body=LOGIN,
                problems={**wrong, 409: "The API has no authentication."},
                other_responses={200: ("Dry run: no session was opened.", SESSION)},
            ),
            Route("DELETE", PATH, self.log_out, "Log out: end the session, and remove its cookie.", status=204),
        )

    async def show(self, call: Call) -> JsonResponse:
        """``GET /v1/session``."""
        caller, sessions = call.caller, self._guard.sessions
        session = None if caller.session is None or sessions is None else sessions.get(caller.session)
        ends_ms = None if session is None else session.ends_ms
        return JsonResponse(_document(caller.user, caller.method, ends_ms, is_super=caller.is_super))

    async def log_in(self, call: Call) -> JsonResponse:
        """``POST /v1/session``."""
        sessions, body = self._guard.sessions, call.body
        if sessions is None:
            raise Problem(409, "CONFLICT", "the admin API has no authentication", what_to_do="Use it without a login.")
        if set(body) not in ({"token"}, {"user", "password"}):
            raise Problem(400, "INVALID_REQUEST", "body: send either user and password, or token")
        login = await self._verify(call.caller.host, body)
        if login is None or sessions.lifetime_s(login) <= 0.0:
            detail = "the token is wrong or has expired" if "token" in body else "the user name or password is wrong"
            raise Problem(401, "UNAUTHORIZED", detail, what_to_do="Check the credentials and log in again.")
        if call.dry_run:
            return JsonResponse(_document(login.user, "session", None, is_super=login.is_super))
        session, cookie = sessions.open(login)
        document = _document(session.user, "session", session.ends_ms, is_super=session.is_super)
        return JsonResponse(document, status=201, cookie=cookie)

    async def _verify(self, host: str, body: Mapping[str, str]) -> Login | None:
        """Return the login of valid credentials; None if they are wrong.

        :raise Problem: 429 after too many failures, 503 if too many passwords are being verified.
        """
        if "token" in body:
            return await self._guard.login_of_token(host, body["token"])
        user = body["user"]
        is_valid = await self._guard.is_password(host, user, body["password"])
        return Login(f"User:{user}", name=user) if is_valid else None

    async def log_out(self, call: Call) -> JsonResponse:
        """``DELETE /v1/session``."""
        sessions, caller = self._guard.sessions, call.caller
        if sessions is None:
            return JsonResponse(None, status=204)
        if caller.session is not None and not call.dry_run:
            sessions.close(caller.session)
        return JsonResponse(None, status=204, cookie=None if call.dry_run else sessions.removed_cookie)


def _document(user: str, method: str, ends_ms: int | None, *, is_super: bool) -> dict[str, Any]:
    return {"user": user, "is_super": is_super, "method": method, "ends_at_ms": ends_ms}
