"""Loads what Twisted's reactors stand on without OpenSSL, which comes when TLS is first used: few processes ever do.

It takes 12 MB and a tenth of a second of each start.  All of Twisted's TLS works as ever, but for ``startTLS`` on a
connection that began without it, which nothing here speaks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

OF_TLS = ("OpenSSL.SSL", "twisted.internet.ssl", "twisted.protocols.tls", "twisted.protocols._sni")
STARTING_TLS = "twisted.internet._newtls"
"""What TCP connections have of TLS themselves; Twisted does without where it cannot be imported."""

LOADED = ("twisted.internet.posixbase", "twisted.internet.endpoints")
"""What names things of TLS, but has no use for them until somebody calls it."""


def load_without_tls() -> None:
    """Import what reactors and endpoints are made of.

    Nothing happens where something of it was imported before.  The reactor itself is not made: that is for whoever
    has forked already.
    """
    if any(name in sys.modules for name in (*OF_TLS, STARTING_TLS, *LOADED)):
        return
    sys.modules.update({name: _StandIn(name) for name in OF_TLS})
    sys.modules[STARTING_TLS] = None  # type: ignore[assignment]
    try:
        _Named.holders = [import_module(name) for name in LOADED]
    finally:
        for name in (*OF_TLS, STARTING_TLS):
            del sys.modules[name]


class _StandIn(ModuleType):
    """Has every name that the module has, and does not load it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(self.__name__, name)


class _Named:
    """Something in a module that is imported when it is called, or asked for what it has.

    :cvar holders: the modules that have these among their names, until the first of them is used.
    """

    holders: Sequence[ModuleType] = ()

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._found()(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def _found(self) -> Any:
        holders, _Named.holders = _Named.holders, ()
        for holder in holders:
            for name, value in list(vars(holder).items()):
                if isinstance(value, _Named):
                    setattr(holder, name, value._found())
        return getattr(import_module(self._module), self._name)
