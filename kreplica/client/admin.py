"""Public names of the administration client: ``Admin`` and the values that it takes and returns."""

from kreplica.client_core.admin import *  # noqa: F403
from kreplica.client_core.admin import __all__ as __all__
