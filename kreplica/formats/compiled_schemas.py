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
    compiled = schema.compiled.get(name, _MISSING)
    if compiled is _MISSING:
        try:
            compiled = build(schema)
        except FormatError as error:
            compiled = error
        schema.compiled[name] = compiled
    if isinstance(compiled, FormatError):
        raise FormatError(str(compiled))
    result: T = compiled
    return result
