"""``/v1/tokens``: delegation tokens (KIP-48)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.znode_writes import ZnodeWrites
from kreplica.admin.http.api import AFTER, LIMIT, Call, JsonResponse, Parameter, Route, page_of
from kreplica.admin.http.callers import Caller, user
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import INT64_MAX, STRING, TIME_MS, listing, nullable, page, record, written
from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces.authorization import Operation, Resource, ResourceType
from kreplica.security.tokens.token import DelegationToken
from kreplica.security.tokens.token_cache import TokenCache
from kreplica.security.tokens.znodes import CHANGE_PREFIX, CHANGES, TOKENS
from kreplica.zookeeper import Operation as ZooKeeperOperation

PATH = "/v1/tokens"
ONE = f"{PATH}/{{token}}"
RENEWERS_MAX = 100
BROKERS_PERIOD = -1
"""Period that selects the broker's setting."""

DELETE_NOW = -1
"""Period for which ``TokenStore.expire`` deletes the token at once."""

USER = {"type": "string", "pattern": "^User:.+", "maxLength": 1000, "examples": ["User:alice"]}
PERIOD = {"type": "integer", "minimum": 1, "maximum": INT64_MAX}
MEMBERS = {
    "token_id": {**STRING, "description": "The user name of clients that authenticate with the token."},
    "owner": {**STRING, "description": "The principal as which these clients act."},
    "requester": {**STRING, "description": "The principal that created the token."},
    "renewers": {**listing(STRING), "description": "Other principals that may renew and expire the token."},
    "issued_ms": TIME_MS,
    "expires_ms": {**TIME_MS, "description": "Expiry time, unless the token is renewed before then."},
    "max_ms": {**TIME_MS, "description": "The time until which the token can be renewed."},
}
NEW_TOKEN = record(
    {
        "owner": {**USER, "description": "The caller if absent; required for callers with the admin token."},
        "renewers": listing(USER, maxItems=RENEWERS_MAX),
        "max_lifetime_ms": {**PERIOD, "description": "`delegation.token.max.lifetime.ms` if absent."},
    },
    title="NewToken",
    optional=("owner", "renewers", "max_lifetime_ms"),
)
RENEWAL = record(
    {"period_ms": {**PERIOD, "description": "Time from now; `delegation.token.expiry.time.ms` if absent."}},
    title="TokenRenewal",
    optional=("period_ms",),
)
EXPIRY = record(
    {"period_ms": {**PERIOD, "description": "Time from now; the token is deleted at once if absent."}},
    title="TokenExpiry",
    optional=("period_ms",),
)
CREATED = written(
    {
        **MEMBERS,
        "hmac": {
            **nullable(STRING),
            "description": "The secret in Base64, which is the password of the token; null in a dry run. No other "
            "response contains it.",
        },
    },
    title="TokenCreated",
)
CHANGED = written(MEMBERS, title="TokenChanged")
IN_TOKEN = Parameter("token", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,100}$"}, "The token's ID.")
OWNER = Parameter("owner", USER, "Only tokens that this principal owns, created, or may renew.")

_ZNODES = (f"{TOKENS}/{{token}}", f"{CHANGES}/{CHANGE_PREFIX}")
_PROBLEMS = {
    403: "The caller is neither owner nor renewer, has not authenticated, or tokens are disabled.",
    404: "The token does not exist.",
    409: "The token has expired.",
}

Row = dict[str, Any]
Written = tuple[DelegationToken, Sequence[ZooKeeperOperation]]


class TokenStore(Protocol):
    """The delegation tokens in ZooKeeper."""

    @property
    def cache(self) -> TokenCache: ...

    async def catch_up(self) -> None: ...

    async def visible_tokens(
        self, principal: str, owners: Collection[str] | None, may_describe: Callable[[DelegationToken], bool]
    ) -> Sequence[DelegationToken]: ...

    async def create(
        self, owner: str, requester: str, renewers: Iterable[str], max_ms: int, *, dry_run: bool = False
    ) -> Written: ...

    async def renew(self, principal: str, token_id: str, period_ms: int, *, dry_run: bool = False) -> Written: ...

    async def expire(self, principal: str, token_id: str, period_ms: int, *, dry_run: bool = False) -> Written: ...


class Tokens:
    """Delegation tokens of the cluster.

    :param store: None if tokens are disabled.
    """

    def __init__(self, store: TokenStore | None) -> None:
        self._store = store

    def routes(self) -> Sequence[Route]:
        """Return the routes of the list, and of changes of tokens."""
        return (
            Route(
                "GET",
                PATH,
                self.list_all,
                "The delegation tokens that the caller may see, without their secrets.",
                response=page("tokens", record(MEMBERS, title="Token")),
                query=(OWNER, LIMIT, AFTER),
                problems={403: _PROBLEMS[403]},
            ),
            Route(
                "POST",
                PATH,
                self.create,
                "Create a delegation token.",
                response=CREATED,
                status=201,
                body=NEW_TOKEN,
                znodes=_ZNODES,
                problems={403: _PROBLEMS[403]},
            ),
            Route(
                "POST",
                f"{ONE}/renew",
                self.renew,
                "Extend the validity of a token; callers with the admin token act for its owner.",
                response=CHANGED,
                body=RENEWAL,
                query=(IN_TOKEN,),
                znodes=_ZNODES,
                problems=_PROBLEMS,
            ),
            Route(
                "POST",
                f"{ONE}/expire",
                self.expire,
                "Delete a token, or set the end of its validity; callers with the admin token act for its owner.",
                response=CHANGED,
                body=EXPIRY,
                query=(IN_TOKEN,),
                znodes=_ZNODES,
                problems=_PROBLEMS,
            ),
        )

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/tokens``."""
        store, caller, owner = self._enabled_store(call.caller), call.caller, call.query["owner"]

        def may_describe(token: DelegationToken) -> bool:
            of_token = Resource(ResourceType.DELEGATION_TOKEN, token.token_id)
            return caller.may(Operation.DESCRIBE, of_token) or caller.may(Operation.DESCRIBE_TOKENS, user(token.owner))

        found = await store.visible_tokens(caller.user, None if owner is None else [owner], may_describe)
        tokens = {token.token_id: token for token in found}
        page, following = page_of(sorted(tokens), call)
        return JsonResponse({"tokens": [_row(tokens[token_id]) for token_id in page], "next": following})

    async def create(self, call: Call) -> JsonResponse:
        """``POST /v1/tokens``."""
        store, caller, body = self._enabled_store(call.caller), call.caller, call.body
        owner = body.get("owner", caller.user)
        if caller.is_super and "owner" not in body:
            raise Problem(
                400,
                "INVALID_REQUEST",
                "the caller has authenticated with the admin token, which belongs to no user",
                what_to_do='Specify the owner of the token, for example {"owner": "User:alice"}.',
            )
        max_ms = body.get("max_lifetime_ms", BROKERS_PERIOD)
        token, operations = await store.create(
            owner, caller.user, body.get("renewers", ()), max_ms, dry_run=call.dry_run
        )
        secret = None if call.dry_run else b64encode(store.cache.hmac_of(token)).decode()
        return JsonResponse({**_row(token), "hmac": secret, **_writes(operations, call)}, status=201)

    async def renew(self, call: Call) -> JsonResponse:
        """``POST /v1/tokens/{token}/renew``."""
        store, token_id = self._enabled_store(call.caller), call.path["token"]
        principal = await self._principal(store, call.caller, token_id)
        period_ms = call.body.get("period_ms", BROKERS_PERIOD)
        token, operations = await store.renew(principal, token_id, period_ms, dry_run=call.dry_run)
        return JsonResponse({**_row(token), **_writes(operations, call)})

    async def expire(self, call: Call) -> JsonResponse:
        """``POST /v1/tokens/{token}/expire``."""
        store, token_id = self._enabled_store(call.caller), call.path["token"]
        principal = await self._principal(store, call.caller, token_id)
        period_ms = call.body.get("period_ms", DELETE_NOW)
        token, operations = await store.expire(principal, token_id, period_ms, dry_run=call.dry_run)
        return JsonResponse({**_row(token), **_writes(operations, call)})

    def _enabled_store(self, caller: Caller) -> TokenStore:
        """Return the store.

        :raise KafkaError: the caller has not authenticated, or tokens are disabled.
        """
        if caller.method == "none":
            text = "a caller that has not authenticated cannot use delegation tokens"
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, text)
        if self._store is None:
            text = "delegation tokens are disabled: delegation.token.secret.key is not set"
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, text)
        return self._store

    async def _principal(self, store: TokenStore, caller: Caller, token_id: str) -> str:
        """Return the principal for which the caller changes a token."""
        if not caller.is_super:
            return caller.user
        await store.catch_up()
        token = store.cache.find(token_id)
        return caller.user if token is None else token.owner


def _row(token: DelegationToken) -> Row:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }


def _writes(operations: Sequence[ZooKeeperOperation], call: Call) -> Row:
    return {"dry_run": call.dry_run, "znodes": ZnodeWrites(operations).document()}
