"""Errors shown to users contain an operating system error's text, without its number and Python's quotes."""

from __future__ import annotations

import ast
import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kreplica
from kreplica.errors import reason_of

ROOT = Path(kreplica.__file__).parent
PACKAGES = ("blocking", "cli", "service", "settings", "security", "zookeeper")
SYSTEM_ERRORS = {"OSError", "ConnectionError", "PermissionError", "FileNotFoundError", "FileExistsError"}


def handlers(tree: ast.AST) -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Yield (name, handler) for each ``except`` that may catch an error of the operating system."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
            caught = {each.id for each in ast.walk(node.type) if isinstance(each, ast.Name)}
            if caught & SYSTEM_ERRORS:
                yield node.name, node


def raw_texts(path: Path) -> Iterator[str]:
    """Yield the location of each f-string that formats such an error directly."""
    for name, handler in handlers(ast.parse(path.read_text())):
        for node in ast.walk(handler):
            if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name) and node.value.id == name:
                yield f"{path.relative_to(ROOT)}:{node.lineno}"


def test_no_message_formats_a_system_error_directly() -> None:
    """Messages use ``reason_of`` or ``strerror``."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 200
    assert [location for path in files for location in raw_texts(path)] == []


@pytest.mark.parametrize(
    ("error", "text", "with_path"),
    [
        (OSError(errno.EACCES, "Permission denied", "/data"), "Permission denied", "/data: Permission denied"),
        (OSError("timed out"), "timed out", "timed out"),
        (ValueError("wrong"), "wrong", "wrong"),
    ],
)
def test_reason(error: Exception, text: str, with_path: str) -> None:
    assert (reason_of(error), reason_of(error, with_path=True)) == (text, with_path)


def test_file_as_data_directory(tmp_path: Path) -> None:
    """The error is one line with the path and the reason."""
    file = tmp_path / "file"
    file.touch()
    words = [sys.executable, "-m", "kreplica.cli", "start", "--data-dir", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert str(file) in done.stderr
    assert "Errno" not in done.stderr
