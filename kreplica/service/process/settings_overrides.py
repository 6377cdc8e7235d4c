"""Settings that a process receives outside its settings file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kreplica.settings.overrides import Override, environment_overrides, parse_override


def overrides_of(options: Mapping[str, Any]) -> tuple[Override, ...]:
    """Return the overrides of a command: environment variables, then options; later ones take precedence.

    :param options: contains ``environment``, True to read environment variables, and ``overrides``, a list of texts.
    """
    variables = environment_overrides(os.environ) if options["environment"] else ()
    return (*variables, *map(parse_override, options["overrides"]))
