"""Cache of compiled schemas, in the representation of each format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kreplica.interfaces.formats import FormatError, RegisteredSchema

T = TypeVar("T")

_MISSING = object()


def compiled_once(schema: RegisteredSchema, name: str, build: Callable[[RegisteredSchema], T]) -> T:
    """Return the result of ``build``, which is called once for each schema; its ``FormatError`` is cached as well.

    :param name: key of the result in ``schema.compiled``.
    :raise FormatError: ``build`` raised it.
    """
    known = schema.compiled.get(name, _MISSING)
    if known is _MISSING:
        try:
            known = build(schema)
        except FormatError as error:
            known = error
        schema.compiled[name] = known
    if isinstance(known, FormatError):
        raise FormatError(str(known))
    result: T = known
    return result
