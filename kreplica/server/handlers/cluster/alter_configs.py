"""AlterConfigs (key 33) and IncrementalAlterConfigs (key 44): change dynamic settings."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership import SettingsWriter
from kreplica.server.handlers.topics.topic_results import gather_by_topic
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result
from kreplica.settings.alterations import AlterOperation

Row = dict[str, Any]


class _Alter:
    """Common part of both APIs: each resource is changed or rejected separately."""

    def __init__(self, writer: SettingsWriter) -> None:
        self._writer = writer

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request))

    async def _response(self, request: Request) -> Row:
        body = request.body
        resources = body["resources"]
        counts = Counter((row["resource_type"], row["resource_name"]) for row in resources)

        async def alter(row: Row) -> Row:
            if counts[row["resource_type"], row["resource_name"]] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{row['resource_name']!r} appears in the request more than once"
                )
            await self._change(row, validate_only=body["validate_only"])
            return _row(row, ErrorCode.NONE, None)

        return {"responses": await gather_by_topic(request, resources, alter, _error_row)}

    async def _change(self, row: Row, *, validate_only: bool) -> None:
        raise NotImplementedError


class AlterConfigs(_Alter):
    """Replaces all dynamic settings of a resource; settings that the request omits are reset to their defaults."""

    async def _change(self, row: Row, *, validate_only: bool) -> None:
        settings = {}
        for config in row["configs"]:
            if config["value"] is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the setting {config['name']!r} has no value")
            settings[config["name"]] = config["value"]
        await self._writer.replace(
            row["resource_type"], row["resource_name"], settings, validate_only=validate_only
        )


class IncrementalAlterConfigs(_Alter):
    """Changes individual settings: set, delete, append to a list, subtract from a list (KIP-339)."""

    async def _change(self, row: Row, *, validate_only: bool) -> None:
        operations = [
            AlterOperation(config["name"], config["config_operation"], config["value"]) for config in row["configs"]
        ]
        await self._writer.alter(
            row["resource_type"], row["resource_name"], operations, validate_only=validate_only
        )


def _error_row(row: Row, error: KafkaError) -> Row:
    return _row(row, error.code, error.message or None)


def _row(row: Row, code: ErrorCode, message: str | None) -> Row:
    return {
        "error_code": int(code),
        "error_message": message,
        "resource_type": row["resource_type"],
        "resource_name": row["resource_name"],
    }
