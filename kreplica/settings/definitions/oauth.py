"""Settings of the SASL mechanism OAUTHBEARER: validation of tokens, and login to other brokers (KIP-255, KIP-768)."""

from __future__ import annotations

from kreplica.settings.definitions.helpers import (
    AT_START,
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    SHORT,
    STRING,
)
from kreplica.settings.setting import Setting
from kreplica.settings.validators import ANY, OneOf, at_least, between

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_VALIDATOR_CLASS, _LOGIN_CLASS = "OAuthBearerValidatorCallbackHandler", "OAuthBearerLoginCallbackHandler"
LOGIN_CLASSES = (f"{_PACKAGE}.{_LOGIN_CLASS}", f"{_PACKAGE}.secured.{_LOGIN_CLASS}")
_VALIDATOR_CLASSES = (f"{_PACKAGE}.{_VALIDATOR_CLASS}", f"{_PACKAGE}.secured.{_VALIDATOR_CLASS}")

ALLOW_UNSECURED = "kreplica.sasl.oauthbearer.allow.unsecured"

_VALIDATION = (
    Setting(
        "sasl.oauthbearer.clock.skew.seconds", INT, 30, between(0, 86_400), LOW, READ_ONLY,
        "The tolerated difference between the clocks of the authorization server and the broker.",
    ),
    Setting(
        "sasl.oauthbearer.expected.audience", LIST, None, ANY, LOW, READ_ONLY,
        "A token must be issued for one of these audiences (aud). If none is set, a token must not name an audience.",
    ),
    Setting(
        "sasl.oauthbearer.expected.issuer", STRING, None, ANY, LOW, READ_ONLY,
        "A token must be issued by this issuer (iss). If none is set, the keys alone determine valid tokens.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, at_least(1), LOW, READ_ONLY,
        "How often the keys are read again. An unknown key in a token also causes a read, at most every 10 s.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, at_least(0), LOW, READ_ONLY,
        "The maximum delay before the keys are read again after a failure. The previous keys remain valid.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, at_least(0), LOW, READ_ONLY,
        "The delay before the keys are read again after a failure; it doubles with each further failure.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.url", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The JSON Web Key Set of the authorization server: an https:// URL, or file:// for a file.",
    ),
    Setting(
        "sasl.oauthbearer.scope.claim.name", STRING, "scope", ANY, LOW, READ_ONLY,
        "The name of the claim that contains the scope of a token.",
    ),
    Setting(
        "sasl.oauthbearer.sub.claim.name", STRING, "sub", ANY, LOW, READ_ONLY,
        "The name of the claim that contains the user of a token.",
    ),
    Setting(
        "sasl.server.callback.handler.class", CLASS, None, OneOf(("", *_VALIDATOR_CLASSES)), MEDIUM, READ_ONLY,
        "Accepted for compatibility with Kafka: sasl.oauthbearer.jwks.endpoint.url alone selects this validator.",
    ),
)

_LOGIN = (
    Setting(
        "sasl.login.callback.handler.class", CLASS, None, OneOf(("", *LOGIN_CLASSES)), MEDIUM, READ_ONLY,
        "Accepted for compatibility with Kafka: sasl.oauthbearer.token.endpoint.url alone selects this login.",
    ),
    Setting(
        "sasl.login.connect.timeout.ms", INT, None, at_least(1), LOW, READ_ONLY,
        "The timeout for connections to the token endpoint; 10 seconds if it is not set.",
    ),
    Setting(
        "sasl.login.read.timeout.ms", INT, None, at_least(1), LOW, READ_ONLY,
        "The timeout for responses from the token endpoint; 10 seconds if it is not set.",
    ),
    Setting(
        "sasl.login.refresh.buffer.seconds", SHORT, 300, between(0, 3600), MEDIUM, AT_START,
        "A token is replaced at least this long before it expires, unless its remaining lifetime is too short.",
    ),
    Setting(
        "sasl.login.refresh.min.period.seconds", SHORT, 60, between(0, 900), MEDIUM, AT_START,
        "A token is used at least this long before it is replaced, unless its remaining lifetime is too short.",
    ),
    Setting(
        "sasl.login.refresh.window.factor", DOUBLE, 0.8, between(0.5, 1.0), MEDIUM, AT_START,
        "The fraction of a token's lifetime after which the next connection replaces the token.",
    ),
    Setting(
        "sasl.login.refresh.window.jitter", DOUBLE, 0.05, between(0.0, 0.25), MEDIUM, AT_START,
        "The maximum random fraction that is added to sasl.login.refresh.window.factor.",
    ),
    Setting(
        "sasl.login.retry.backoff.max.ms", LONG, 10_000, at_least(0), LOW, READ_ONLY,
        "How long failed requests for a token are retried before the connection fails.",
    ),
    Setting(
        "sasl.login.retry.backoff.ms", LONG, 100, at_least(0), LOW, READ_ONLY,
        "The delay before a failed request for a token is retried; it doubles with each further attempt.",
    ),
    Setting(
        "sasl.oauthbearer.token.endpoint.url", STRING, None, ANY, MEDIUM, READ_ONLY,
        "The token endpoint for connections to other brokers: an https:// URL, or file:// for a file with a token.",
    ),
)

OAUTH = (
    *_VALIDATION,
    *_LOGIN,
    Setting(
        ALLOW_UNSECURED, BOOLEAN, False, ANY, MEDIUM, READ_ONLY,
        "Whether listeners with OAUTHBEARER may start without sasl.oauthbearer.jwks.endpoint.url. They accept tokens "
        "without a signature, which anyone can create for any user: for development only.",
    ),
)
"""Settings of OAUTHBEARER."""

OAUTH_VALIDATION = tuple(each.name for each in _VALIDATION)
OAUTH_LOGIN = tuple(each.name for each in _LOGIN)
