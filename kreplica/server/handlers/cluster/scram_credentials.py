"""DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (key 51): SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.scram_writer import ScramWriter
from kreplica.membership.settings.dynamic_settings import DynamicSettings
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.security.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
)
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result

Row = dict[str, Any]

_MECHANISMS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
_CODES = {name: code for code, name in _MECHANISMS.items()}


class DescribeUserScramCredentials:
    """Lists mechanisms and iterations; keys and salts stay secret."""

    def __init__(self, settings: DynamicSettings) -> None:
        self._settings = settings
        self._credentials = settings.scram_credentials

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request.body))

    async def _response(self, body: Row) -> Row:
        try:
            await translate_errors(self._settings.read_users())
        except KafkaError as error:
            return {"error_code": int(error.code), "error_message": error.message, "results": []}
        named = [row["name"] for row in body["users"] or ()]
        counts = Counter(named) if named else Counter(sorted(self._credentials.users))
        return {"error_code": 0, "results": [self._row(user, count) for user, count in counts.items()]}

    def _row(self, user: str, count: int) -> Row:
        if count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            return _result(user, ErrorCode.DUPLICATE_RESOURCE, message)
        credentials = self._credentials.mechanisms_of(user)
        if not credentials:
            message = f"Attempt to describe a user credential that does not exist: {user}"
            return _result(user, ErrorCode.RESOURCE_NOT_FOUND, message)
        infos = [{"mechanism": _CODES[name], "iterations": each.iterations} for name, each in credentials.items()]
        return {**_result(user, ErrorCode.NONE, None), "credential_infos": infos}


class AlterUserScramCredentials:
    """Sets and deletes credentials; the rows of each user are applied together."""

    def __init__(self, writer: ScramWriter) -> None:
        self._writer = writer

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request.body))

    async def _response(self, body: Row) -> Row:
        changes: dict[str, dict[str, ScramCredential | None]] = {}
        errors: dict[str, KafkaError] = {}
        for row in (*body["deletions"], *body["upsertions"]):
            user = str(row["name"])
            of_user = changes.setdefault(user, {})
            try:
                mechanism, credential = _change(row)
                if mechanism in of_user:
                    text = "A user credential cannot be altered twice in the same request"
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
                of_user[mechanism] = credential
            except KafkaError as error:
                errors.setdefault(user, error)
        results = []
        for user, of_user in changes.items():
            failed = errors.get(user)
            if failed is None:
                try:
                    await self._writer.change(user, of_user)
                except KafkaError as error:
                    failed = error
            if failed is None:
                results.append(_result(user, ErrorCode.NONE, None))
            else:
                results.append(_result(user, failed.code, failed.message))
        return {"results": results}


def _change(row: Row) -> tuple[str, ScramCredential | None]:
    """Return the mechanism, and the new credential; None for a deletion."""
    mechanism = _MECHANISMS.get(row["mechanism"])
    if not row["name"]:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if "iterations" not in row:
        return mechanism, None
    iterations = row["iterations"]
    if iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    salt, salted = bytes(row["salt"]), bytes(row["salted_password"])
    if not salt or not salted:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt and the salted password must not be empty")
    return mechanism, ScramCredential.of_salted_password(mechanism, salted, salt, iterations)


def _result(user: str, code: ErrorCode, message: str | None) -> Row:
    return {"user": user, "error_code": int(code), "error_message": message, "credential_infos": []}
