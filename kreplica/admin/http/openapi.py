"""``/openapi.json``: the routes as an OpenAPI 3.1 document.

It is generated from the definitions that validate requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kreplica import __version__
from kreplica.admin.http.api import Call, JsonResponse, Parameter, Route, Schema
from kreplica.admin.http.calls import path_parameters, query_parameters
from kreplica.admin.http.schemas import STRING, listing, record

Row = dict[str, Any]

PATH = "/openapi.json"
PROBLEM_JSON = "application/problem+json"

DESCRIPTION = (
    "Administers a cluster through any of its brokers. Each write is one ZooKeeper transaction, which the response "
    "shows; `?dry_run=true` shows it without writing. Errors are problem documents (RFC 9457) with advice."
)

PROBLEM = record(
    {
        "title": {**STRING, "description": "The kind of the problem; the name of a Kafka error if there is one."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {**STRING, "description": "Explanation of this occurrence of the problem."},
        "what_to_do": {**STRING, "description": "The next step."},
        "instance": {**STRING, "description": "The requested path."},
        "errors": listing(record({"where": STRING, "what": STRING}), maxItems=10),
    },
    title="Problem",
    optional=("what_to_do", "errors"),
    # Problems may have additional members.
    additionalProperties=True,
)

_COMMON_PROBLEMS = {
    400: "The request does not match this document.",
    401: "The credentials are missing or wrong.",
    403: "The caller is not authorized.",
    414: "The path with its parameters is too long.",
    421: "The Host header does not name this listener.",
    429: "Too many failed authentications from the caller's address.",
    431: "A header is too long.",
    500: "An unexpected error, or a malformed znode.",
    503: "ZooKeeper, the controller or a broker is unreachable, or too many requests are in progress.",
}
_WRITE_PROBLEMS = {403: "The caller is not authorized, or the request comes from a page of another site."}
_BODY_PROBLEMS = {413: "The body is too long.", 415: "The body is not JSON."}
_PATH_PROBLEMS = {404: "The path does not exist."}

TOKEN, BASIC, CERTIFICATE, BEARER, SESSION = "token", "basic", "certificate", "bearer", "session"

SECURITY_SCHEMES: Row = {
    TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "description": "The content of the file in kreplica.admin.token.file, if set.",
    },
    BASIC: {"type": "http", "scheme": "basic", "description": "A user with SCRAM credentials, if enabled."},
    CERTIFICATE: {"type": "mutualTLS", "description": "A client certificate, if enabled."},
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token of the authorization server, if enabled.",
    },
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": "kreplica-session",
        "description": "A session of the dashboard; the name of the cookie ends with the ID of the broker. Writes need "
        "the header X-Kreplica-Dashboard as well.",
    },
}

IF_MATCH: Row = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": r'^(\*|"[\x21\x23-\x7e]*")$'},
    "description": "Write only if this ETag is current.",
}


class OpenApi:
    """Builds the document on the first request, since the routes do not change.

    :param routes: all routes; this resource adds its own.
    :param schemes: names of the security schemes for callers; empty without authentication.
    :param public: names of the routes that need no authentication.
    """

    def __init__(self, routes: Sequence[Route], *, schemes: Sequence[str], public: Collection[str]) -> None:
        self._routes = routes
        self._schemes = schemes
        self._public = public
        self._document: Row | None = None

    def routes(self) -> Sequence[Route]:
        """Return the route of the OpenAPI document."""
        response = {"type": "object", "required": ["openapi", "info", "paths"]}
        return (Route("GET", PATH, self.read, "This document.", response=response),)

    async def read(self, call: Call) -> JsonResponse:
        """``GET /openapi.json``."""
        if self._document is None:
            routes = [*self._routes, *self.routes()]
            self._document = document_of(routes, schemes=self._schemes, public=self._public)
        return JsonResponse(self._document)


def document_of(routes: Sequence[Route], *, schemes: Sequence[str] = (), public: Collection[str] = ()) -> Row:
    """Return the OpenAPI document of these routes.

    :raise ValueError: two schemas of the same title differ.
    """
    components = _Components()
    problem = components.reference(PROBLEM)
    paths: dict[str, Row] = {}
    for route in routes:
        operation = _operation(route, components, problem)
        if route.name in public:
            operation["security"] = []
        paths.setdefault(route.path.replace(":path}", "}"), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kreplica admin API",
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{name: []} for name in schemes],
        "tags": [{"name": name} for name in sorted({_tag(route) for route in routes})],
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _operation(route: Route, components: _Components, problem: Row) -> Row:
    operation: Row = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": _parameters(route),
        "responses": _responses(route, components, problem),
    }
    if route.is_deprecated:
        operation["deprecated"] = True
    if route.znodes:
        operation["description"] = "Writes " + " and ".join(f"`{path}`" for path in route.znodes) + "."
        operation["x-kreplica-znodes"] = list(route.znodes)
    if route.body is not None:
        schema = components.reference(route.body)
        needed = bool(route.body.get("required") or route.body.get("minProperties"))
        operation["requestBody"] = {"required": needed, "content": {"application/json": {"schema": schema}}}
    return operation


def _operation_id(route: Route) -> str:
    words = route.path.replace("/v1/", "/").replace(":path", "").replace("{", "by_").replace("}", "")
    return "_".join([route.method.lower(), *filter(None, words.replace(".", "_").replace("-", "_").split("/"))])


def _tag(route: Route) -> str:
    parts = route.path.removeprefix("/v1").split("/")
    return parts[1] if route.path.startswith("/v1/") else "process"


def _parameters(route: Route) -> list[Row]:
    rows = [_parameter(parameter, "path") for parameter in path_parameters(route)]
    rows += [_parameter(parameter, "query") for parameter in query_parameters(route)]
    return [*rows, IF_MATCH] if 412 in route.problems else rows


def _parameter(parameter: Parameter, place: str) -> Row:
    schema = dict(parameter.schema)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path",
        "schema": schema,
        "description": parameter.description,
    }


# --- responses -------------------------------------------------------------------------------------------------------


def _responses(route: Route, components: _Components, problem: Row) -> Row:
    rows: dict[int, Row] = {route.status: {"description": "Success." if route.writes else "The requested document."}}
    content = _content(route, components)
    if content:
        rows[route.status]["content"] = content
    for status, (description, schema) in route.other_responses.items():
        json = {"application/json": {"schema": components.reference(schema)}}
        rows[status] = {"description": description, "content": json}
    if route.method == "GET" and not route.streams:
        rows[304] = {"description": "The ETag matches If-None-Match."}
    for status, description in _problems(route).items():
        if status in rows:
            rows[status]["content"] = {**rows[status].get("content", {}), PROBLEM_JSON: {"schema": problem}}
        else:
            rows[status] = {"description": description, "content": {PROBLEM_JSON: {"schema": problem}}}
    return {str(status): rows[status] for status in sorted(rows)}


def _content(route: Route, components: _Components) -> Row:
    if route.streams:
        media_types = (route.media_type or "text/event-stream", *route.other_media_types)
        return {name.partition(";")[0]: {"schema": {"type": "string"}} for name in media_types}
    if route.response is not None:
        return {"application/json": {"schema": components.reference(route.response)}}
    if route.media_type is not None:
        return {route.media_type: {"schema": {"type": "string"}}}
    return {}


def _problems(route: Route) -> Mapping[int, str]:
    problems = dict(_COMMON_PROBLEMS)
    if "{" in route.path:
        problems |= _PATH_PROBLEMS
    if route.writes:
        problems |= _WRITE_PROBLEMS
    if route.body is not None:
        problems |= _BODY_PROBLEMS
    for status, description in route.problems.items():
        default = problems.get(status)
        problems[status] = description if default in (None, _PATH_PROBLEMS.get(404)) else f"{default} Or: {description}"
    return problems


# --- schemas ---------------------------------------------------------------------------------------------------------


class _Components:
    """Collects the schemas that have a title."""

    def __init__(self) -> None:
        self.schemas: dict[str, Row] = {}

    def reference(self, schema: Schema) -> Row:
        """Collect the titled schemas in a schema, and return it with references in their place."""
        inner = {name: self._member(name, value) for name, value in schema.items()}
        title = inner.get("title")
        if title is None:
            return inner
        if self.schemas.setdefault(title, inner) != inner:
            raise ValueError(f"two different schemas have the title {title!r}")
        return {"$ref": f"#/components/schemas/{title}"}

    def _member(self, name: str, value: Any) -> Any:
        if name in ("properties", "patternProperties", "$defs"):
            return {key: self.reference(each) for key, each in value.items()}
        if name in ("items", "additionalProperties", "not") and isinstance(value, Mapping):
            return self.reference(value)
        if name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            return [self.reference(each) for each in value]
        return value
