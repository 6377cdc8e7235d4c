"""Generates the API reference of the client library: ``python docs/reference.py [DIRECTORY]``, or ``make docs``.

pydoctor reads the source of the client packages, and of the modules below whose names they export.  An extension adds
the constructor parameters of dataclasses and named tuples, which pydoctor does not derive itself.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoctor import driver, model
from pydoctor.extensions import ClassMixin, ExtRegistrar

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "build" / "reference"
INCLUDED = re.compile(
    r"kreplica(/(__init__|model|errors)\.py"
    r"|/wire(/(__init__|compression|batches)\.py)?"
    r"|/(client|client_core)(/.*)?)?"
)
OPTIONS = (
    "--project-name=kreplica.client",
    "--docformat=restructuredtext",
    "--theme=readthedocs",
    "--cls-member-order=source",
    "--mod-member-order=source",
    "--privacy=HIDDEN:kreplica.wire",
    "--privacy=HIDDEN:kreplica.wire.*",
    "--quiet",
)
HIDDEN = ("--privacy=HIDDEN:**._*", "--privacy=HIDDEN:**.__*__")


class Fields(ClassMixin):
    """Derives constructor parameters from annotated attributes, those of base classes first."""

    @property
    def constructor_params(self) -> Mapping[str, ast.expr | None]:
        """Return the annotation of each constructor parameter, by name."""
        own = super().constructor_params  # type: ignore[misc]
        if own:
            return own
        fields: dict[str, ast.expr | None] = {}
        for each in reversed([base for base in self.mro() if isinstance(base, model.Class)]):  # type: ignore[attr-defined]
            # pydoctor treats a field whose default is a name as an alias of that name.
            fields |= dict.fromkeys(each._localNameToFullName_map)
            for name, member in each.contents.items():
                if isinstance(member, model.Attribute) and member.annotation is not None:
                    fields[name] = member.annotation
        return fields


class ClientReference(model.System):
    """Includes only the modules of the reference."""

    custom_extensions = ["reference"]  # noqa: RUF012

    def _addPackageOrModule(self, path: Path, *args: Any, **more: Any) -> Any:
        place = (path.parent if path.name == "__init__.py" else path).resolve().relative_to(ROOT).as_posix()
        if INCLUDED.fullmatch(place) is None and INCLUDED.fullmatch(f"{place}/__init__.py") is None:
            raise model.ModuleNotAdded
        return super()._addPackageOrModule(path, *args, **more)


def setup_pydoctor_extension(registrar: ExtRegistrar) -> None:
    """Register the extension; pydoctor calls this."""
    registrar.register_mixin(Fields)


def write(output: Path) -> int:
    """Write the pages.

    :return: 0 on success, 3 after warnings.
    """
    sys.path.insert(0, str(ROOT / "docs"))
    arguments = [
        f"--project-base-dir={ROOT}",
        f"--html-output={output}",
        "--system-class=reference.ClientReference",
        "-W",
    ]
    return driver.main([*OPTIONS, *HIDDEN, *arguments, str(ROOT / "kreplica")])


if __name__ == "__main__":
    sys.exit(write(Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT))
