"""What goes wrong, as the admin API says it: problem documents (RFC 9457) that also say what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreplica.errors import KreplicaError


class Problem(KreplicaError):
    """Raised by a handler, and answered as ``application/problem+json``.

    :param status: of HTTP, 400 to 599.
    :param title: what kind of problem it is, the same each time: an error's name of Kafka's where there is one.
    :param detail: what is wrong just now, and where.
    :param what_to_do: the next step of whoever asked, as a sentence; None where there is nothing to do but to wait.
    :param members: further members of the document.
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
        """:param instance: the path that was asked for."""
        document: dict[str, Any] = {"title": self.title, "status": self.status, "detail": self.detail}
        if self.what_to_do is not None:
            document["what_to_do"] = self.what_to_do
        return {**document, "instance": instance, **self.members}
