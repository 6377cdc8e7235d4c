"""DeleteGroups (key 42): deletes groups without members, and their offsets."""

from __future__ import annotations

from functools import partial
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.handlers.groups.describe_groups import STEP_GROUPS
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices

Row = dict[str, Any]


class DeleteGroups:
    """Responds when every deletion is committed or rejected."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        deletions = _Deletions(request, list(dict.fromkeys(request.body["groups_names"])))
        respond_in_slices(request, deletions.begin(self._groups))


class _Deletions:
    """The groups of one request."""

    def __init__(self, request: Request, group_ids: list[str]) -> None:
        self._request = request
        self._group_ids = group_ids
        self._codes: dict[str, ErrorCode] = {}
        self._all_started = False

    def begin(self, groups: GroupCoordinator) -> Steps[Row | None]:
        """Start the deletions in slices.

        :return: the response if all deletions have finished; otherwise the last one responds.
        """
        for number, group_id in enumerate(self._group_ids, 1):
            groups.delete(group_id, partial(self._finish, group_id))
            if number % STEP_GROUPS == 0:
                yield
        self._all_started = True
        return (yield from self._response()) if self._all_finished else None

    @property
    def _all_finished(self) -> bool:
        return len(self._codes) == len(self._group_ids)

    def _finish(self, group_id: str, code: ErrorCode) -> None:
        self._codes[group_id] = code
        if self._all_started and self._all_finished:
            respond_in_slices(self._request, self._response())

    def _response(self) -> Steps[Row]:
        results = []
        for number, group_id in enumerate(self._group_ids, 1):
            results.append({"group_id": group_id, "error_code": int(self._codes[group_id])})
            if number % STEP_ROWS == 0:
                yield
        return {"throttle_time_ms": 0, "results": results}
