"""Logins, users and ACLs in the dashboard of a real broker with authentication and an authorizer."""

import time

import jwt
import pytest

from tests.support.standalone import StandaloneProcess
from tests.support.token_server import AUDIENCE, ISSUER, claims, ec_key, jwk, key_set

pytestmark = pytest.mark.needs_program("chromium", "chromedriver")

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("access")
    token, keys = directory / "token", directory / "keys.json"
    token.write_text(TOKEN)
    keys.write_bytes(key_set(jwk(ec_key(1), "one")))
    overrides = (
        f"kreplica.admin.token.file={token}",
        "kreplica.admin.authentication=basic,bearer",
        f"sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS",  # the broker itself, which has a listener without authentication
    )
    arguments = tuple(word for override in overrides for word in ("--override", override))
    with StandaloneProcess(directory / "process", arguments=arguments) as process:
        yield process


def log_in(view, **fields):
    view.until_text("requires a login", "dialog")
    if "Token" in fields:
        view.press("Use a token")
    for label, text in fields.items():
        view.fill(label, text)
    view.confirm("Log in")


def test_users_and_their_access(page, broker):
    """An administrator creates a topic, a user and an ACL; the user then sees only that topic, and cannot delete it."""
    page.base = broker.admin_url
    page.driver.get(f"{page.base}/#/users")
    log_in(page, Token=TOKEN)
    page.until_text("Administrator", "#tools")
    script = """const [name, done] = arguments;
        fetch('/v1/topics', {method: 'POST', body: JSON.stringify({name}), headers: {'content-type': 'application/json',
            'x-kreplica-dashboard': '1'}}).then(answer => done(answer.status))"""
    assert [page.driver.execute_async_script(script, name) for name in ("orders", "secrets")] == [201, 201]
    assert page.driver.execute_async_script(script.replace("'x-kreplica-dashboard': '1'", ""), "x") == 403

    page.press("Create user")
    page.fill("User", "alice")
    page.fill("New password", "planted-secret-1")
    page.fill("Repeat the password", "planted-secret-2")
    page.press("Create")
    page.until_text("The passwords do not match", "dialog")
    page.fill("Repeat the password", "planted-secret-1")
    page.confirm("Create")
    page.until_text("SCRAM-SHA-512", "tbody")

    page.open("acls")
    page.until_text("There are no ACLs.")
    page.open("acls?type=topic&name=orders")
    page.until_text("No ACL matches.")
    page.press("Create ACL")
    page.fill("Principal", "User:alice")
    page.until_text("/kafka-acl/Topic/orders", "dialog")
    page.confirm("Create")
    page.until_text("User:alice", "tbody")
    page.fill("User", "User:alice")
    page.press("Explain")
    page.until_text("User:alice may Read topic 'orders': an ACL allows it.")
    page.choose("Operation", "Delete")
    page.press("Explain")
    page.until_text("may not Delete topic 'orders': the resource has ACLs, but none that allows it.")
    page.press("Log out")

    log_in(page, User="alice", Password="planted-secret-1")
    page.until_text("alice", "#tools")
    page.open("topics")
    page.until(lambda: [row.text.split()[0] for row in page.all("tbody tr")] == ["orders"])
    page.open("topic/orders")
    page.until_text("In sync")
    page.press("Delete topic")
    page.until_text("User:alice from 127.0.0.1 is not authorized for delete on topic 'orders'", "dialog")
    page.press("Cancel")
    page.driver.execute_script("location.hash = '#/users'")
    page.until_text("is not authorized for describe on the cluster")
    page.press("Log out")
    page.until_text("requires a login", "dialog")
    assert page.console_errors(["401", "403"]) == []


def test_login_with_a_bearer_token(page, broker):
    """A user logs in with a token of the authorization server, and must log in again when the token expires."""
    page.base = broker.admin_url

    def token(user, lifetime_s):
        now_s = time.time()
        return jwt.encode(claims(now_s, sub=user, exp=now_s + lifetime_s), ec_key(1), "ES256", {"kid": "one"})

    page.driver.get(f"{page.base}/#/topics")
    log_in_with = token("bob", 300)
    page.until_text("requires a login", "dialog")
    page.press("Use a token")
    page.until_text("A token (JWT) of the authorization server, or the content of kreplica.admin.token.file.", "dialog")
    page.fill("Token", f"{log_in_with}x")
    page.press("Log in")
    page.until_text("the token is wrong or has expired", "dialog")
    page.fill("Token", log_in_with)
    page.confirm("Log in")
    page.until_text("bob", "#tools")
    page.press("Log out")
    log_in(page, Token=token("carol", 6))
    page.until_text("carol", "#tools")
    page.until_text("requires a login", "dialog")
    assert page.console_errors(["401", "403"]) == []
