"""Version and compilation of the interpreter."""

from __future__ import annotations

import sys

import pytest

from kreplica.runtime.interpreter import Interpreter, interpreter, is_optimized

UPSTREAM = {"CONFIG_ARGS": "'--prefix=/usr/local'", "PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction"}
DEBIAN = {
    "CONFIG_ARGS": "'--prefix=/usr' '--with-wheel-pkg-dir=/usr/share/python-wheels/' 'CC=x86_64-linux-gnu-gcc'",
    "PGO_PROF_USE_FLAG": "",
    "PY_CFLAGS_NODIST": "-std=c11 -Wextra",
    "MULTIARCH": "x86_64-linux-gnu",
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, False),
        (UPSTREAM, False),
        (UPSTREAM | {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, True),
        (UPSTREAM | {"PY_CFLAGS_NODIST": "-std=c11 -fprofile-use -fprofile-correction"}, True),
        (UPSTREAM | {"PY_CFLAGS_NODIST": "-fprofile-instr-use=code.profclangd"}, True),
        (DEBIAN, True),
        (DEBIAN | {"MULTIARCH": "riscv64-linux-gnu"}, False),
        (DEBIAN | {"PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction"}, False),
    ],
)
def test_optimized(config: dict[str, str], expected: bool) -> None:
    """The recorded configuration shows the optimization, even for Debian, which removes the option."""
    assert is_optimized(config) is expected


def test_this_interpreter() -> None:
    """The version is that of the process."""
    assert interpreter().version == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (Interpreter("CPython", "3.11.2", True), "3.11.2, optimized"),
        (Interpreter("CPython", "3.13.0", False, True), "3.13.0 free-threaded, not optimized"),
        (Interpreter("PyPy", "3.11.13", False), "PyPy 3.11.13, not optimized"),
    ],
)
def test_text(shown: Interpreter, text: str) -> None:
    """The text contains the version, the optimization, and unusual properties."""
    assert str(shown) == text
