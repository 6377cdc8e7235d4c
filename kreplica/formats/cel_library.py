"""Loads the library for CEL expressions without its command line."""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any


@cache
def cel_library() -> Any:
    """Return the extension module ``cel.cel``.

    The package ``cel`` itself imports the libraries of its command line, which takes a second and 25 MB.
    """
    package = find_spec("cel")
    if package is None:
        raise ModuleNotFoundError("No module named 'cel'")
    extension = PathFinder.find_spec("cel.cel", package.submodule_search_locations)
    if extension is None or extension.loader is None:
        raise ModuleNotFoundError("No module named 'cel.cel'")
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return module
