"""Validation of bearer tokens, and the OAUTHBEARER exchange."""

from __future__ import annotations

import json
import random
from base64 import urlsafe_b64encode
from collections.abc import Awaitable
from typing import Any

import jwt
import pytest

from kreplica.blocking.coroutines import run
from kreplica.errors import AuthenticationError, SettingsError
from kreplica.security.oauth.claims import MS_MAX
from kreplica.security.oauth.jwt_validator import JwtRules, JwtValidator
from kreplica.security.oauth.key_set import KEYS_MAX, KeySet
from kreplica.security.oauth.unsecured import UnsecuredLogin, UnsecuredRules, UnsecuredValidator
from kreplica.security.sasl.bearer_token import BearerToken, InvalidToken
from kreplica.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, check_extensions
from tests.support.token_server import AUDIENCE, ISSUER, claims, ec_key, ed_key, jwk, key_set, rsa_key

NOW_S = 1_800_000_000
RULES = JwtRules(audiences=("other", AUDIENCE), issuer=ISSUER)


class Keys:
    """Keys that are replaced by a refresh."""

    def __init__(self, *contents: bytes) -> None:
        self.keys = KeySet.parse(contents[0])
        self.refreshed = 0
        self._next = list(contents[1:])

    async def refresh_for_unknown_key(self) -> None:
        self.refreshed += 1
        if self._next:
            self.keys = KeySet.parse(self._next.pop(0))


def keys() -> Keys:
    return Keys(key_set(jwk(rsa_key(1), "one"), jwk(ec_key(1), "curve"), jwk(ed_key(1), "edwards")))


def validator(rules: JwtRules = RULES, source: Keys | None = None) -> JwtValidator:
    return JwtValidator(rules, source or keys(), lambda: NOW_S * 1000)


def token(
    key: Any = None, algorithm: str = "RS256", headers: dict[str, Any] | None = None, **changes: Any
) -> str:
    return jwt.encode(
        claims(NOW_S, **changes), key or rsa_key(1), algorithm, {"kid": "one"} if headers is None else headers
    )


def section(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(text).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_rsa(algorithm: str) -> None:
    found = run(validator().validate(token(algorithm=algorithm)))
    assert found == BearerToken("alice", (NOW_S + 300) * 1000)


def test_other_algorithms() -> None:
    for key, algorithm, key_id in ((ec_key(1), "ES256", "curve"), (ed_key(1), "EdDSA", "edwards")):
        assert run(validator().validate(token(key, algorithm, {"kid": key_id}))).user == "alice"
        assert run(validator().validate(token(key, algorithm, {}))).user == "alice"


def test_accepted_variants() -> None:
    """Times within the clock skew, other claim names and several audiences are accepted."""
    for rules, changes, user in (
        (RULES, {"iat": NOW_S - 100, "exp": NOW_S - 29}, "alice"),
        (RULES, {"nbf": NOW_S + 30}, "alice"),
        (RULES, {"iat": NOW_S + 0.5, "exp": NOW_S + 1.5}, "alice"),
        (RULES, {"aud": ["x", AUDIENCE]}, "alice"),
        (RULES, {"scope": "a b"}, "alice"),
        (RULES, {"sub": " alice "}, "alice"),
        (JwtRules(issuer=ISSUER), {"aud": None}, "alice"),
        (JwtRules(audiences=(AUDIENCE,)), {"iss": "anyone"}, "alice"),
        (JwtRules(audiences=(AUDIENCE,), sub_claim="name", scope_claim="scp"), {"name": "bob", "scp": ["a"]}, "bob"),
    ):
        assert run(validator(rules).validate(token(**changes))).user == user
    assert run(validator().validate(token(exp=1e300))).expires_ms == MS_MAX


def rejected_tokens() -> list[tuple[str, str]]:
    none = f"{section({'alg': 'none'})}.{section(claims(NOW_S))}."
    public = jwk(rsa_key(1), "one")["n"].encode()
    with_hmac = jwt.encode(claims(NOW_S), public.ljust(64), "HS256", {"kid": "one"})
    header, body, signature = token().split(".")
    return [
        (none, "the algorithm of the token is not allowed"),
        (with_hmac, "the algorithm of the token is not allowed"),
        (token(headers={"kid": "two"}), "no key with the ID 'two' for the algorithm RS256"),
        (token(ec_key(1), "ES256"), "no key with the ID 'one' for the algorithm ES256"),
        (token(rsa_key(2)), "the signature of the token is wrong"),
        (token(rsa_key(2), headers={}), "the signature of the token is wrong"),
        (f"{header}.{section(claims(NOW_S, sub='admin'))}.{signature}", "the signature of the token is wrong"),
        (f"{header}.{body}.", "the signature of the token is wrong"),
        (token(exp=NOW_S - 30), "the token expired 30 seconds ago"),
        (token(exp=None), "the claim exp is missing"),
        (token(exp=True), "the claim exp is not a number"),
        (token(exp="1900000000"), "the claim exp is not a number"),
        (token(exp=-1), "the claim exp is not a number"),
        (token(exp=float("inf")), "the claim exp is not a number"),
        (token(exp=float("nan")), "the claim exp is not a number"),
        (token(iat=None), "the claim iat is missing"),
        (token(iat=NOW_S + 301), "expires before its validity begins"),
        (token(nbf=NOW_S + 31), "will not be valid for another 31 seconds"),
        (token(aud="x"), "not issued for other or kafka (expected.audience)"),
        (token(aud=None), "the claim aud is missing"),
        (token(iss="https://evil.example"), "not issued by https://issuer.example (expected.issuer)"),
        (token(iss=None), "the claim iss is missing"),
        (token(sub=None), "the claim sub is missing, or is not a string"),
        (token(sub="  "), "the claim sub is missing, or is not a string"),
        (token(sub=5), "the claim sub is missing, or is not a string"),
        (token(sub="\ud800"), "the claim sub is missing, or is not a string"),
        (token(scope=["a", "a"]), "the claim scope contains a value twice"),
        (token(scope=["a", 1]), "the claim scope contains a value that is blank"),
        (f"{section({'alg': 'RS256', 'kid': 1})}.{body}.{signature}", "the key ID of the token is not a string"),
        (token(headers={"kid": "x" * 1001}), "the key ID of the token is not a string, or is too long"),
        (token(headers={"kid": "one", "crit": ["exp"], "exp": 1}), "critical header parameters"),
        (f"{section(b'[1]')}.{body}.{signature}", "the header of the token is not a JSON object"),
        (f"{header}.{section(b'[' * 20_000)}.{signature}", "the claims of the token is not a JSON object"),
        (f"{section(b'[' * 20_000)}.{body}.{signature}", "the header of the token is not a JSON object"),
        (f"{header}.{body}", "does not have three sections"),
        (f"{header}.{body}.{signature}.x", "does not have three sections"),
        ("", "does not have three sections"),
        ("ä.ö.ü", "does not have three sections"),
        ("x" * 100_000, "longer than 32768 characters"),
    ]


@pytest.mark.parametrize(("text", "message"), rejected_tokens())
def test_rejected_tokens(text: str, message: str) -> None:
    """The error contains the reason, but no part of the token."""
    with pytest.raises(InvalidToken) as caught:
        run(validator().validate(text))
    assert message in str(caught.value)
    for part in text.split("."):
        assert len(part) < 10 or part not in str(caught.value)


def test_a_token_with_an_audience_needs_a_setting() -> None:
    with pytest.raises(InvalidToken, match=r"expected\.audience is not set"):
        run(validator(JwtRules()).validate(token()))


def test_unknown_keys_are_read_once_per_token() -> None:
    source = Keys(key_set(jwk(rsa_key(2), "two")), key_set(jwk(rsa_key(1), "one")))
    assert run(validator(source=source).validate(token())).user == "alice"
    assert run(validator(source=source).validate(token())).user == "alice"
    assert source.refreshed == 1
    with pytest.raises(InvalidToken, match="no key with the ID"):
        run(validator(source=source).validate(token(rsa_key(2), headers={"kid": "two"})))
    assert source.refreshed == 2


def test_key_sets() -> None:
    """Keys that must not verify tokens are ignored."""
    small = {"kty": "RSA", "kid": "small", "e": "AQAB", "n": section((2**1023 + 1).to_bytes(128, "big"))}
    rows: list[Any] = [
        jwk(rsa_key(1), "one", use="enc"),
        jwk(rsa_key(1), "one", key_ops=["sign"]),
        jwk(rsa_key(1), "one", alg="HS256"),
        {"kty": "oct", "kid": "one", "k": section(b"secret")},
        {"kty": "EC", "crv": "secp256k1", "kid": "one"},
        {"kty": ["RSA"], "kid": "one"},
        {"kty": "RSA", "kid": "one", "n": 5},
        {"kty": "RSA", "kid": 5},
        small,
        "text",
    ]
    with pytest.raises(ValueError, match="it contains no usable key") as caught:
        KeySet.parse(key_set(*rows))
    for reason in ("not meant for signatures", "HS256 is not allowed", "type oct", "malformed", "1024 bits"):
        assert reason in str(caught.value)
    found = KeySet.parse(key_set(*rows, jwk(rsa_key(1), "one", alg="RS512", use="sig"), jwk(ec_key(1), None)))
    assert [key.key_id for key in found.keys] == ["one", None]
    assert [len(found.candidates("one", name)) for name in ("RS256", "RS512", "ES256")] == [0, 1, 0]
    assert [len(found.candidates(None, name)) for name in ("RS256", "RS512", "ES256")] == [0, 1, 1]
    assert len(KeySet.parse(key_set(*[jwk(ed_key(1), "x")] * (KEYS_MAX + 5))).keys) == KEYS_MAX
    for content in (b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError, match="key"):
            KeySet.parse(content)


def test_mutated_key_sets() -> None:
    """A mutated key set yields keys or raises ValueError."""
    rng = random.Random(9)
    rows = [jwk(rsa_key(1), "one", alg="RS256"), jwk(ec_key(1), "curve"), jwk(ed_key(1), "edwards", use="sig")]
    values: list[Any] = [None, True, 0, -1, 10**30, "", "x", "AQAB", "AA", "A" * 5000, "\ud800", [], {}, ["sig"]]
    names = ["kty", "kid", "alg", "use", "key_ops", "n", "e", "x", "y", "crv", "d", "k"]
    refused = 0
    for _ in range(3000):
        changed = [dict(row) for row in rng.sample(rows, rng.randrange(1, 4))]
        for row in changed:
            for _ in range(rng.randrange(1, 3)):
                row[rng.choice(names)] = rng.choice(values)
        content = bytearray(key_set(*changed))
        if rng.randrange(4) == 0:
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            assert KeySet.parse(bytes(content)).keys
        except ValueError:
            refused += 1
    assert 500 < refused < 2900


def mutate(rng: random.Random, text: str) -> str:
    """Change characters, sections or the JSON of a token, as an attacker would."""
    kind = rng.randrange(4)
    if kind == 0:
        characters = list(text)
        for _ in range(rng.randrange(1, 4)):
            characters[rng.randrange(len(characters))] = rng.choice("abcXYZ019-_.=+/ \x00ä")
        return "".join(characters)
    sections = text.split(".")
    if kind == 1:
        rng.shuffle(sections)
        return ".".join(sections[: rng.randrange(1, 4)])
    values: list[Any] = [None, True, -1, 0, 1e308, "x", [], {}, [["x"]], {"a": 1}, 10**30, "\ud800", b"\xff", NOW_S]
    if kind == 2:
        at = rng.randrange(2)
        body = json.loads(_decode(sections[at]))
        name = rng.choice(["alg", "kid", "typ", "crit", "b64", "exp", "iat", "nbf", "sub", "aud", "iss", "scope"])
        value = rng.choice([each for each in values if not isinstance(each, bytes)])
        sections[at] = section({**body, name: value})
        if rng.randrange(2):
            head, body = (json.loads(_decode(each)) for each in sections[:2])
            try:
                return jwt.encode(body, rsa_key(1), "RS256", head)
            except Exception:
                return ".".join(sections)
        return ".".join(sections)
    sections[rng.randrange(3)] = section(rng.randbytes(rng.randrange(60)))
    return ".".join(sections)


def _decode(text: str) -> bytes:
    from base64 import urlsafe_b64decode

    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_mutated_tokens() -> None:
    """A mutated token is either still a valid token of alice, or raises the typed error."""
    rng = random.Random(7)
    originals = [token(), token(ec_key(1), "ES256", {"kid": "curve"}), token(headers={}, scope="a", nbf=NOW_S)]
    checked = validator()
    refused = 0
    for number in range(6000):
        text = mutate(rng, originals[number % 3])
        try:
            found = run(checked.validate(text))
        except InvalidToken:
            refused += 1
        else:
            assert (found.user in ("alice", "x"), isinstance(found.expires_ms, int)) == (True, True)
    assert refused > 4000


def test_mutated_messages() -> None:
    """With mutated messages, the exchange raises only the typed error, or rejects the token."""
    rng = random.Random(8)
    message = OAuthBearerClient(token(), {"traceId": "1"}).step(b"")
    refused = 0
    for _ in range(4000):
        mutated = bytearray(message)
        for _ in range(rng.randrange(1, 4)):
            mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        server = OAuthBearerServer(validator())
        try:
            end = rng.randrange(len(mutated) + 1) if rng.randrange(3) == 0 else len(mutated)
            response = step(server, bytes(mutated[:end]))
        except AuthenticationError:
            refused += 1
            continue
        assert (server.user == "alice") == (response == b"")
        refused += response != b""
    assert refused > 3500


def step(server: OAuthBearerServer, message: bytes) -> bytes:
    outcome = server.step(message)
    if isinstance(outcome, bytes):
        return outcome

    async def wait(awaitable: Awaitable[bytes]) -> bytes:
        return await awaitable

    return run(wait(outcome))


# --- the exchange ----------------------------------------------------------------------------------------------------


def test_exchange() -> None:
    for message in (
        OAuthBearerClient(token(), {}).step(b""),
        OAuthBearerClient(token(), {"traceId": "a b", "x": "~"}).step(b""),
        b"n,a=alice,\x01auth=bearer   " + token().encode() + b"\x01\x01",
    ):
        server = OAuthBearerServer(validator())
        assert step(server, message) == b""
        assert (server.user, server.expires_ms) == ("alice", (NOW_S + 300) * 1000)
    client = OAuthBearerClient("t", {})
    client.step(b"")
    assert (client.step(b""), client.is_complete) == (b"", True)


def test_refused_exchange() -> None:
    """The broker sends the error as JSON, and fails when the client has acknowledged it (RFC 7628)."""
    client, server = OAuthBearerClient(token(exp=NOW_S - 60), {}), OAuthBearerServer(validator())
    response = step(server, client.step(b""))
    assert json.loads(response) == {"status": "invalid_token"}
    acknowledgement = client.step(response)
    assert acknowledgement == b"\x01"
    with pytest.raises(AuthenticationError) as caught:
        step(server, acknowledgement)
    assert (str(caught.value), caught.value.logged) == (response.decode(), "the token expired 60 seconds ago")
    with pytest.raises(AuthenticationError):  # a valid token after the error does not help
        step(server, OAuthBearerClient(token(), {}).step(b""))
    assert server.user is None


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"", "malformed"),
        (b"\x01", "malformed"),
        (b"n,,\x01auth=Bearer x\x01", "malformed"),
        (b"y,,\x01auth=Bearer x\x01\x01", "malformed"),
        (b"n,a=,\x01auth=Bearer x\x01\x01", "malformed"),
        (b"n,a=b=2D,\x01auth=Bearer x\x01\x01", "malformed"),
        (b"n,,\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Basic x\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer x y\x01\x01", "no bearer token"),
        (b"n,,\x01auth=Bearer x\x01a1=x\x01\x01", "an extension"),
        (b"n,,\x01auth=Bearer x\x01a=\x01\x01", "an extension"),
        (b"n,,\x01auth=Bearer x\x01a\x01\x01", "an extension"),
        (b"n,,\x01auth=Bearer \xff\x01\x01", "not ASCII"),
        (b"x" * 200_000, "too long"),
    ],
)
def test_malformed_messages(message: bytes, error: str) -> None:
    with pytest.raises(AuthenticationError, match=error):
        step(OAuthBearerServer(validator()), message)


def test_another_user() -> None:
    message = b"n,a=bob,\x01auth=Bearer " + token().encode() + b"\x01\x01"
    with pytest.raises(AuthenticationError, match="to act as another user"):
        step(OAuthBearerServer(validator()), message)


def test_extensions() -> None:
    check_extensions({"traceId": "a b"})
    for name, value in (("auth", "x"), ("a1", "x"), ("a", ""), ("a", "\x01"), ("", "x")):
        with pytest.raises(ValueError, match="extension"):
            check_extensions({name: value})


# --- tokens without a signature --------------------------------------------------------------------------------------


def unsecured(**changes: Any) -> str:
    return f"{section({'alg': 'none'})}.{section(claims(NOW_S, **changes))}."


def test_unsecured_tokens() -> None:
    rules = UnsecuredRules.from_options(
        {"unsecuredValidatorRequiredScope": "a b", "unsecuredValidatorAllowableClockSkewMs": "3000"}, "jaas"
    )
    strict = UnsecuredValidator(rules, lambda: NOW_S * 1000)
    lenient = UnsecuredValidator(UnsecuredRules.from_options({}, "jaas"), lambda: NOW_S * 1000)
    assert run(lenient.validate(unsecured())).user == "alice"
    assert run(strict.validate(unsecured(scope=["b", "a"], exp=NOW_S - 2, iat=None))).user == "alice"
    for text, message in (
        (token(), "has a signature"),
        (unsecured() + "x", "has a signature"),
        (unsecured(exp=NOW_S), "has expired"),
        (unsecured(iat=NOW_S + 1), "in the future"),
        (unsecured(sub=None), "claim sub"),
        ("x", "three sections"),
    ):
        with pytest.raises(InvalidToken, match=message):
            run(lenient.validate(text))
    server = OAuthBearerServer(strict)
    response = step(server, OAuthBearerClient(unsecured(scope="a"), {}).step(b""))
    assert json.loads(response) == {"status": "insufficient_scope", "scope": "a b"}
    with pytest.raises(SettingsError, match="AllowableClockSkewMs is not a whole number"):
        UnsecuredRules.from_options({"unsecuredValidatorAllowableClockSkewMs": "-1"}, "jaas")


def test_unsecured_login() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "bob",
        "unsecuredLoginNumberClaim_level": "1.5",
        "unsecuredLoginListClaim_scope": ",a,b",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    login = UnsecuredLogin.from_options(options, "jaas")
    assert login is not None
    rules = UnsecuredRules.from_options({"unsecuredValidatorRequiredScope": "b"}, "jaas")
    found = run(UnsecuredValidator(rules, lambda: NOW_S * 1000).validate(login.new_token(NOW_S * 1000)))
    assert found == BearerToken("bob", (NOW_S + 60) * 1000)
    assert UnsecuredLogin.from_options({"clientId": "x"}, "jaas") is None
    for change, message in (
        ({"unsecuredLoginStringClaim_exp": "1"}, "the claim exp is calculated"),
        ({"unsecuredLoginNumberClaim_level": "x"}, "is not a number"),
        ({"unsecuredLoginStringClaim_sub": ""}, "which names the user"),
        ({"unsecuredLoginLifetimeSeconds": "x"}, "LifetimeSeconds"),
    ):
        with pytest.raises(SettingsError, match=message):
            UnsecuredLogin.from_options(options | change, "jaas")
