"""Public names of the administration client: ``Admin`` and the types of its arguments and results."""

from kreplica.client_core.admin import *  # noqa: F403
from kreplica.client_core.admin import __all__ as __all__
