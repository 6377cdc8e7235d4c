"""The reference of the client library explains every public name, its parameters and its errors."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

import pytest

import kreplica.client
from kreplica.client import errors

ROOT = Path(__file__).parents[2]
NAMES = sorted(name for name in kreplica.client.__all__ if not isinstance(getattr(kreplica.client, name), ModuleType))


@pytest.mark.soak
def test_pydoctor_reports_no_problem(tmp_path: Path) -> None:
    """Documented parameters exist, and the markup is valid."""
    command = [sys.executable, "docs/reference.py", str(tmp_path / "reference")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"TZ": "UTC"}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for name in ("Producer", "Consumer", "Admin", "Cluster"):
        assert list((tmp_path / "reference").glob(f"kreplica.client.*{name}.html")), name


def functions(name: str) -> Iterator[tuple[str, FunctionType]]:
    """Yield a function, or a class's public methods, with their names, if they are defined in this project."""
    thing = getattr(kreplica.client, name)
    if isinstance(thing, FunctionType):
        yield name, thing
    if isinstance(thing, type):
        for kind in thing.__mro__:
            if not kind.__module__.startswith("kreplica."):
                continue
            for member, value in vars(kind).items():
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if isinstance(function, FunctionType) and not member.startswith("_"):
                    yield f"{name}.{member}", function


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_docstring(name: str) -> None:
    """Every public name and its public methods have docstrings."""
    thing = getattr(kreplica.client, name)
    if callable(thing):
        assert inspect.getdoc(thing), f"{name} has no docstring"
    for called, function in functions(name):
        assert inspect.getdoc(function), f"{called} has no docstring"


@pytest.mark.parametrize("name", NAMES)
def test_raised_errors_are_documented(name: str) -> None:
    """Each error that a public function raises itself is in its docstring or in that of its class."""
    thing = getattr(kreplica.client, name)
    for called, function in functions(name):
        documentation = f"{function.__doc__} {thing.__doc__}"
        for error in raised_by(function):
            assert re.search(rf":raise {error}:|``{error}``", documentation), f"{called}: {error} is not documented"


def raised_by(function: FunctionType) -> set[str]:
    """Return the names of the errors in the function's ``raise`` statements."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    names = {call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
    return {name for name in names if hasattr(errors, name)}


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("Options")])
def test_every_option_is_explained(name: str) -> None:
    """The docstring of an options class explains each field, including inherited ones, unless its enum does."""
    options: Any = getattr(kreplica.client, name)
    hints = get_type_hints(options)
    for field in dataclasses.fields(options):
        if isinstance(hints[field.name], type) and issubclass(hints[field.name], Enum):
            continue
        assert re.search(rf":param {field.name}:|``{field.name}``", options.__doc__), f"{name}.{field.name}"


def test_every_error_defines_retriable() -> None:
    """Every error class has a docstring and defines ``retriable``."""
    for name in errors.__all__:
        assert isinstance(getattr(errors, name).retriable, bool), name
        assert inspect.getdoc(getattr(errors, name)), name
