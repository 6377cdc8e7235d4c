"""``/v1/quotas`` and ``/v1/throttled-clients``: quotas for users, client IDs and IP addresses; throttled clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.znode_writes import ZnodeWrites
from kreplica.admin.http.api import LIMIT, Call, JsonResponse, Parameter, Route, page_of
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import (
    BROKER_ID,
    COUNT,
    STRING,
    TIME_MS,
    listing,
    nullable,
    one_of,
    page,
    record,
    written,
)
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.admin.why.clients import QuotaUse, ThrottledFacts, explain_client
from kreplica.admin.why.explanation import WHY
from kreplica.cluster import znodes
from kreplica.cluster.quotas import CLIENT_QUOTAS, IP_QUOTAS, QUOTA_NAMES, QuotaEntity, quota_fault
from kreplica.zookeeper import Operation

PATH = "/v1/quotas"
THROTTLED = "/v1/throttled-clients"
WHY_CLIENT = "/v1/why/client"

NAME = {"type": "string", "minLength": 1, "maxLength": 1000}
PARTS = {
    "user": {**NAME, "description": f"Without `User:`; `{znodes.DEFAULT_ENTITY}` for users without their own quota."},
    "client_id": {**NAME, "description": f"`{znodes.DEFAULT_ENTITY}` for client IDs without their own quota."},
    "ip": {**NAME, "description": f"IP address or host; `{znodes.DEFAULT_ENTITY}` for those without their own quota."},
}
NUMBER = {"type": "number", "minimum": 0, "maximum": 2.0**63}
VALUES = record(dict.fromkeys(QUOTA_NAMES, NUMBER), title="QuotaValues", optional=QUOTA_NAMES)
MEMBERS = {
    **{name: {**nullable(STRING), "description": each["description"]} for name, each in PARTS.items()},
    "quotas": VALUES,
}
CHANGE = record(
    {**PARTS, "quotas": record(dict.fromkeys(QUOTA_NAMES, nullable(NUMBER)), optional=QUOTA_NAMES, minProperties=1)},
    title="QuotaChange",
    optional=tuple(PARTS),
    description="The entity is a user, a client ID, both, or an IP address. null removes a quota.",
    examples=[{"user": "alice", "quotas": {"producer_byte_rate": 1_048_576}}],
)
CHANGED = written(MEMBERS, title="QuotaChanged")
THROTTLED_CLIENT = record(
    {
        "broker_id": BROKER_ID,
        "quota": one_of(*QUOTA_NAMES),
        "user": {**nullable(STRING), "description": "Such as `User:alice`; null for a quota of IP addresses."},
        "client_id": nullable(STRING),
        "address": STRING,
        "count": {**COUNT, "description": "Throttled requests or connections."},
        "throttled_ms": {**COUNT, "description": "Sum of the throttle times."},
        "last_at_ms": TIME_MS,
        "until_ms": {**nullable(TIME_MS), "description": "End of the throttle time; null if it is over."},
    },
    title="ThrottledClient",
)
THROTTLED_CLIENTS = record(
    {
        "clients": {**listing(THROTTLED_CLIENT), "description": "Clients of the last hour, most recent first."},
        "problems": {**listing(STRING), "description": "A sentence for each broker that did not respond."},
    },
    title="ThrottledClients",
)
PEER_THROTTLED = PeerResponseValidator(THROTTLED_CLIENTS)
AFTER = Parameter(
    "after", {"type": "string", "maxLength": 5000}, "Only entries after this one: `next` of the previous response."
)
QUESTION = (
    Parameter("principal", NAME, "The user, such as `User:alice`.", default="User:ANONYMOUS"),
    Parameter("client_id", NAME, "The client ID; by default, all client IDs that were throttled."),
    Parameter("address", NAME, "The IP address of the client, to explain delayed connections too."),
)
_ZNODES = (
    "/config/users/{user}",
    "/config/clients/{client_id}",
    "/config/ips/{ip}",
    f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}",
)

Row = dict[str, Any]


class QuotaWriter(Protocol):
    """The quotas in ZooKeeper."""

    async def refresh(self) -> None:
        """Read all quotas from ZooKeeper into ``LocalQuotas``.

        :raise ZooKeeperError: ZooKeeper is unreachable.
        """

    async def change(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, dry_run: bool = False
    ) -> Sequence[Operation]: ...


class Hosts(Protocol):
    """Looks up host names."""

    async def check(self, entity: QuotaEntity) -> None:
        """Check that the address of an entity is an IP address or a known host.

        :raise KafkaError: INVALID_REQUEST.
        """


class LocalQuotas(Protocol):
    """The quotas that this broker enforces."""

    @property
    def entries(self) -> Mapping[QuotaEntity, Mapping[str, float]]: ...

    def throttled(self) -> Sequence[ThrottledFacts]:
        """Return the clients that this broker has throttled recently, most recent first."""

    def quotas_of(self, principal: str, client_id: str, address: str | None) -> Sequence[QuotaUse]:
        """Return the quotas that apply to a client."""


class Quotas:
    """Quotas of the cluster, and the clients that its brokers throttle."""

    def __init__(
        self, local: LocalQuotas, store: QuotaWriter, hosts: Hosts, others: OtherBrokers, now_ms: Callable[[], int]
    ) -> None:
        self._local = local
        self._store = store
        self._hosts = hosts
        self._others = others
        self._now_ms = now_ms

    def routes(self) -> Sequence[Route]:
        """Return the routes of quotas, of throttled clients and of their explanation."""
        return (
            Route(
                "GET",
                PATH,
                self.list_all,
                "All quotas.",
                response=page("quotas", record(MEMBERS, title="Quota")),
                query=(LIMIT, AFTER),
            ),
            Route(
                "PATCH",
                PATH,
                self.change,
                "Set or remove quotas of one entity.",
                response=CHANGED,
                body=CHANGE,
                znodes=_ZNODES,
            ),
            Route(
                "GET",
                THROTTLED,
                self.list_throttled,
                "Clients that were throttled in the last hour, on all brokers.",
                response=THROTTLED_CLIENTS,
            ),
            Route(
                "GET",
                WHY_CLIENT,
                self.why,
                "Explain whether quotas slow down a client.",
                response=WHY,
                query=QUESTION,
            ),
        )

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/quotas``."""
        await self._store.refresh()
        entities = {entity.path: entity for entity in self._local.entries}
        page, following = page_of(sorted(entities), call)
        return JsonResponse({"quotas": [self._row(entities[path]) for path in page], "next": following})

    async def change(self, call: Call) -> JsonResponse:
        """``PATCH /v1/quotas``."""
        body = call.body
        entity = QuotaEntity(*(body.get(name) for name in PARTS))
        changes: Mapping[str, float | None] = body["quotas"]
        _check(entity, changes)
        await self._hosts.check(entity)
        await self._store.refresh()
        before = self._local.entries.get(entity, {})
        operations = await self._store.change(entity, changes, dry_run=call.dry_run)
        after = {name: value for name, value in {**before, **changes}.items() if value is not None}
        znode_rows = ZnodeWrites(operations).document()
        return JsonResponse({**_parts(entity), "quotas": after, "dry_run": call.dry_run, "znodes": znode_rows})

    async def list_throttled(self, call: Call) -> JsonResponse:
        """``GET /v1/throttled-clients``."""
        return JsonResponse(await self._throttled_clients(call))

    async def why(self, call: Call) -> JsonResponse:
        """``GET /v1/why/client``."""
        principal, client_id, address = (call.query[name] for name in ("principal", "client_id", "address"))
        document = await self._throttled_clients(call)
        rows = [ThrottledFacts(**row) for row in document["clients"]]
        quotas = self._local.quotas_of(principal, client_id or "", address)
        explanation = explain_client(
            principal, client_id, address, quotas, rows, self._now_ms(), document["problems"]
        )
        return JsonResponse(explanation.document())

    async def _throttled_clients(self, call: Call) -> Row:
        async def read_local() -> Row:
            return {"clients": [each.document() for each in self._local.throttled()], "problems": []}

        responses = await self._others.request_all(call, THROTTLED, PEER_THROTTLED, read_local)
        rows = [row for document in responses.documents.values() for row in document["clients"]]
        rows.sort(key=lambda row: -row["last_at_ms"])
        return {"clients": rows, "problems": list(responses.problems)}

    def _row(self, entity: QuotaEntity) -> Row:
        return {**_parts(entity), "quotas": dict(sorted(self._local.entries[entity].items()))}


def _parts(entity: QuotaEntity) -> Row:
    return dict(zip(PARTS, entity, strict=True))


def _check(entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
    names = CLIENT_QUOTAS if entity.ip is None else IP_QUOTAS
    values = [(name, value) for name, value in changes.items() if value is not None]
    faults = [f"{name} is {value}; {fault}" for name, value in values if (fault := quota_fault(name, value))]
    advice = "Specify a user, a client ID, both, or an IP address."
    if entity == QuotaEntity():
        detail = "the request names no entity"
    elif entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        detail = "a quota of an IP address cannot be combined with a user or client ID"
    elif not changes.keys() <= set(names):
        wrong = ", ".join(sorted(changes.keys() - set(names)))
        owner = "an IP address" if entity.ip is not None else "users and client IDs"
        detail, advice = f"{wrong} is not a quota of {owner}", f"Use {', '.join(names)}."
    elif faults:
        detail, advice = faults[0], "Correct the value."
    else:
        return
    raise Problem(400, "INVALID_REQUEST", detail, what_to_do=advice)
