"""The Python interpreter: its version, and how it was compiled.

``packaging/check_python.py`` runs this file with interpreters that have none of kreplica's dependencies, so it imports
only the standard library.
"""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

_PROFILE_OPTIONS = ("-fprofile-use", "-fprofile-instr-use")
"""Compiler options that use a profile, of gcc and clang."""

_DEBIAN = "--with-wheel-pkg-dir=/usr/share/python-wheels/"
_DEBIAN_OPTIMIZED = ("aarch64", "arm", "i386", "powerpc64le", "s390x", "x86_64")
"""Architectures for which ``debian/rules`` of python3.11 to python3.13 compiles with a profile."""


class Interpreter(NamedTuple):
    """A Python interpreter.

    :param optimized: True if it was compiled with profile-guided optimization (PGO).
    :param free_threaded: True if it was compiled without the global interpreter lock.
    """

    implementation: str
    version: str
    optimized: bool
    free_threaded: bool = False

    def __str__(self) -> str:
        name = "" if self.implementation == "CPython" else f"{self.implementation} "
        free = " free-threaded" if self.free_threaded else ""
        return f"{name}{self.version}{free}, {'optimized' if self.optimized else 'not optimized'}"


@cache
def interpreter() -> Interpreter:
    """Return the interpreter that runs this code."""
    config = sysconfig.get_config_vars()
    return Interpreter(
        platform.python_implementation(),
        platform.python_version(),
        is_optimized(config),
        bool(config.get("Py_GIL_DISABLED")),
    )


def is_optimized(config: Mapping[str, Any]) -> bool:
    """Return True if an interpreter was compiled with profile-guided optimization.

    :param config: its ``sysconfig.get_config_vars()``.
    """
    arguments, flags = (str(config.get(name) or "") for name in ("CONFIG_ARGS", "PY_CFLAGS_NODIST"))
    if "--enable-optimizations" in arguments or any(option in flags for option in _PROFILE_OPTIONS):
        return True
    # Debian and Ubuntu run `make profile-opt` instead, and then remove the option from the recorded flags.
    machine = str(config.get("MULTIARCH") or "").partition("-")[0]
    return _DEBIAN in arguments and not config.get("PGO_PROF_USE_FLAG") and machine in _DEBIAN_OPTIMIZED
