"""JSON data of znodes, with errors that name the znode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.cluster.znodes import ZnodeError


def dump(document: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def load(path: str, data: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    :raise ZnodeError: the data is not a JSON object.
    """
    document = load_any(path, data)
    if not isinstance(document, dict):
        raise ZnodeError(f"{path}: expected a JSON object, not {type(document).__name__}")
    return document


def load_any(path: str, data: bytes) -> object:
    """Parse JSON.

    :raise ZnodeError: the data is not JSON.
    """
    try:
        document: object = json.loads(data)
    except ValueError as error:
        raise ZnodeError(f"{path}: not JSON ({error})") from None
    return document


class ZnodeErrors:
    """Turns errors raised while a document is being read into a ``ZnodeError`` that names the path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError):
            raise ZnodeError(f"{self._path}: the key {error.args[0]!r} is missing") from None
        if isinstance(error, (TypeError, ValueError, AttributeError)):
            raise ZnodeError(f"{self._path}: {error}") from None
