"""Writes of the admin API to ZooKeeper: each is one multi, and the response lists its operations, also in a dry run."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.admin.http.problems import Problem
from kreplica.zookeeper import (
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    SetData,
    ZooKeeperClient,
)
from kreplica.zookeeper.operations import ANY_VERSION

Row = dict[str, Any]

HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True)
class ZnodeWrites:
    """Operations of one multi.

    :param operations: a ``Check`` is executed but not reported, since it writes nothing.
    :param secrets: names of settings whose values are hidden.
    """

    operations: Sequence[Operation]
    secrets: Collection[str] = ()

    def document(self) -> list[Row]:
        """Return the writes in the form of the response."""
        return [self._row(operation) for operation in self.operations if not isinstance(operation, Check)]

    def _row(self, operation: Create | SetData | Delete) -> Row:
        if isinstance(operation, Create):
            return {"operation": "create", "path": operation.path, "data": self._shown(operation.data)}
        row: Row = {"operation": "delete", "path": operation.path}
        if isinstance(operation, SetData):
            row = {"operation": "set", "path": operation.path, "data": self._shown(operation.data)}
        if operation.version != ANY_VERSION:
            row["version"] = operation.version
        return row

    def _shown(self, data: bytes | None) -> Any:
        text = (data or b"").decode(errors="replace")
        try:
            document = json.loads(text)
        except ValueError:
            return text
        settings = document.get("config") if isinstance(document, dict) else None
        if isinstance(settings, dict):
            for name in settings.keys() & set(self.secrets):
                settings[name] = HIDDEN
        return document


async def write(
    client: ZooKeeperClient, writes: ZnodeWrites, *, dry_run: bool, if_match: str | None = None
) -> list[Row]:
    """Write unless it is a dry run; return the documents of the znodes in both cases.

    :param if_match: the version that the caller requires; a mismatch raises 412.
    :raise Problem: 409 or 412 after a concurrent write; 413 if the operations exceed the size limit.
    :raise ZooKeeperError: ZooKeeper is unreachable.
    """
    document = writes.document()
    if dry_run or not writes.operations:
        return document
    try:
        results = await client.multi(writes.operations)
    except MultiFailed as failed:
        raise _conflict(failed, 409 if if_match is None else 412) from failed
    except RequestTooLarge as error:
        detail = f"too large for one ZooKeeper transaction: {error}"
        raise Problem(413, "CONTENT_TOO_LARGE", detail, what_to_do="Split the request.") from error
    written = [done for done, op in zip(results, writes.operations, strict=True) if not isinstance(op, Check)]
    for row, result in zip(document, written, strict=True):
        if isinstance(result, Created):
            row["path"] = result.path  # the number of a sequential znode is known only after the write
    return document


_CONFLICTS = {
    NodeExists: (409, "already exists"),
    NoNode: (409, "does not exist, or its parent does not"),
    NotEmpty: (409, "is not empty"),
}


def _conflict(failed: MultiFailed, bad_version_status: int) -> Problem:
    path = failed.error.path
    if isinstance(failed.error, BadVersion):
        title = "CONFLICT" if bad_version_status == 409 else "PRECONDITION_FAILED"
        detail = f"{path} was changed concurrently; nothing was written"
        return Problem(bad_version_status, title, detail, what_to_do="Read it again, then repeat the change.")
    for kind, (status, state) in _CONFLICTS.items():
        if isinstance(failed.error, kind):
            detail = f"{path} {state}; nothing was written"
            return Problem(status, "CONFLICT", detail, what_to_do="Read the current state, then repeat the change.")
    return Problem(500, "UNKNOWN_SERVER_ERROR", f"ZooKeeper rejected the transaction; nothing was written: {failed}")
