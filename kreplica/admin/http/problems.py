"""Problem documents of the admin API (RFC 9457), with advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from kreplica.errors import KreplicaError

SHOWN_MAX = 200
"""Maximum number of characters of a caller's value in a problem."""


def similar_name(name: str, known: Iterable[str]) -> str:
    """Return the sentence ``Did you mean ...?`` with the most similar known name; empty if none is similar."""
    near = get_close_matches(name[:SHOWN_MAX], list(known), n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else ""


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
