"""Logins to the dashboard with a token of the admin API or of an authorization server."""

from __future__ import annotations

import pytest
from http_in_memory import Api

from kreplica.admin.http.access import Access
from kreplica.admin.resources.session import SessionResource
from kreplica.admin.security import failures
from kreplica.admin.security.failures import FailureLimit
from kreplica.admin.security.guard import Guard
from kreplica.admin.security.sessions import Sessions
from kreplica.security.sasl.bearer_token import TOKEN_CHARACTERS_MAX, BearerToken, InvalidToken

TOKEN = "0123456789abcdef"
START_MS, LIFETIME_S = 1_700_000_000_000, 600.0


class Validator:
    """Accepts the token ``alice:EXPIRY`` at any time, as if within the clock skew; EXPIRY is in seconds since start."""

    def __init__(self):
        self.validated = []

    async def validate(self, token):
        self.validated.append(token)
        user, _, seconds = token.partition(":")
        if user != "alice":
            raise InvalidToken("the signature of the token is wrong")
        return BearerToken(user, START_MS + int(float(seconds) * 1000))


class Scene:
    def __init__(self, validator=None):
        self.now_s = 0.0
        self.sessions = Sessions(
            "kreplica-session-1",
            lambda: self.now_s,
            lambda: START_MS + round(self.now_s * 1000),
            LIFETIME_S,
            is_secure=False,
        )
        guard = Guard(
            token=TOKEN.encode(),
            limit=FailureLimit(lambda: self.now_s),
            bearer_tokens=validator,
            sessions=self.sessions,
        )
        self.api = Api(SessionResource(guard), access=Access(hosts=None), guard=guard)

    def log_in(self, token, query=""):
        return self.api.ask("POST", f"/v1/session{query}", body={"token": token})

    def show(self, cookie):
        return self.api.ask("GET", "/v1/session", {"Cookie": cookie.partition(";")[0]})


def test_session_ends_with_the_token():
    """A session opened with a bearer token ends when the token expires, if that is before the session's usual end."""
    scene = Scene(Validator())
    opened = scene.log_in("alice:90.9")
    assert opened.status == 201
    assert opened.json() == {
        "user": "User:alice",
        "is_super": False,
        "method": "session",
        "ends_at_ms": START_MS + 90_900,
    }
    cookie = opened.headers["set-cookie"]
    assert "; Max-Age=90; HttpOnly; SameSite=Strict" in cookie
    scene.now_s = 90.8
    assert scene.show(cookie).json()["user"] == "User:alice"
    scene.now_s = 90.9
    assert scene.show(cookie).status == 401


def test_usual_end_of_a_session():
    """A token that expires after the session's usual end does not extend the session."""
    opened = Scene(Validator()).log_in("alice:1e6")
    assert opened.json()["ends_at_ms"] == START_MS + LIFETIME_S * 1000
    assert "Max-Age=600;" in opened.headers["set-cookie"]


@pytest.mark.parametrize("token", ["alice:0", "alice:-20", "bob:90", "x"])
def test_invalid_tokens(token):
    """An invalid token, or one that has expired within the clock skew, opens no session, and no text repeats it."""
    refused = Scene(Validator()).log_in(token)
    assert (refused.status, refused.json()["detail"]) == (401, "the token is wrong or has expired")
    assert "set-cookie" not in refused.headers
    assert token not in refused.body.decode().replace("expired", "")


def test_token_of_the_api():
    """The token of the admin API opens an administrator's session without validation as a bearer token."""
    validator = Validator()
    assert Scene(validator).log_in(TOKEN).json()["is_super"] is True
    assert validator.validated == []
    assert Scene().log_in(TOKEN).json()["is_super"] is True
    assert Scene().log_in("alice:90").status == 401


def test_wrong_tokens_are_limited(monkeypatch):
    """Wrong tokens are limited, because each may be an attempt to guess the token of the API."""
    monkeypatch.setattr(failures, "FAILURES_MAX", 3)
    scene = Scene(Validator())
    assert [scene.log_in(f"bob:{n}").status for n in range(4)] == [401, 401, 401, 429]
    assert scene.log_in("alice:90").status == 429
    scene.now_s += failures.WINDOW_S
    assert scene.log_in("alice:90").status == 201


def test_dry_run_and_long_tokens():
    """A dry run opens no session; a token may be as long as listeners accept."""
    scene = Scene(Validator())
    assert scene.log_in("alice:90", "?dry_run=true").status == 200
    long = "alice:" + "0" * (TOKEN_CHARACTERS_MAX - 8) + "90"
    assert scene.log_in(long).status == 201
    refused = scene.log_in(f"{long}0")
    assert refused.status == 400
    assert "alice" not in refused.body.decode()
