"""DeleteGroups (key 42): groups without members go, with their offsets."""

from __future__ import annotations

from functools import partial
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.server.request import Request


class DeleteGroups:
    """Answers when every deletion is committed or refused."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        deletions = _Deletions(request, list(dict.fromkeys(request.body["groups_names"])))
        deletions.begin(self._groups)


class _Deletions:
    """The groups of one request."""

    def __init__(self, request: Request, group_ids: list[str]) -> None:
        self._request = request
        self._group_ids = group_ids
        self._codes: dict[str, ErrorCode] = {}

    def begin(self, groups: GroupCoordinator) -> None:
        for group_id in self._group_ids:
            groups.delete(group_id, partial(self._over, group_id))
        if not self._group_ids:
            self._answer()

    def _over(self, group_id: str, code: ErrorCode) -> None:
        self._codes[group_id] = code
        if len(self._codes) == len(self._group_ids):
            self._answer()

    def _answer(self) -> None:
        results: list[dict[str, Any]] = [
            {"group_id": group_id, "error_code": int(self._codes[group_id])} for group_id in self._group_ids
        ]
        self._request.answer({"throttle_time_ms": 0, "results": results})
