"""Problem documents of the admin API (RFC 9457), with advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreplica.errors import KreplicaError


class Problem(KreplicaError):
    """An error that is sent as ``application/problem+json``.

    :param status: the HTTP status, 400 to 599.
    :param title: the kind of the problem, constant; the name of a Kafka error if there is one.
    :param detail: explanation of this occurrence of the problem.
    :param what_to_do: the caller's next step as a sentence; None if waiting is enough.
    :param members: additional members of the document.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        what_to_do: str | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.what_to_do = what_to_do
        self.members = dict(members or {})

    def document(self, instance: str) -> dict[str, Any]:
        """Return the document.

        :param instance: the requested path.
        """
        document: dict[str, Any] = {"title": self.title, "status": self.status, "detail": self.detail}
        if self.what_to_do is not None:
            document["what_to_do"] = self.what_to_do
        return {**document, "instance": instance, **self.members}
