"""Authentication on the admin port of a process with several brokers, while all or some are running."""

from __future__ import annotations

import requests

from tests.support.standalone import StandaloneProcess

TOKEN = "0123456789abcdef"
BOB = ("bob", "planted-secret-1")


def test_process_authenticates_like_its_first_running_broker(tmp_path):
    """The first running broker authenticates users; if all brokers are dead, only the token gives access."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    overrides = (f"kreplica.admin.token.file={token}", "kreplica.admin.authentication=basic")
    arguments = tuple(word for override in overrides for word in ("--override", override))
    with StandaloneProcess(tmp_path / "process", brokers=2, arguments=arguments) as process, requests.Session() as http:
        http.trust_env = False

        def send(method, path, *, user=None, with_token=False, **more):
            headers = {"Authorization": f"Bearer {TOKEN}"} if with_token else {}
            url = f"{process.admin_url}{path}"
            return http.request(method, url, auth=user, headers=headers, timeout=30, **more).status_code

        assert send("PUT", "/v1/users/bob", json={"password": BOB[1]}, with_token=True) == 200
        assert send("GET", "/v1/standalone") == 401
        assert send("GET", "/v1/standalone", user=("bob", "wrong")) == 401
        assert send("GET", "/v1/standalone", user=BOB) == 200
        assert send("POST", "/v1/session", json={"user": BOB[0], "password": BOB[1]}) == 201
        assert send("GET", "/v1/topics") == 200  # authenticated by the cookie
        assert send("POST", "/v1/standalone/brokers/1/kill") == 403  # without the header of the dashboard
        assert send("POST", "/v1/standalone/brokers/1/kill", user=BOB) == 200
        assert send("GET", "/v1/session") == 401  # the session was in the memory of broker 1
        assert send("GET", "/v1/standalone", user=BOB) == 200
        assert send("POST", "/v1/standalone/brokers/2/kill", user=BOB) == 200
        assert send("GET", "/v1/topics") == 401
        assert send("GET", "/v1/topics", with_token=True) == 503
        assert send("POST", "/v1/standalone/brokers/1/start", user=BOB) == 401
        assert send("GET", "/dashboard/app.js") == 200
        assert send("POST", "/v1/standalone/brokers/1/start", with_token=True) == 200
        assert send("GET", "/v1/standalone", user=BOB) == 200
