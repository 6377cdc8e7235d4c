"""Loads Twisted's reactors without OpenSSL, which is loaded when TLS is first used.

Loading OpenSSL takes 12 MB and a tenth of a second per start. All TLS features work except ``startTLS`` on an existing
connection, which is not used here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

TLS_MODULES = ("OpenSSL.SSL", "twisted.internet.ssl", "twisted.protocols.tls", "twisted.protocols._sni")
STARTING_TLS = "twisted.internet._newtls"
"""Module with the TLS support of TCP connections, which Twisted treats as optional."""

LOADED = ("twisted.internet.posixbase", "twisted.internet.endpoints")
"""Modules that import TLS names but use them only when called."""


def load_without_tls() -> None:
    """Import Twisted's reactor and endpoint modules without OpenSSL.

    Does nothing if one of them has already been imported. No reactor is installed, because ``twistd`` may still fork.
    """
    if any(name in sys.modules for name in (*TLS_MODULES, STARTING_TLS, *LOADED)):
        return
    sys.modules.update({name: _StandIn(name) for name in TLS_MODULES})
    sys.modules[STARTING_TLS] = None  # type: ignore[assignment]
    try:
        _LazyName.holders = [import_module(name) for name in LOADED]
    finally:
        for name in (*TLS_MODULES, STARTING_TLS):
            del sys.modules[name]


class _StandIn(ModuleType):
    """Placeholder for a module that is not loaded; each of its attributes is a placeholder."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _LazyName(self.__name__, name)


class _LazyName:
    """Placeholder for a name whose module is imported on first use.

    :cvar holders: modules that contain placeholders until the first use.
    """

    holders: Sequence[ModuleType] = ()

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._found()(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    def _found(self) -> Any:
        holders, _LazyName.holders = _LazyName.holders, ()
        for holder in holders:
            for name, value in list(vars(holder).items()):
                if isinstance(value, _LazyName):
                    setattr(holder, name, value._found())
        return getattr(import_module(self._module), self._name)
