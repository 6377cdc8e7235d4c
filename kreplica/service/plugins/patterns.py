"""Parses lists of names in plugin settings, in which a final star matches any suffix."""

from __future__ import annotations


class Patterns:
    """A list of names and prefixes.

    :param text: names separated by commas, such as ``orders,logs-*``.
    """

    def __init__(self, text: str) -> None:
        names = [name.strip() for name in text.split(",") if name.strip()]
        self._names = frozenset(name for name in names if not name.endswith("*"))
        self._starts = tuple(name[:-1] for name in names if name.endswith("*"))

    def __bool__(self) -> bool:
        return bool(self._names or self._starts)

    def __contains__(self, name: str) -> bool:
        return name in self._names or name.startswith(self._starts)
